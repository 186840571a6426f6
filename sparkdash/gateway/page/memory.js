/* A box's memory as a bar with its legend, and its GPU's figures. */

import { facts, h } from "./dom.js";
import { gib, known, round, share } from "./words.js";

/* Free is what nothing uses, as the kernel counts it; the reserve is a mark in the bar, since it may lie in the cache. */
export function memoryPanel(memory) {
  if (!memory) return h("p", { class: "dim" }, "Its memory is unknown.");
  const engines = Object.entries(memory.engines).sort((a, b) => (b[1] || 0) - (a[1] || 0));
  const theirs = memory.strangers.map((one) => [`theirs: ${one.name}`, one.bytes]);
  const named = [...engines, ...theirs].reduce((sum, [, bytes]) => sum + (bytes || 0), 0);
  const cache = memory.page_cache || 0;
  const guess = engines.some(([, bytes]) => !known(bytes));
  const parts = [
    ...engines.map(([name, bytes], i) => [name, bytes, `of-engine-${i % 4}`]),
    ...theirs.map(([name, bytes]) => [name, bytes, "of-other"]),
    [guess ? "engines + other" : "other", Math.max(0, memory.total - memory.free - cache - named), "of-other"],
    ["cache", memory.page_cache, "of-cache"], ["free", memory.free, "of-free"],
  ];
  const words = [...parts.map(([name, bytes]) => `${name} ${gib(bytes)}`), `reserve ${gib(memory.reserve)}\u00a0GiB`];
  return [
    h("p", { class: "figure" }, gib(memory.available), h("small", null, ` of ${gib(memory.total)} GiB available`)),
    h("div", { class: "bar", role: "img", "aria-label": `${words.join(", ")}` },
      parts.filter(([, bytes]) => bytes).map(([name, bytes, look]) => h("div", { class: look, title: `${name} ${gib(bytes)} GiB`, style: { flexGrow: String(bytes / memory.total) } })),
      memory.reserve ? h("i", { class: "mark", title: `reserve ${gib(memory.reserve)} GiB`, style: { left: `${(1 - memory.reserve / memory.total) * 100}%` } }) : null),
    h("ul", { class: "legend" }, parts.map(([, , look], i) => h("li", null, h("i", { class: look }), words[i])),
      h("li", null, h("i", { class: "mark" }), words[parts.length])),
  ];
}

export function gpuFacts(gpu, more = []) {
  const told = gpu || {};
  const throttled = told.throttle && told.throttle.length ? told.throttle.join(", ") : null;
  return facts([
    ["GPU busy", share(told.utilization), "%"], ["Power", round(known(told.board_power_w) ? told.board_power_w : told.power_w), "W"],
    ["Temperature", round(told.temperature_c), "°C"],
    ["Clock", round(known(told.sm_clock_mhz) ? told.sm_clock_mhz / 1000 : null, 2), "GHz"],
    ...(throttled ? [["Slowed by", throttled]] : []), ...more,
  ]);
}
