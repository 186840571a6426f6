/* An engine's log: read on while the engine lives, found in, and coloured by level. */

import { at, draw, empty, h } from "./dom.js";
import { call, named, pieces, reason } from "./state.js";

const TAIL = 500;
const MOST = 3000;
const PREFIX = /^\((?:APIServer|EngineCore|Worker)[^)]*\)\s*/;

let reading = null;
let name = "";
let held = [];
let broken = false; // the link, not the log

export const title = "Logs";

export function open(place, app, given) {
  const names = [...new Set([given, ...Object.keys(app.state.engines)].filter(Boolean))];
  name = given || names[0] || "";
  draw(place, h("h2", null, "Logs"));
  if (!name) {
    place.append(empty("No engine runs. A failed load keeps its last lines with its notice."));
    return;
  }
  place.append(h("form", { id: "log-form", class: "filters", "aria-label": "Log" },
    h("label", null, "Engine", h("select", { id: "log-name" }, names.map((one) => h("option", { value: one, selected: one === name }, one)))),
    h("label", null, "Find", h("input", { id: "log-find", type: "search", autocomplete: "off" })),
    h("label", { class: "check" }, h("input", { id: "log-follow", type: "checkbox", checked: true }), "follow")),
  h("pre", { id: "log", class: "log", tabindex: 0, "aria-label": `Log of ${name}` }));
  at("log-form").addEventListener("submit", (event) => event.preventDefault());
  at("log-name").addEventListener("change", (event) => app.go("logs", event.target.value));
  at("log-find").addEventListener("input", redraw);
  follow();
}

export function close() {
  if (reading) reading.abort();
  reading = null;
}

/* A hidden tab reads no log; it begins again with the last lines when it is shown. */
document.addEventListener("visibilitychange", () => {
  if (!reading) return;
  reading.abort();
  if (!document.hidden) follow();
});

export function again() {
  if (broken) follow();
}

export function show() {}

async function follow() {
  const mine = reading = new AbortController();
  held = [];
  broken = false;
  redraw();
  try {
    const answer = await call(`/api/logs/${named(name)}?tail=${TAIL}&follow=1`, undefined, mine.signal);
    for await (const line of pieces(answer, "\n")) {
      if (reading !== mine) return;
      add(line);
    }
    if (reading === mine) add("The log ends here.");
  } catch (error) {
    if (reading !== mine || mine.signal.aborted) return;
    broken = true;
    add(reason(error));
  }
}

function add(line) {
  held.push(line);
  if (held.length > MOST) {
    held.shift();
    if (at("log").childNodes.length >= MOST) at("log").firstChild.remove();
  }
  if (!matches(line)) return;
  at("log").append(drawn(line));
  toEnd();
}

const matches = (line) => line.toLowerCase().includes(at("log-find").value.trim().toLowerCase());

function redraw() {
  at("log").replaceChildren(...held.filter(matches).map(drawn));
  toEnd();
}

function toEnd() {
  if (at("log-follow").checked) at("log").scrollTop = at("log").scrollHeight;
}

function drawn(line) {
  const look = /\b(ERROR|CRITICAL|Traceback|error:)/.test(line) ? "bad" : /\bWARN(ING)?\b/.test(line) ? "warn" : /"(GET|POST) \/\S* HTTP/.test(line) ? "dim" : null;
  return h("span", { class: look }, `${line.replace(PREFIX, "")}\n`);
}
