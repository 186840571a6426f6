/* The daemon's state as the feed tells it: a snapshot, then one fact after another.
   Owns: the key of this tab, the link, all calls, and how facts change the state. Must not know the page. */

const KEY = "sparkdash-key";
const RETRY_MS = [1000, 2000, 5000, 10000];
const SILENT_MS = 45000; // three missed heartbeats
const HIDDEN_MS = 30000;
const RECENT = 50;

export class Refused extends Error {
  constructor(status, body) {
    const error = (body && body.error) || {};
    super(error.message || `The gateway answered ${status}.`); // its hint is part of the message
    this.status = status;
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (secret) => sessionStorage.setItem(KEY, secret),
  forget: () => sessionStorage.removeItem(KEY),
};

/* Called with the error whenever the gateway takes the key no longer. */
let refused = () => {};
export function onRefused(act) {
  refused = act;
}

/* Fetch with the key; with a body it is a POST. The answer is not read yet, so that it may be a stream. */
export async function call(path, body, signal) {
  const headers = key.get() ? { authorization: `Bearer ${key.get()}` } : {};
  const options = body === undefined
    ? { headers }
    : { method: "POST", headers: { ...headers, "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, { ...options, signal, cache: "no-store", credentials: "omit", redirect: "error" });
  if (answer.ok) return answer;
  const error = new Refused(answer.status, await answer.json().catch(() => null));
  if (answer.status === 401) refused(error);
  throw error;
}

/* Objects without a prototype: names of profiles are keys in them, and one may be called "constructor". */
const parse = (text) => JSON.parse(text, (_name, value) => (value && typeof value === "object" && !Array.isArray(value) ? Object.setPrototypeOf(value, null) : value));
export const ask = async (path, body) => parse(await (await call(path, body)).text());
export const read = (path, query) => ask(`${path}?${new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value !== undefined))}`);
export const named = (name) => encodeURIComponent(name).replaceAll("%2F", "/");
export const reason = (error) => (error instanceof Refused ? error.message : "The gateway cannot be reached.");

/* Yield the pieces of a streamed answer, cut at `between`; the rest comes last. */
export async function* pieces(answer, between) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const found = (left + value).split(between);
      left = found.pop();
      yield* found;
    }
    if (left) yield left;
  } finally {
    reader.cancel().catch(() => {});
  }
}

function keep(list, item, same) {
  return [item, ...list.filter((one) => !same(one))].slice(0, RECENT);
}

/* Facts that the page shows. Others, and those of a newer daemon, change nothing here. */
const APPLY = {
  engine(state, { engine }) {
    if (engine.state === "absent") delete state.engines[engine.profile];
    else state.engines[engine.profile] = engine;
  },
  swap(state, { swap }) {
    const open = [state.swap, ...state.swaps_beside].filter((one) => one && one.id !== swap.id);
    if (swap.ended_at === null) open.push(swap);
    else state.swaps = keep(state.swaps, swap, (one) => one.id === swap.id);
    open.sort((a, b) => a.started_at - b.started_at);
    state.swap = open.shift() || null;
    state.swaps_beside = open;
  },
  request(state, { request }) {
    if (["waiting", "prefill", "streaming"].includes(request.state)) state.requests[request.id] = request;
    else {
      delete state.requests[request.id];
      state.recent = keep(state.recent, request, (one) => one.id === request.id);
    }
  },
  sample(state, { sample }) { state.sample = sample; },
  profiles(state, { profiles, problems }) { Object.assign(state, { profiles, problems }); },
  guard(state, { guard }) { state.guard = guard; },
  parked(state, { parked }) { state.parked = parked; },
  measuring(state, { measuring }) { state.measuring = measuring; },
  nodes(state, { nodes }) { state.nodes = nodes; },
  incidents(state, { incidents, repairs }) { Object.assign(state, { incidents, repairs }); },
  notice(state, notice, at) { state.notices = keep(state.notices, { ...notice, at }, () => false); },
};

async function untilShown() {
  while (document.hidden) await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
}

export class Feed {
  /* `changed(state)` after each event, `linked(word)` with live, lost or refused. */
  constructor(changed, linked) {
    this.changed = changed;
    this.linked = linked;
    this.state = null;
    this.failures = 0;
    this.abort = null;
    this.resting = null;
    this.ahead_s = 0; // the box's clock before this one's
    this.at = null; // when something was told last
    /* Nobody looks at a hidden page, and the daemon measures each second for whoever follows it. */
    document.addEventListener("visibilitychange", () => {
      clearTimeout(this.resting);
      if (document.hidden) this.resting = setTimeout(() => this.abort && this.abort.abort(), HIDDEN_MS);
    });
  }

  async run() {
    for (;;) {
      await untilShown();
      try {
        await this.follow();
        this.linked("lost");
      } catch (error) {
        if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
          this.linked("refused", error);
          return;
        }
        this.linked("lost");
      }
      await new Promise((done) => setTimeout(done, RETRY_MS[Math.min(this.failures++, RETRY_MS.length - 1)]));
    }
  }

  async follow() {
    const abort = this.abort = new AbortController();
    let timer = null;
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => abort.abort(), SILENT_MS);
    };
    heard();
    try {
      for await (const frame of pieces(await call("/api/events", undefined, abort.signal), "\n\n")) {
        heard();
        this.take(frame);
      }
    } finally {
      clearTimeout(timer);
      abort.abort();
    }
  }

  take(frame) {
    const lines = frame.split("\n");
    const name = lines.find((line) => line.startsWith("event: "));
    const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
    if (!name || !data) return;
    const told = parse(data);
    this.at = told.at;
    if (name === "event: snapshot") {
      this.state = told;
      this.failures = 0;
      this.linked("live");
    } else if (this.state) {
      const apply = APPLY[told.fact.kind];
      if (apply) apply(this.state, told.fact, told.at);
      this.ahead_s = told.at - Date.now() / 1000;
    }
    this.changed(this.state);
  }
}
