/* Try-out: one question to a model, or to two side by side, with the time to the first token and the rate of each
   answer. Where both cannot run together the second is asked after the first. */

import { at, button, draw, h, on } from "./dom.js";
import { planText } from "./dialog.js";
import { ask, call, named, pieces, reason } from "./state.js";
import { DASH, canRun, count, known, rate, seconds, serves, span, withUnit } from "./words.js";

const NEAR_PX = 60;
const CHATS = "/v1/chat/completions";
const sides = [0, 1].map(() => ({ model: "", turns: [], plan: null, asked: "" }));
const settings = { question: "", system: "", max_tokens: "1024", temperature: "" };
let two = false;
let stop = null;
let app = null;
let drawn = 0;
let planned = ""; // what ran when the plans were asked for

export const title = "Try out";

export function open(place, given, name) {
  app = given;
  if (name) sides[0].model = name;
  const there = Object.values(app.state.engines).filter(serves).map((one) => one.profile);
  if (!sides[0].model) sides[0].model = there[0] || "";
  draw(place, h("div", { class: "line" }, h("h2", null, "Try out"), h("label", { class: "check" }, h("input", { id: "two", type: "checkbox", checked: two }), "two side by side"), button("Start anew", "try-anew")),
    h("p", { id: "together", class: "dim", role: "status" }),
    h("div", { id: "sides", class: "sides" }),
    h("form", { id: "ask", class: "ask" },
      h("label", { for: "question", class: "unseen" }, "Question"),
      h("textarea", { id: "question", name: "question", rows: 3, placeholder: "Ask something. Enter sends, Shift+Enter begins a line." }, settings.question),
      h("div", { class: "acts" }, h("button", { type: "submit", class: "main", id: "send" }, "Send"), h("button", { type: "button", id: "halt", "data-do": "try-stop", hidden: true }, "Stop"),
        h("details", null, h("summary", null, "Settings"), h("div", { class: "filters" },
          h("label", null, "System prompt", h("input", { name: "system", value: settings.system })),
          h("label", null, "Most tokens", h("input", { name: "max_tokens", type: "number", min: 1, value: settings.max_tokens })),
          h("label", null, "Temperature", h("input", { name: "temperature", type: "number", min: 0, max: 2, step: 0.1, value: settings.temperature, placeholder: "the model's" })))))));
  at("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  at("ask").addEventListener("input", (event) => { if (event.target.name) settings[event.target.name] = event.target.value; });
  at("question").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  at("two").addEventListener("change", (event) => {
    two = event.target.checked;
    drawn = 0;
    const other = there.find((one) => one !== sides[0].model);
    if (two && !sides[1].model) sides[1].model = other || "";
    plans();
  });
  drawn = 0;
  plans();
  if (matchMedia("(min-width: 960px)").matches) at("question").focus();
}

const running = () => Object.values(app.state.engines).map((one) => `${one.profile} ${one.state}`).join();

export function show() {
  if (!at("sides")) return;
  if (planned !== running()) plans();
  const shown = two ? sides : sides.slice(0, 1);
  if (drawn !== shown.length) frame(shown);
  shown.forEach((side, i) => {
    draw(at(`about-${i}`), about(side));
    const place = at(`turns-${i}`);
    const follows = place.scrollHeight - place.scrollTop - place.clientHeight < NEAR_PX;
    place.setAttribute("aria-busy", String(Boolean(stop))); // read aloud once it is whole
    draw(place, side.turns.map((turn, number) => drawTurn(turn, number, side)));
    if (follows) place.scrollTop = place.scrollHeight;
  });
  at("together").textContent = two ? together() : "";
  at("send").hidden = Boolean(stop);
  at("halt").hidden = !stop;
}

/* The selects stay while answers come: they are drawn once. */
function frame(shown) {
  drawn = shown.length;
  const names = app.state.profiles.filter((one) => canRun(one, app.state)).map((one) => one.name);
  const serving = names.filter((name) => serves(app.state.engines[name]));
  const used = names.filter((name) => !serving.includes(name) && app.state.figures[name]);
  const groups = [["Running", serving], ["Used here", used], ["Others", names.filter((name) => !serving.includes(name) && !used.includes(name))]];
  at("sides").className = `sides of-${shown.length}`;
  at("sides").replaceChildren(...shown.map((side, i) => h("section", { "aria-label": i ? "Second model" : "Model" },
    h("label", null, i ? "Second model" : "Model", h("select", { id: `model-${i}` }, h("option", { value: "" }, "choose …"),
      groups.filter(([, list]) => list.length).map(([label, list]) => h("optgroup", { label }, list.map((name) => h("option", { value: name, selected: name === side.model }, name)))))),
    h("div", { id: `about-${i}`, class: "dim" }), h("div", { id: `turns-${i}`, class: "turns", role: "log", "aria-label": `Answers of ${i ? "the second model" : "the model"}` }))));
  shown.forEach((side, i) => at(`model-${i}`).addEventListener("change", (event) => {
    side.model = event.target.value;
    plans();
  }));
}

/* Ask what each model that does not run would take. */
async function plans() {
  planned = running();
  show();
  await Promise.all(sides.map(async (side) => {
    if (!side.model) return;
    const name = side.asked = side.model;
    const plan = await ask(`/api/plan/${named(name)}`).catch(() => null);
    if (side.asked === name) side.plan = plan;
  }));
  show();
}

function about(side) {
  if (!side.model) return "No model is chosen.";
  const engine = app.state.engines[side.model];
  if (serves(engine)) return "It runs.";
  if (engine && engine.state !== "failed") return `It is ${engine.state}.`;
  if (!side.plan || side.plan.profile !== side.model) return "It does not run: asking loads it.";
  return `It does not run: asking loads it. ${planText(side.plan, app.state)}`;
}

/* Whether both can answer at once: neither is stopped for the other. */
function atOnce() {
  const [a, b] = sides.map((side) => side.model);
  const runs = (name) => serves(app.state.engines[name]);
  return a !== b && runs(a) && runs(b);
}

function together() {
  const [a, b] = sides.map((side) => side.model);
  if (!a || !b) return "Choose two models.";
  if (atOnce()) return "Both run: they are asked at the same time, and share the box while they answer.";
  const apart = sides.some((side, i) => side.plan && side.plan.evict.includes(sides[1 - i].model));
  return `${b} is asked after ${a} has answered${apart ? ", since they cannot run together: its load stops the first" : ""}.`;
}

on("try-anew", () => {
  if (stop) stop.abort();
  for (const side of sides) side.turns = [];
  show();
});
on("try-stop", () => stop && stop.abort());

async function send() {
  const question = at("question").value.trim();
  const asked = (two ? sides : sides.slice(0, 1)).filter((side) => side.model);
  if (!question || stop || !asked.length) return;
  at("question").value = settings.question = "";
  const mine = stop = new AbortController();
  const answers = asked.map((side) => {
    const turn = { question, text: "", thought: "", state: "waits", model: side.model, began: null };
    side.turns.push(turn);
    return () => answer(side, turn, mine.signal);
  });
  show();
  if (answers.length === 2 && !atOnce()) {
    await answers[0]();
    await answers[1]();
  } else await Promise.all(answers.map((begin) => begin()));
  stop = null;
  plans();
}

function messages(side) {
  const system = settings.system ? [{ role: "system", content: settings.system }] : [];
  return [...system, ...side.turns.filter((turn, i) => turn.text || i === side.turns.length - 1).flatMap((turn) => [{ role: "user", content: turn.question }, ...(turn.text ? [{ role: "assistant", content: turn.text }] : [])])];
}

async function answer(side, turn, signal) {
  turn.began = performance.now();
  turn.loaded = serves(app.state.engines[turn.model]);
  const body = { model: turn.model, messages: messages(side), stream: true, stream_options: { include_usage: true } };
  if (settings.max_tokens) body.max_tokens = Number(settings.max_tokens);
  if (settings.temperature) body.temperature = Number(settings.temperature);
  try {
    signal.throwIfAborted();
    const told = await call(CHATS, body, signal);
    for await (const frame of pieces(told, "\n\n")) take(turn, frame);
    turn.state = turn.failed ? "failed" : turn.finish || "done";
  } catch (error) {
    turn.state = signal.aborted ? "stopped" : "failed";
    if (!signal.aborted) turn.failed = reason(error);
  }
  show();
}

function take(turn, frame) {
  if (frame.startsWith(":")) {
    turn.waits = frame.slice(1).trim();
    return;
  }
  const data = frame.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
  if (!data || data === "[DONE]") return;
  const told = JSON.parse(data);
  if (told.error) turn.failed = told.error.message || String(told.error);
  if (told.usage) turn.usage = told.usage;
  const choice = told.choices && told.choices[0];
  const delta = (choice && choice.delta) || {};
  const thought = delta.reasoning_content || delta.reasoning || "";
  if (choice && choice.finish_reason) turn.finish = choice.finish_reason;
  if (!delta.content && !thought) return;
  turn.last = performance.now();
  if (!turn.first) turn.first = turn.last;
  turn.text += delta.content || "";
  turn.thought += thought;
  turn.state = "answers";
  later();
}

let waiting = false;
function later() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; show(); });
}

function drawTurn(turn, number, side) {
  return h("article", { "data-key": String(number) }, h("p", { class: "question" }, turn.question),
    turn.thought ? h("details", null, h("summary", null, "Thinking"), h("p", { class: "answer dim" }, turn.thought)) : null,
    h("p", { class: "answer" }, turn.text || (turn.state === "waits" ? turn.waits || "…" : "")),
    turn.failed ? h("p", { class: "notice bad" }, turn.failed) : null,
    h("p", { class: "dim rates" }, turn.model === side.model ? null : `${turn.model}: `, rates(turn)));
}

/* First token by this page's clock, from sending; decode rate as everywhere: tokens after the first over their time. */
function rates(turn) {
  if (!turn.began) return "Is asked next.";
  const first = turn.first ? (turn.first - turn.began) / 1000 : null;
  const tokens = turn.usage ? turn.usage.completion_tokens : null;
  const took = (turn.last - turn.first) / 1000;
  const decode = known(tokens) && tokens > 1 && took > 0 ? (tokens - 1) / took : null;
  const load = turn.loaded || !known(first) ? "" : " with its load";
  if (!known(first)) return turn.state === "waits" ? `${turn.loaded ? "waits" : "loads"} ${span((performance.now() - turn.began) / 1000)}` : turn.state;
  const words = [`TTFT ${seconds(first)} s${load}`, withUnit(rate(decode), "tok/s"), known(tokens) ? `${count(tokens)} tokens` : DASH, turn.state === "answers" ? "answers …" : turn.state];
  return words.filter((word) => word !== DASH).join(" · ");
}
