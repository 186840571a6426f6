/* The first page: what runs, how fast, in how much memory, for whom. */

import { RateChart, WINDOWS } from "./chart.js";
import { at, button, draw, empty, facts, h, on } from "./dom.js";
import { gpuFacts, memoryPanel } from "./memory.js";
import { requestRows } from "./rows.js";
import { DASH, STALE_S, clock, context, decodeOfBox, engineState, figure, known, rate, round, seconds, serves, share, span } from "./words.js";

const SHOWN = 8;
const NOTICES = 6;
const SILENT_S = 20; // a run of the bench that tells nothing for so long is over
const FAILED_S = 600; // a failed load is shown for so long
const PHASES = ["copy", "drain", "stop", "reclaim", "preflight", "create", "load", "warm"];
const chart = new RateChart();
const look = (one, engine) => (one.level === "info" || (engine && engine.ready_at > one.at) ? "dim" : one.level === "error" ? "bad" : "warn");

export const title = "Now";

export function open(place) {
  draw(place, h("div", { class: "columns" },
    h("div", null,
      h("section", { "aria-labelledby": "rate-title" }, h("h2", { id: "rate-title" }, "Decode rate"),
        h("div", { class: "hero" }, h("output", { id: "decode" }, DASH), h("span", { id: "of", class: "dim" }, "all engines")),
        h("div", { id: "chart" }),
        h("div", { class: "choice", role: "group", "aria-label": "Period of the chart" }, Object.keys(WINDOWS).map((name) => h("button", { type: "button", "data-do": "window", "data-of": name, "aria-pressed": String(name === chart.window) }, name)))),
      h("section", { id: "traffic", "aria-label": "Requests" })),
    h("div", null,
      h("section", { id: "engines", "aria-label": "Engines" }), h("section", { id: "memory", "aria-label": "Memory" }),
      h("section", { id: "told", "aria-label": "Notices" }))));
  chart.open(at("chart"));
}

export function close() {
  chart.close();
}

on("window", (name, pressed) => {
  for (const one of pressed.parentNode.children) one.setAttribute("aria-pressed", String(one === pressed));
  chart.choose(name);
});

export function show(state, now) {
  const decode = decodeOfBox(state.sample);
  at("decode").textContent = rate(decode.value);
  at("decode").className = known(decode.value) ? "" : "dim";
  at("of").textContent = [known(decode.value) && "tok/s", "all engines", decode.estimated && "estimated"].filter(Boolean).join(", ");
  if (state.sample) chart.add(state.sample.at, decode.value);
  draw(at("engines"), h("h2", null, "Engines"), engines(state, now));
  draw(at("memory"), h("h2", null, "Memory"), guard(state), memoryPanel(state.sample && state.sample.memory), gpuFacts(state.sample && state.sample.gpu));
  const open = Object.values(state.requests);
  const waits = open.filter((one) => one.state === "waiting").length;
  draw(at("traffic"), h("div", { class: "line" }, h("h2", null, "Requests"), h("span", { class: "dim" }, `${open.length - waits} run, ${waits} wait`), h("a", { href: "#/requests" }, "All")),
    requestRows([...open.reverse(), ...state.recent].slice(0, SHOWN), state, now));
  draw(at("told"), h("h2", null, "Notices"), notices(state, now));
}

function guard(state) {
  const one = state.guard;
  if (!one || one.mode === "off" || one.level === "ok") return null;
  return h("p", { class: "notice bad" }, `Memory is short: the guard is at "${one.level}".`);
}

function notices(state, now) {
  const told = state.notices.slice(0, NOTICES).map((one) => h("li", { "data-key": `${one.at} ${one.code}` }, h("span", { class: look(one, state.engines[one.profile]) }, one.text), h("time", { class: "dim" }, clock(one.at))));
  const run = state.measuring && now - state.measuring.at < SILENT_S ? state.measuring : null;
  const measured = run ? [h("li", { "data-key": "bench" }, h("span", null, `A run measures ${run.arm}: ${run.done} of ${run.cells} cells${known(run.left_s) ? `, about ${span(run.left_s)} left` : ""}`))] : [];
  const problems = state.problems.slice(0, 3).map((text) => h("li", { "data-key": text }, h("span", { class: "warn" }, text)));
  const list = [...measured, ...problems, ...told];
  return list.length ? h("ul", { class: "told" }, list) : empty("Nothing to tell.");
}

function engines(state, now) {
  const open = [state.swap, ...state.swaps_beside].filter(Boolean);
  const order = (one) => (serves(one) ? 0 : one.state === "failed" ? 2 : 1);
  const there = Object.values(state.engines).sort((a, b) => order(a) - order(b) || a.profile.localeCompare(b.profile));
  const cards = there.map((one) => engineCard(one, open.find((swap) => swap.target === one.profile), state, now));
  const coming = open.filter((swap) => !state.engines[swap.target]).map((swap) => h("article", { "data-key": swap.id },
    h("h3", null, swap.target || `Stop of ${swap.evict.join(", ")}`), progress(swap, now), h("div", { class: "acts" }, loadActs(swap))));
  const last = state.swaps[0];
  const failed = last && last.outcome !== "done" && last.target && now - last.ended_at < FAILED_S && !state.engines[last.target] && !state.parked[last.target]
    ? [h("article", { "data-key": last.id }, h("h3", null, last.target, h("span", { class: `state ${last.failure ? "bad" : "dim"}` }, last.failure ? "did not come up" : last.outcome)), last.failure ? failure(last.failure, last.target) : null, h("div", { class: "acts" }, button("Try again", "use", last.target)))] : [];
  const parked = Object.entries(state.parked).filter(([name]) => !state.engines[name]).map(([name, one]) => h("article", { "data-key": `parked ${name}` },
    h("h3", null, name, h("span", { class: "state bad" }, "parked")), failure(one.failure, name), h("div", { class: "acts" }, button("Try again", "use", name), button("Release", "release", name))));
  const all = [...cards, ...coming, ...failed, ...parked];
  return all.length ? all : [empty("No engine runs."), h("a", { class: "button main", href: "#/profiles" }, "Choose a model")];
}

function engineCard(engine, swap, state, now) {
  const profile = state.profiles.find((one) => one.name === engine.profile);
  const sample = state.sample && state.sample.engines[engine.profile];
  const age = sample ? state.sample.at - sample.at : 0;
  const stalls = swap && known(swap.still_since);
  const [word, looks] = stalls ? ["stalled", "warn"] : engineState(engine);
  const live = engine.liveness;
  const halts = live && (live.state === "stuck" || live.state === "silent");
  const since = stalls ? swap.still_since : halts ? live.since : serves(engine) && engine.ready_at ? engine.ready_at : engine.since;
  const name = engine.profile;
  return h("article", { "data-key": name },
    h("h3", null, name, h("span", { class: `state ${looks}` }, `${word} ${span(now - since)}`)),
    h("p", { class: "dim" }, [engine.simulated ? "simulated" : engine.kind, engine.version, engine.nodes.join() === "local" ? null : `on ${engine.nodes.join(", ")}`, profile && known(profile.context) ? `context ${context(profile.context)}` : null].filter(Boolean).join(" · ")),
    halts ? h("p", { class: `notice ${looks}` }, live.why) : null,
    engine.failure ? failure(engine.failure, name) : null,
    swap ? progress(swap, now) : null,
    serves(engine) ? h("div", { class: age > STALE_S ? "stale" : null }, age > STALE_S ? h("p", { class: "warn" }, `Its figures are ${span(age)} old.`) : null, figures(sample)) : null,
    h("div", { class: "acts" },
      swap ? loadActs(swap) : null,
      serves(engine) ? h("a", { class: "button", href: `#/try/${encodeURIComponent(name)}` }, "Try out") : null,
      h("a", { class: "button", href: `#/logs/${encodeURIComponent(name)}` }, "Log"),
      engine.state === "failed" ? button("Try again", "use", name) : null,
      serves(engine) ? button("Stop", "stop", name) : null));
}

function figures(sample) {
  const value = (name, show) => {
    const told = figure(sample, name);
    return told.estimated && known(told.value) ? `~${show(told.value)}` : show(told.value);
  };
  return facts([
    ["Decode", value("decode_tok_s", rate), "tok/s"], ["Each", value("decode_each_tok_s", rate), "tok/s"],
    ["Prompt", value("prompt_tok_s", rate), "tok/s"], ["TTFT", value("ttft_p50_s", seconds), "s"],
    ["Prefix hits", value("prefix_hit", share), "%"], ["KV in use", value("kv_used", share), "%"],
    ["Accepts", value("acceptance_length", (one) => round(one, 2)), "per step"], ["Running", value("running", round)],
  ]);
}

function failure(one, name) {
  const hint = one.hint ? ` ${one.hint.replaceAll("{profile}", name)}` : "";
  const tail = one.log_tail.length ? h("details", null, h("summary", null, "Last lines of its log"), h("pre", { class: "tail" }, one.log_tail.join("\n"))) : null;
  return [h("p", { class: "notice bad" }, `${one.message}${hint}`), tail];
}

const loadActs = (swap) => [known(swap.still_since) ? button("Keep waiting", "keep-load", swap.target) : null, button("Cancel the load", "cancel-loads")];

function progress(swap, now) {
  const past = (at) => now - at;
  const left = known(swap.eta_s) ? swap.eta_s - past(swap.eta_at) : null;
  const low = known(swap.eta_low_s) ? ` (${span(swap.eta_low_s - past(swap.eta_at))} to ${span(swap.eta_high_s - past(swap.eta_at))})` : "";
  const still = known(swap.still_since);
  const phase = PHASES.indexOf(swap.phase);
  const detail = swap.progress && (swap.progress.detail || swap.progress.stage);
  const ended = (swap.start ? swap.start.stages : []).map((step) => `${step.name} ${span(step.s)}`).join(", ");
  const told = [swap.start && swap.start.first_on_image ? "First start on this image." : "", ended ? `After ${ended}.` : ""].join(" ").trim();
  return [
    h("div", { class: "line" }, h("span", null, `Step ${phase + 1} of ${PHASES.length}: ${swap.phase}`, detail ? h("span", { class: "dim" }, ` ${detail}`) : null), h("span", { class: "dim" }, span(past(swap.started_at)))),
    h("progress", { max: 1, value: known(swap.fraction) ? swap.fraction : null, "aria-label": `Load of ${swap.target}` }),
    known(left) ? h("p", null, left > 0 ? `about ${span(left)} left${low}` : "longer than usual") : h("p", { class: "dim" }, "The time left is unknown: it has no earlier load here."),
    told ? h("p", { class: "dim" }, told) : null,
    swap.waits_for ? h("p", { class: "dim" }, `Waits for ${swap.waits_for}.`) : null,
    still ? h("p", { class: "notice" }, `No progress for ${span(past(swap.still_since))}.${known(swap.gives_up_at) ? ` It ends in ${span(swap.gives_up_at - now)} unless it moves.` : ""}`) : null,
  ];
}
