/* The boxes: memory, GPU, links and disks of each, who holds the memory, what the doctor finds, and what went before. */

import { at, button, draw, empty, facts, h, on } from "./dom.js";
import { gpuFacts, memoryPanel } from "./memory.js";
import { ask, reason } from "./state.js";
import { clock, gib, known, round, span } from "./words.js";

const LOOKS = { fail: "bad", warn: "warn", unknown: "dim", note: "dim", ok: "good", failed: "bad", cancelled: "warn", done: "good" };
let holders = null;

export const title = "Box";

export function open(place) {
  draw(place, h("h2", null, "Boxes"), h("div", { id: "boxes", class: "cards" }), h("div", { class: "columns" },
    h("div", null, h("section", { id: "swaps", "aria-label": "Swaps" }),
      h("section", { id: "doctor", "aria-label": "Doctor" }, h("h2", null, "Doctor"), h("p", { class: "dim" }, "It examines what keeps engines from running here."), h("div", { class: "acts" }, button("Examine this box", "examine")))),
    h("section", { id: "holders", "aria-label": "Memory by holder" })));
  again();
}

export function again() {
  ask("/api/memory").then((told) => { holders = told.holdings; }, (error) => { holders = reason(error); });
}

export function show(state, now) {
  const sample = state.sample || { nodes: {} };
  draw(at("boxes"), box(state.daemon.host, sample, null, [["sparkdash", state.daemon.version], ["Up", span(now - state.daemon.started_at)]], sample.nodes.local),
    Object.values(state.nodes).map((node) => box(node.name, sample.nodes[node.name], node, [], sample.nodes[node.name])));
  draw(at("swaps"), h("h2", null, "Swaps"), swaps(state));
  draw(at("holders"), h("h2", null, "Memory by holder"), typeof holders === "string" ? empty(holders) : !holders ? empty("Reading …") : h("table", null, h("tbody", null,
    [...holders].sort((a, b) => b.bytes - a.bytes).slice(0, 12).map((one) => h("tr", null, h("th", { scope: "row" }, one.name || one.kind), h("td", { class: "dim" }, one.kind), h("td", { class: "number" }, `${gib(one.bytes)} GiB`))))));
}

function box(name, told, node, more, linked) {
  const facts_of = (node && node.facts) || {};
  const links = ((linked && linked.links) || []).map((one) => [`Link ${one.name}`, known(one.received_bytes_s) ? `${round((one.received_bytes_s + (one.sent_bytes_s || 0)) / 1e6)}` : "-", "MB/s"]);
  const here = told || {};
  return h("section", { "data-key": name, "aria-label": name }, h("h3", null, name, node ? h("span", { class: `state ${node.status === "reachable" ? "good" : "warn"}` }, node.status) : null),
    node && node.reason ? h("p", { class: "notice" }, node.reason) : null,
    memoryPanel(here.memory), gpuFacts(here.gpu, [...(node ? [["Disk free", gib(facts_of.disk_free), "GiB"], ["Driver", facts_of.driver || "-"]] : [["Driver", (here.gpu && here.gpu.driver) || "-"]]), ...links, ...more]));
}

function swaps(state) {
  if (!state.swaps.length) return empty("None since the daemon began.");
  return h("table", null, h("thead", null, h("tr", null, ["Began", "Model", "Outcome"].map((one) => h("th", { scope: "col" }, one)), h("th", { scope: "col", class: "number" }, "Took"))),
    h("tbody", null, state.swaps.map((one) => h("tr", { "data-key": one.id }, h("td", { class: "dim" }, clock(one.started_at)),
      h("td", { class: "who" }, one.target || `stop of ${one.evict.join(", ")}`, h("small", null, one.failure ? one.failure.message : one.evict.length && one.target ? `stopped ${one.evict.join(", ")}` : one.cause)),
      h("td", { class: LOOKS[one.outcome] }, one.outcome), h("td", { class: "number" }, span(one.ended_at - one.started_at))))));
}

on("examine", async (_of, pressed) => {
  pressed.disabled = true;
  const place = at("doctor");
  try {
    const { findings } = await ask("/api/doctor");
    findings.sort((a, b) => Object.keys(LOOKS).indexOf(a.status) - Object.keys(LOOKS).indexOf(b.status)); // the worst first
    draw(place, h("h2", null, "Doctor"), h("ul", { class: "told" }, findings.map((one) => h("li", null, h("span", null, h("b", { class: LOOKS[one.status] }, one.status), ` ${one.name}: ${one.evidence}`, one.fix ? h("small", null, one.fix) : null)))));
  } catch (error) {
    draw(place, h("h2", null, "Doctor"), empty(reason(error)));
  }
});
