"use strict";
/* The daemon's state as the feed tells it: a snapshot, then one fact after another.
   Owns: the key of this tab, the link, and how facts change the state. Must not know the page. */

const KEY = "sparkdash-key";
const RETRY_MS = [1000, 2000, 5000, 10000];
const SILENT_MS = 45000; // three missed heartbeats
const HIDDEN_MS = 30000;
const RECENT = 20;

class Refused extends Error {
  constructor(status, body) {
    const error = (body && body.error) || {};
    super(error.message || `The gateway answered ${status}.`); // its hint is part of the message
    this.status = status;
  }
}

function headers(more) {
  const key = sessionStorage.getItem(KEY);
  return key ? { ...more, authorization: `Bearer ${key}` } : { ...more };
}

async function ask(path, body) {
  const options = body === undefined
    ? { headers: headers() }
    : { method: "POST", headers: headers({ "content-type": "application/json" }), body: JSON.stringify(body) };
  const answer = await fetch(path, { ...options, cache: "no-store", credentials: "omit", redirect: "error" });
  const told = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refused(answer.status, told);
  return told;
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
  profiles(state, { profiles }) { state.profiles = profiles; },
  guard(state, { guard }) { state.guard = guard; },
  parked(state, { parked }) { state.parked = parked; },
};

async function untilShown() {
  while (document.hidden) await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
}

class Feed {
  /* `changed(state)` after each event, `linked(word)` with live, lost or refused. */
  constructor(changed, linked) {
    this.changed = changed;
    this.linked = linked;
    this.state = null;
    this.failures = 0;
    this.abort = null;
    this.resting = null;
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
    let timer = setTimeout(() => abort.abort(), SILENT_MS);
    try {
      const answer = await fetch("/api/events", {
        headers: headers({ accept: "text/event-stream" }), signal: abort.signal, cache: "no-store",
        credentials: "omit", redirect: "error",
      });
      if (!answer.ok) throw new Refused(answer.status, await answer.json().catch(() => null));
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let left = "";;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(() => abort.abort(), SILENT_MS);
        const frames = (left + value).split("\n\n");
        left = frames.pop();
        frames.forEach((frame) => this.take(frame));
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
    const told = JSON.parse(data);
    if (name === "event: snapshot") {
      this.state = told;
      this.failures = 0;
      this.linked("live");
    } else if (this.state) {
      const apply = APPLY[told.fact.kind];
      if (apply) apply(this.state, told.fact);
      this.state.at = told.at;
    }
    this.changed(this.state);
  }
}
