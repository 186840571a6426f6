/* The recorded past: one figure over a period beside the period before, the requests by model, and what happened. */

import { Plot } from "./chart.js";
import { at, draw, empty, h } from "./dom.js";
import { showRuns } from "./measured.js";
import { read, ask, reason } from "./state.js";
import { GIB, clock, count, known, rate, round, seconds, withUnit } from "./words.js";

const PERIODS = { "1h": 3600, "1d": 86400, "1w": 604800, "30d": 2592000, "1y": 31536000 };
const AGAIN_MS = 30000;
const POINTS = 400;
const chosen = { figure: "decode_tok_s", profile: "", period: "1d" };
let known_figures = { figures: [], subjects: [] };
let plot = null;
let asked = 0;
let timer = null;

export const title = "History";

export function open(place) {
  draw(place, h("h2", null, "History"), h("form", { id: "choice", class: "filters", "aria-label": "Figure and period" }),
    h("section", { "aria-label": "Chart" }, h("p", { id: "meaning", class: "dim" }), h("p", { class: "figure" }, h("output", { id: "mean" }, "-"), h("small", { id: "compared" }, " Reading …")), h("div", { id: "past", class: "chart" })),
    h("div", { class: "columns" }, h("section", { id: "usage", "aria-label": "Requests by model" }), h("section", { id: "marks", "aria-label": "What happened" })), h("section", { id: "measured", "aria-label": "Measured" }));
  showRuns(at("measured"));
  at("choice").addEventListener("input", () => {
    Object.assign(chosen, Object.fromEntries(new FormData(at("choice"))));
    fill();
    load();
  });
  plot = new Plot(at("past"), [{}, {}, { look: "dim", width: 1, dash: [4, 4] }, { look: "accent", width: 2 }], { bands: [[2, 1]], figure: (value) => scaled(value) });
  timer = setInterval(() => !document.hidden && load(), AGAIN_MS);
  again();
}

export async function again() {
  known_figures = await ask("/api/history/figures").catch(() => known_figures);
  fill();
  load();
}

export function close() {
  asked += 1;
  clearInterval(timer);
  plot.close();
  plot = null;
}

export function show() {}

const info = () => known_figures.figures.find((one) => one.name === chosen.figure);

function fill() {
  if (!at("choice")) return;
  const figure = info();
  const names = [...new Set(known_figures.subjects.map((one) => one.profile).filter(Boolean))].sort();
  const subjects = [...(figure && !figure.of.includes("box") ? [] : [["", "whole box"]]), ...(figure && !figure.of.includes("engine") ? [] : names.map((name) => [name, name]))];
  if (subjects.length && !subjects.some(([name]) => name === chosen.profile)) chosen.profile = subjects[0][0];
  const choice = (name, label, options) => h("label", null, label, h("select", { name }, options.map(([value, text]) => h("option", { value, selected: value === chosen[name] }, text))));
  at("choice").replaceChildren(choice("figure", "Figure", known_figures.figures.map((one) => [one.name, one.label])), choice("profile", "Of", subjects), choice("period", "Period", Object.keys(PERIODS).map((name) => [name, name])));
  at("meaning").textContent = figure ? `${figure.meaning}.` : "";
}

/* A value in the unit that is written beside it. */
function scaled(value) {
  const unit = info() ? info().unit : "";
  if (!known(value)) return "-";
  if (unit === "share") return String(Math.round(value * 100));
  if (unit === "bytes" || unit === "bytes/s") return round(value / GIB, 1);
  return value >= 10000 ? `${Math.round(value / 1000)}k` : value >= 10 ? round(value) : String(Number(value.toPrecision(2)));
}

const unit = () => ({ share: "%", bytes: "GiB", "bytes/s": "GiB/s", C: "°C" })[info().unit] || info().unit;

async function load() {
  if (!plot) return;
  const number = ++asked;
  const length = PERIODS[chosen.period];
  const until = Date.now() / 1000;
  const since = until - length;
  const series = (from) => read("/api/history/series", { figure: chosen.figure, profile: chosen.profile, points: POINTS, since: from, until: from + length });
  try {
    const [here, before, usage, marks] = await Promise.all([series(since), series(since - length), read("/api/history/usage", { since, until }), read("/api/history/marks", { since, until, limit: 100 })]);
    if (number !== asked) return;
    const earlier = new Map(before.start.map((start, i) => [Math.round((start + length) / here.step_s), before.mean[i]]));
    plot.show([here.start, here.max, here.min, here.start.map((start) => earlier.get(Math.round(start / here.step_s)) ?? null), here.mean], since, until);
    const [mean, other] = [meanOf(here), meanOf(before)];
    at("mean").textContent = scaled(mean);
    at("compared").textContent = known(mean) ? ` ${unit()} on average${known(other) ? `; ${scaled(other)} in the ${chosen.period} before (dashed)` : ""}` : " Nothing was recorded.";
    showUsage(usage);
    showMarks(marks);
  } catch (error) {
    if (number !== asked) return;
    at("mean").textContent = "-";
    at("compared").textContent = ` ${reason(error)}`;
  }
}

function meanOf(series) {
  let [sum, all] = [0, 0];
  series.mean.forEach((mean, i) => { if (known(mean)) { sum += mean * series.count[i]; all += series.count[i]; } });
  return all ? sum / all : null;
}

function showUsage({ rows, total }) {
  const number = (text, wide) => h("td", { class: `number${wide ? " wide" : ""}` }, text);
  const line = (one) => h("tr", null, h("th", { scope: "row" }, one.group), number(count(one.requests)), number(count(one.errors), true), number(count(one.output_tokens)), number(withUnit(seconds(one.ttft_s.p50), "s"), true), number(withUnit(seconds(one.ttft_s.p95), "s"), true), number(rate(one.decode_tok_s.p50)), number(withUnit(round(one.energy_wh, 1), "Wh"), true));
  draw(at("usage"), h("h2", null, "Requests by model"), total.requests ? h("table", null, h("thead", null, h("tr", null, h("th", { scope: "col" }, "Model"), [["Requests"], ["Errors", 1], ["Output"], ["TTFT", 1], ["p95", 1], ["tok/s"], ["Energy", 1]].map(([name, wide]) => h("th", { scope: "col", class: `number${wide ? " wide" : ""}` }, name)))), h("tbody", null, rows.map(line), rows.length > 1 ? line(total) : null)) : empty("No request ended in this period."));
}

function showMarks({ marks }) {
  draw(at("marks"), h("h2", null, "What happened"), marks.length ? h("ul", { class: "told" }, [...marks].reverse().map((one) => h("li", null, h("span", { class: one.level === "error" ? "bad" : one.level === "warning" ? "warn" : null }, `${one.kind}: ${one.text}`), h("time", { class: "dim" }, clock(one.at))))) : empty("Nothing happened in this period."));
}
