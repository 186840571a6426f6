/* The models that this box can run: what runs first, then what was used here, what is on disk, and the rest. */

import { at, button, draw, empty, h } from "./dom.js";
import { ask } from "./state.js";
import { canRun, context, engineState, gib, known, median, rate, withUnit } from "./words.js";

let stock = null;
let wanted = "";
let all = false;

export const title = "Models";

export function open(place, app) {
  draw(place, h("h2", null, "Models"),
    h("div", { class: "filters" }, h("label", null, "Find", h("input", { id: "find", type: "search", value: wanted, placeholder: "name or words", autocomplete: "off" })),
      h("label", { class: "check" }, h("input", { id: "all", type: "checkbox", checked: all }), "also those that cannot run here")),
    h("div", { id: "list" }));
  at("find").addEventListener("input", (event) => { wanted = event.target.value; show(app.state); });
  at("all").addEventListener("change", (event) => { all = event.target.checked; show(app.state); });
  if (matchMedia("(min-width: 960px)").matches) at("find").focus();
  again();
}

export function again() {
  ask("/api/shelf").then((told) => { stock = told.stock; }).catch(() => {});
}

export function show(state) {
  const words = wanted.trim().toLowerCase().split(/\s+/);
  const fits = (one) => words.every((word) => `${one.name} ${one.about} ${one.engine}`.toLowerCase().includes(word));
  const those = state.profiles.filter((one) => (all || canRun(one, state)) && fits(one));
  const used = (one) => (state.figures[one.name] && state.figures[one.name].at) || 0;
  const groups = { Running: [], "Used here": [], "On disk": [], Others: [] };
  for (const one of those) groups[state.engines[one.name] ? "Running" : used(one) ? "Used here" : onDisk(one) ? "On disk" : "Others"].push(one);
  for (const list of Object.values(groups)) list.sort((a, b) => used(b) - used(a) || a.name.localeCompare(b.name));
  draw(at("list"), those.length ? null : empty("No model fits."), Object.entries(groups).filter(([, list]) => list.length).map(([name, list]) => h("section", { "data-key": name, "aria-label": name },
    h("h3", null, name, h("span", { class: "dim" }, ` ${list.length}`)),
    h("table", { class: "models" }, h("thead", null, h("tr", null, h("th", { scope: "col" }, "Model"), ["Memory", "Context", "Here", "Published"].map((word) => h("th", { scope: "col", class: "number wide" }, word)), h("th", { scope: "col" }, h("span", { class: "unseen" }, "Orders")))),
      h("tbody", null, list.map((one) => row(one, state)))))));
}

function onDisk(one) {
  const told = stock && stock[one.name];
  return Boolean(told) && [told.image, told.weights].every((item) => !item || item.here);
}

function row(one, state) {
  const engine = state.engines[one.name];
  const figures = state.figures[one.name];
  const here = figures && figures.rates.length ? median(figures.rates) : null;
  const number = (text, look = "wide") => h("td", { class: `number ${look}` }, text);
  const [word, look] = engine ? engineState(engine) : ["", ""];
  return h("tr", { "data-key": one.name },
    h("td", { class: "who" }, h("b", null, one.name), engine ? h("span", { class: `state ${look}` }, word) : null, h("small", null, h("span", { class: "narrow" }, `${withUnit(gib(one.needs_bytes), "GiB")} · `), one.cannot_run || one.about)),
    number(withUnit(gib(one.needs_bytes), "GiB")), number(context(one.context)), number(withUnit(rate(here), "tok/s")), number(withUnit(rate(one.published_decode_tok_s), "tok/s")),
    h("td", { class: "acts" }, h("a", { class: "button", href: `#/try/${encodeURIComponent(one.name)}` }, "Try"),
      engine && engine.state !== "failed" ? button("Stop", "stop", one.name) : button("Use", "use", one.name)));
}
