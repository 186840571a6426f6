/* Rows of requests, as several pages have them. */

import { empty, h } from "./dom.js";
import { clock, count, isOpen, known, rate, requestState, round, seconds, span, withUnit } from "./words.js";

const SILENT_S = 10; // a running request without a token for so long says so

export function requestRows(requests, state, now) {
  if (!requests.length) return empty("No request yet.");
  const live = (state.sample && state.sample.requests) || {};
  return h("table", { class: "requests" },
    h("thead", null, h("tr", null, ["Began", "Client, model", "State"].map((name) => h("th", { scope: "col" }, name)),
      [["Prompt", "wide"], ["Cached", "wide"], ["Output", "wide"], ["TTFT", "wide"], ["tok/s", ""], ["Took", ""]].map(([name, look]) => h("th", { scope: "col", class: `number ${look}` }, name)))),
    h("tbody", null, requests.map((one) => row(one, live[one.id], state, now))));
}

function row(one, live, state, now) {
  const [word, look] = live && live.silent_s >= SILENT_S ? [`no token ${span(live.silent_s)}`, "warn"] : requestState(one, state, now);
  const open = isOpen(one);
  const speed = open ? live && live.tok_s : one.decode_tok_s;
  const prompt = known(one.prompt_tokens) ? count(one.prompt_tokens) : known(one.prompt_estimate) ? `~${count(one.prompt_estimate)}` : "-";
  const output = known(one.completion_tokens) ? one.completion_tokens : open && live ? live.output_tokens : one.completion_estimate;
  const cached = known(one.cached_tokens) && one.prompt_tokens ? `${round((one.cached_tokens / one.prompt_tokens) * 100)} %` : "-";
  const number = (text, wide) => h("td", { class: `number${wide ? " wide" : ""}` }, text);
  return h("tr", { "data-key": one.id, "data-do": "request", "data-of": one.id },
    h("td", { class: "dim" }, clock(one.started_at)),
    h("td", { class: "who" }, h("button", { type: "button", class: "plain" }, one.client), h("small", null, one.profile)),
    h("td", { class: look }, word),
    number(prompt, true), number(cached, true), number(count(output), true), number(withUnit(seconds(one.ttft_s), "s"), true),
    number(rate(speed)), number(span((open ? now : one.finished_at) - one.started_at)));
}
