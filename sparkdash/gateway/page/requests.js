/* All requests: those that run, and the recorded past by filter and order. */

import { remember } from "./details.js";
import { at, button, draw, empty, h, on } from "./dom.js";
import { read, reason } from "./state.js";
import { requestRows } from "./rows.js";

const ORDERS = { newest: "newest", duration: "slowest", ttft: "longest TTFT", wait: "longest wait", output: "most output" };
const PAGE = 100;
const MOST = 1000; // of one answer
const past = { rows: [], next: null, error: null, edge: null, filter: { client: "", profile: "", status: "", sort: "newest" }, asked: 0 };

export const title = "Requests";

let app = null;

export function open(place, given) {
  app = given;
  const filter = past.filter;
  const names = [...new Set([...app.state.recent.map((one) => one.profile), ...Object.keys(app.state.figures)])].sort();
  const choice = (name, label, options) => h("label", null, label, h("select", { name }, options.map(([value, text]) => h("option", { value, selected: value === filter[name] }, text))));
  const form = h("form", { id: "filter", class: "filters", "aria-label": "Filter" },
    h("label", null, "Client", h("input", { name: "client", type: "search", value: filter.client, placeholder: "all", autocomplete: "off" })),
    choice("profile", "Model", [["", "all"], ...names.map((name) => [name, name])]),
    choice("status", "Ended", [["", "all"], ["done", "done"], ["failed", "failed"], ["gone", "client left"]]),
    choice("sort", "Order", Object.entries(ORDERS)));
  draw(place, h("h2", null, "Requests"), form, h("div", { id: "rows" }));
  at("filter").addEventListener("input", () => {
    past.filter = Object.fromEntries(new FormData(at("filter")));
    load();
  });
  at("filter").addEventListener("submit", (event) => event.preventDefault());
  load();
}

async function load(after) {
  const number = ++past.asked;
  if (!after) past.edge = app.state.recent.length ? app.state.recent[0].id : null;
  try {
    const told = await read("/api/history/requests", { ...past.filter, limit: after ? PAGE : Math.min(MOST, Math.max(PAGE, past.rows.length)), after });
    if (number !== past.asked) return;
    Object.assign(past, { rows: after ? [...past.rows, ...told.requests] : told.requests, next: told.next, error: null });
    remember(told.requests);
  } catch (error) {
    if (number === past.asked) Object.assign(past, { rows: [], next: null, error: reason(error) });
  }
}

export const again = () => load();

on("more-requests", () => load(past.next));

export function show(state, now) {
  if (state.recent.length && !state.recent.some((one) => one.id === past.edge)) load(); // more ended since than the state keeps
  const { client, profile, status, sort } = past.filter;
  const fits = (one) => (!client || one.client === client) && (!profile || one.profile === profile) && (!status || one.state === status);
  const live = sort === "newest" ? [...Object.values(state.requests).reverse(), ...state.recent].filter(fits) : [];
  const there = new Set(live.map((one) => one.id));
  const rows = [...live, ...past.rows.filter((one) => !there.has(one.id))];
  draw(at("rows"), past.error ? h("p", { class: "notice bad" }, past.error) : null,
    rows.length ? requestRows(rows, state, now) : empty(client || profile || status ? "No request fits the filter." : "No request yet."),
    past.next ? h("div", { class: "acts" }, button("Older ones", "more-requests")) : null);
}
