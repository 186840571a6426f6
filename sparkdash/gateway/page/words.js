/* Figures and states as text. Unknown is "-". */

export const DASH = "-";
export const GIB = 2 ** 30;
export const known = (value) => value !== null && value !== undefined;
export const round = (value, digits = 0) => (known(value) ? value.toFixed(digits) : DASH);
export const share = (value) => (known(value) ? String(Math.round(value * 100)) : DASH);
export const gib = (bytes) => round(known(bytes) ? bytes / GIB : null, 1);
export const rate = (value) => round(value, known(value) && value > 0 && value < 100 ? 1 : 0);
export const count = (value) => (known(value) ? value.toLocaleString("en-US").replaceAll(",", "\u202f") : DASH);
export const seconds = (value) => round(value, known(value) && value < 10 ? 2 : 1);
/* A context length as vendors write it: 128K for 131072, 128k for 128000. */
export const context = (tokens) => (!known(tokens) ? DASH : tokens % 1000 === 0 ? `${tokens / 1000}k` : tokens >= 1024 ? `${Math.round(tokens / 1024)}K` : String(tokens));
export const canRun = (profile, state) => !known(profile.cannot_run) && Math.min(profile.nodes, ...Object.keys(profile.fewer)) <= 1 + Object.keys(state.nodes).length;
export const withUnit = (text, unit) => (text === DASH ? DASH : `${text} ${unit}`);

export function span(value) {
  if (!known(value)) return DASH;
  const whole = Math.max(0, Math.round(value));
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${two(Math.floor((whole % 3600) / 60))}m`;
  return `${Math.floor(whole / 86400)}d${two(Math.floor((whole % 86400) / 3600))}h`;
}

const two = (number) => String(number).padStart(2, "0");

/* A moment in the reader's own time; an older one than a day has its date. */
export function clock(at, { secs = true } = {}) {
  if (!known(at)) return DASH;
  const time = new Date(at * 1000);
  const told = `${two(time.getHours())}:${two(time.getMinutes())}${secs ? `:${two(time.getSeconds())}` : ""}`;
  return Math.abs(Date.now() / 1000 - at) < 86400 ? told : `${day(time)} ${told}`;
}

export const day = (time) => `${time.getDate()} ${time.toLocaleString("en", { month: "short" })}`;

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return !sorted.length ? null : sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

const GATEWAY = { decode_tok_s: "decode_tok_s", decode_each_tok_s: "decode_each_tok_s", prompt_tok_s: "prompt_tok_s",
  ttft_p50_s: "ttft_p50_s", ttft_p95_s: "ttft_p95_s", running: "in_flight" };
const TIMED = ["ttft_p50_s", "ttft_p95_s"];
export const STALE_S = 3; // an older figure is in no sum

/* The engine's own figure, else the gateway's estimate, which is marked. First tokens are timed by the gateway: an
   engine's own are read off coarse buckets. */
export function figure(sample, name) {
  const own = sample ? sample.values[name] : null;
  const other = sample && sample.gateway && GATEWAY[name] ? sample.gateway[GATEWAY[name]] : null;
  const timed = TIMED.includes(name);
  if (known(other) && (timed || !known(own))) return { value: other, estimated: !timed };
  return { value: known(own) ? own : null, estimated: timed && known(own) };
}

export function decodeOfBox(sample) {
  const fresh = Object.values((sample && sample.engines) || {}).filter((one) => sample.at - one.at <= STALE_S);
  const told = fresh.map((one) => figure(one, "decode_tok_s")).filter((one) => known(one.value));
  if (!told.length) return { value: null, estimated: false };
  return { value: told.reduce((sum, one) => sum + one.value, 0), estimated: told.some((one) => one.estimated) };
}

export const serves = (engine) => Boolean(engine) && (engine.state === "ready" || engine.state === "draining");

/* An engine's state as [word, look]. */
export function engineState(engine) {
  const live = engine.liveness && engine.liveness.state;
  if (live === "stuck") return ["stuck", "bad"];
  if (live === "silent") return ["silent", "warn"];
  if (engine.state === "failed") return ["failed", "bad"];
  return serves(engine) ? [engine.state === "ready" ? "serves" : "drains", "good"] : [engine.state, "warn"];
}

const WORDS = { prefill: "prefill", streaming: "decodes", gone: "client left" };

/* What a request waits for, in the words of the terminal: the load's time left, others' use at the longest, or its place. */
function waits(request, state, now) {
  const swap = [state.swap, ...state.swaps_beside].find((one) => one && [one.target, "auto"].includes(request.profile));
  const left = swap && known(swap.eta_s) ? swap.eta_s - (now - swap.eta_at) : 0;
  if (swap) return known(swap.still_since) ? ": stalled" : left > 0 ? ` ~${span(left)}` : ": swap";
  return known(request.held_until) ? ` <${span(request.held_until - now)}` : request.position ? ` #${request.position}` : "";
}

export function requestState(request, state, now) {
  if (request.state === "waiting") return [`waits${waits(request, state, now)}`, "warn"];
  if (request.state === "failed") return [request.error ? request.error.replaceAll("_", " ") : String(request.status || "failed"), "bad"];
  if (request.state === "done") return [request.finish_reason || "done", "dim"];
  return [WORDS[request.state] || request.state, request.state === "gone" ? "dim" : "good"];
}

export const isOpen = (request) => !known(request.finished_at);
