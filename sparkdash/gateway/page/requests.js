/* All requests: those that run, and the recorded past by filter and order. */

import { remember } from "./details.js";
import { at, button, draw, empty, h, on } from "./dom.js";
import { read, reason } from "./state.js";
import { requestRows } from "./rows.js";

const ORDERS = { newest: "newest", duration: "slowest", ttft: "longest TTFT", wait: "longest wait", output: "most output" };
const PAGE = 100;
const past = { rows: [], next: null, error: null, filter: { client: "", profile: "", status: "", sort: "newest" }, asked: 0 };

export const title = "Requests";

export function open(place, app) {
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
  try {
    const told = await read("/api/history/requests", { ...past.filter, limit: PAGE, after });
    if (number !== past.asked) return;
    Object.assign(past, { rows: after ? [...past.rows, ...told.requests] : told.requests, next: told.next, error: null });
    remember(told.requests);
  } catch (error) {
    if (number === past.asked) Object.assign(past, { rows: [], next: null, error: reason(error) });
  }
}

on("more-requests", () => load(past.next));

export function show(state, now) {
  const { client, profile, status, sort } = past.filter;
  const fits = (one) => (!client || one.client === client) && (!profile || one.profile === profile) && (!status || one.state === status);
  const live = sort === "newest" ? [...Object.values(state.requests).reverse(), ...state.recent].filter(fits) : [];
  const there = new Set(live.map((one) => one.id));
  const rows = [...live, ...past.rows.filter((one) => !there.has(one.id))];
  draw(at("rows"), past.error ? h("p", { class: "notice bad" }, past.error) : null,
    rows.length ? requestRows(rows, state, now) : empty(client || profile || status ? "No request fits the filter." : "No request yet."),
    past.next ? h("div", { class: "acts" }, button("Older ones", "more-requests")) : null);
}
