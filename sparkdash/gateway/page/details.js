/* One request in full, in the dialog: where its time went, its figures, and its text where it was captured. */

import { propose } from "./dialog.js";
import { button, draw, facts, h, on } from "./dom.js";
import { Refused, ask, reason } from "./state.js";
import { clock, count, isOpen, known, rate, requestState, seconds, span } from "./words.js";

const seen = new Map(); // rows of other pages than the state's own

export function remember(rows) {
  for (const one of rows) seen.set(one.id, one);
}

export function requestDetails(app) {
  on("request", (id) => {
    const state = app.state;
    const one = state.requests[id] || state.recent.find((row) => row.id === id) || seen.get(id);
    if (!one) return;
    const texts = h("div", { class: "texts", "data-own": true }, button("Show its text", "request-text", id));
    const open = isOpen(one);
    const body = [times(one, [...state.swaps, state.swap, ...state.swaps_beside].filter(Boolean)), figures(one, app), texts];
    if (open) propose(`${one.client} asks ${one.profile}`, body, "End the request", () => ask(`/api/requests/${id}/cancel`, {}), "danger");
    else propose(`${one.client} asked ${one.profile}`, body);
  });
  on("request-text", async (id, pressed) => {
    const place = pressed.parentNode;
    draw(place, h("p", { class: "dim" }, "Reading …"));
    try {
      const text = await ask(`/api/requests/${id}/text`);
      draw(place, h("h3", null, "Asked"), h("pre", { tabindex: 0 }, readable(text.body)), h("h3", null, "Answered"), h("pre", { tabindex: 0 }, known(text.answer) ? text.answer : "Its answer was not kept: it broke off, or was too long."));
    } catch (error) {
      draw(place, h("p", { class: error instanceof Refused && error.status === 404 ? "dim" : "bad" }, reason(error)));
    }
  });
}

/* A chat as its messages, anything else as JSON. */
function readable(body) {
  if (!known(body)) return "It was too long to keep.";
  if (typeof body === "string") return body;
  if (!Array.isArray(body.messages)) return JSON.stringify(body, null, 2);
  return body.messages.map((one) => `${one.role}: ${typeof one.content === "string" ? one.content : JSON.stringify(one.content || one.tool_calls, null, 2)}`).join("\n\n");
}

/* The stretches of its time as a bar: waiting, there of the load as far as known, prefill, decode. */
function times(one, swaps) {
  if (isOpen(one)) return null;
  const whole = one.finished_at - one.started_at;
  const granted = known(one.granted_at) ? one.granted_at : one.finished_at; // else it ended while it waited
  const waited = granted - one.started_at;
  const loads = swaps.filter((swap) => swap.target === one.profile).map((swap) => Math.min(known(swap.ended_at) ? swap.ended_at : granted, granted) - Math.max(swap.started_at, one.started_at));
  const load = Math.min(waited, loads.reduce((sum, took) => sum + Math.max(0, took), 0));
  const answer = !known(one.granted_at) ? [] : known(one.ttft_s) ? [["to the first token", one.ttft_s, "of-cache"], ["decoded", Math.max(0, whole - waited - one.ttft_s), "of-engine-0"]] : [["answered", whole - waited, "of-engine-0"]];
  const parts = [["waited", waited - load, "of-other"], ["for its load", load, "of-engine-1"], ...answer];
  return [h("div", { class: "bar", role: "img", "aria-label": parts.map(([name, took]) => `${name} ${seconds(took)} s`).join(", ") },
    parts.map(([, took, look]) => h("div", { class: look, style: { flexGrow: String(whole > 0 ? took / whole : 0) } }))),
  h("ul", { class: "legend" }, parts.map(([name, took, look]) => h("li", null, h("i", { class: look }), `${name} ${seconds(took)} s`)))];
}

function figures(one, { state, now }) {
  const cached = known(one.cached_tokens) ? ` (${count(one.cached_tokens)} cached)` : "";
  return facts([
    ["State", requestState(one, state, now)[0]], ["Began", clock(one.started_at)], ["Took", isOpen(one) ? "-" : span(one.finished_at - one.started_at)],
    ["TTFT", seconds(one.ttft_s), "s"], ["Decode", rate(one.decode_tok_s), "tok/s"],
    ["Prompt", known(one.prompt_tokens) ? `${count(one.prompt_tokens)}${cached}` : "-", "tokens"], ["Output", count(one.completion_tokens), "tokens"],
    ["Thinking", count(one.reasoning_tokens), "tokens"], ["Energy", known(one.energy_wh) ? one.energy_wh.toFixed(3) : "-", "Wh"],
    ["Route", one.route], ["Key", one.key || "-"], ["Node", one.node || "-"], ["Request", one.id],
    ...(one.held_by ? [["Waits for", one.held_by]] : []),
  ]);
}
