/* Runs of the bench: which profile each of them found to be faster. */

import { propose } from "./dialog.js";
import { at, button, draw, empty, h, on } from "./dom.js";
import { ask, reason } from "./state.js";
import { clock, known, rate } from "./words.js";

const SHOWN = 10;
const CLAIMS = { "no difference": "no difference was found", inconclusive: "no verdict, the spread is too large", "screen only": "a first look, no verdict" };

export async function showRuns(place) {
  let runs;
  try {
    runs = await ask("/api/bench");
  } catch (error) {
    return draw(place, h("h2", null, "Measured"), h("p", { class: "notice bad" }, reason(error)));
  }
  return draw(place, h("h2", null, "Measured"), runs.length ? h("ul", { class: "told" }, runs.slice(0, SHOWN).map((run) => h("li", { "data-key": run.id },
    button(run.arms.map((arm) => arm.name).join(" | "), "run", run.id), h("span", { class: "dim" }, run.suite), h("time", { class: "dim" }, clock(Date.parse(run.created_at) / 1000)))))
    : empty("Nothing was measured. `sparkdash ab A B` compares two profiles."));
}

on("run", async (id) => {
  propose(id, empty("Reading …"));
  try {
    const { run, overall, tables } = await ask(`/api/bench/${id}`);
    if (!at("dialog").open) return;
    const starts = run.suite === "load"; // its figures are seconds, of which less is better
    const [verb, more, less] = starts ? ["starts in", "more time", "less time"] : ["decodes", "faster", "slower"];
    const change = (delta) => (known(delta) ? `${verb} ${Math.abs(delta * 100).toFixed(1)} % ${delta < 0 ? less : more} than ${run.baseline}` : `against ${run.baseline}`);
    const told = overall.map(({ arm, verdict, cells }) => h("p", { class: { faster: "good", slower: "bad" }[verdict.claim] }, `${arm} ${change(verdict.delta)} over ${cells} cell${cells === 1 ? "" : "s"}${CLAIMS[verdict.claim] ? `: ${CLAIMS[verdict.claim]}` : ""}.`));
    const table = tables.find((one) => one.metric === (starts ? "load" : "decode"));
    const rows = table ? table.rows.map(({ key, figures }) => h("tr", null, h("th", { scope: "row" }, starts ? "start" : key.text || `context ${key.context}, output ${key.output}, ${key.concurrency} at once`), run.arms.map((arm) => h("td", { class: "number" }, rate((figures.find((one) => one.arm === arm.name) || { median: null }).median))))) : [];
    propose(id, [told.length ? told : empty("It compares nothing yet."), h("table", null, h("thead", null, h("tr", null, h("th", { scope: "col" }, starts ? "s" : "tok/s"), run.arms.map((arm) => h("th", { scope: "col", class: "number" }, arm.name)))), h("tbody", null, rows))]);
  } catch (error) {
    propose(id, h("p", { class: "notice bad" }, reason(error)));
  }
});
