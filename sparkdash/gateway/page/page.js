"use strict";
/* The page: draws the state, and switches profiles.
   Rule: text from outside is only ever put in as text. Unknown figures are "-". */

const GIB = 2 ** 30;
const WINDOWS = { "1m": 60, "10m": 600, "1h": 3600, "1d": 86400 };
const LIVE_S = 660; // the page's own samples
const RAW_S = 600; // longer windows show recorded means alone
const RECALL_S = 20;
const DASH = "-";
const SHOWN_REQUESTS = 8;

const at = (id) => document.getElementById(id);
const known = (value) => value !== null && value !== undefined;
const round = (value, digits = 0) => (known(value) ? value.toFixed(digits) : DASH);
const share = (value) => (known(value) ? `${Math.round(value * 100)} %` : DASH);
const gib = (bytes) => (known(bytes) ? `${(bytes / GIB).toFixed(1)} GiB` : DASH);
const rate = (value) => round(value, known(value) && value > 0 && value < 100 ? 1 : 0);

function span(seconds) {
  if (!known(seconds)) return DASH;
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${String(whole % 60).padStart(2, "0")}s`;
  return `${Math.floor(whole / 3600)}h${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")}m`;
}

function element(tag, text, look) {
  const made = document.createElement(tag);
  if (known(text)) made.textContent = text;
  if (look) made.className = look;
  return made;
}

/* A moment on the axis, in the phone's own time. */
function clock(seconds) {
  const time = new Date(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  if (time.getSeconds()) return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
  return `${two(time.getHours())}:${two(time.getMinutes())}`;
}

function row(...children) {
  const made = element("div", null, "row");
  made.append(...children);
  return made;
}

/* --- figures ------------------------------------------------------------------------------------------------- */

const GATEWAY = { decode_tok_s: "decode_tok_s", prompt_tok_s: "prompt_tok_s", ttft_p50_s: "ttft_p50_s", running: "in_flight" };

const TIMED = "ttft_p50_s";
const STALE_S = 3; /* an older figure is in no sum */

/* The engine's own figure, else the gateway's estimate, which is marked. The first token is timed by the gateway; an
   engine's own is read off coarse buckets. */
function figure(sample, name) {
  const own = sample && sample.values[name];
  const other = sample && sample.gateway && GATEWAY[name] ? sample.gateway[GATEWAY[name]] : null;
  if (known(other) && (name === TIMED || !known(own))) return { value: other, estimated: name !== TIMED };
  return { value: known(own) ? own : null, estimated: name === TIMED && known(own) };
}

function decodeOfBox(sample) {
  const fresh = Object.values((sample && sample.engines) || {}).filter((one) => sample.at - one.at <= STALE_S);
  const told = fresh.map((one) => figure(one, "decode_tok_s"));
  const with_value = told.filter((one) => known(one.value));
  if (!with_value.length) return { value: null, estimated: false };
  return { value: with_value.reduce((sum, one) => sum + one.value, 0), estimated: with_value.some((one) => one.estimated) };
}

/* --- chart --------------------------------------------------------------------------------------------------- */

class Chart {
  constructor(place) {
    this.place = place;
    this.live = [];
    this.past = [];
    this.window = "10m";
    this.plot = null;
    this.asked = 0;
    this.recalled = 0;
    matchMedia("(prefers-color-scheme: light)").addEventListener("change", () => this.rebuild());
    new ResizeObserver(() => this.plot && this.plot.setSize(this.size())).observe(place);
  }

  size() {
    return { width: Math.max(100, this.place.clientWidth), height: this.place.clientHeight };
  }

  add(time, value) {
    const last = this.live[this.live.length - 1];
    if (last && time <= last[0]) return;
    this.live.push([time, value]);
    while (this.live[0][0] < time - LIVE_S) this.live.shift();
    this.draw(time);
  }

  async choose(window) {
    this.window = window;
    await this.recall();
  }

  /* Read the recorded past of the window; a daemon that records nothing leaves the page's own samples. */
  async recall() {
    const seconds = WINDOWS[this.window];
    const number = ++this.asked;
    this.recalled = Date.now() / 1000;
    const query = seconds <= RAW_S
      ? `recent?figure=decode_tok_s&seconds=${seconds}`
      : `series?figure=decode_tok_s&points=300&since=${Date.now() / 1000 - seconds}`;
    const told = await ask(`/api/history/${query}`).catch(() => null);
    if (number !== this.asked) return;
    const series = told && told.series ? told.series.find((one) => one.profile === "") : told;
    const time = (i) => (series.start ? series.start[i] : told.begin + i * told.step_s);
    this.past = series && series.mean ? series.mean.map((mean, i) => [time(i), mean]) : [];
    this.draw(Date.now() / 1000);
  }

  points(now) {
    const since = now - WINDOWS[this.window];
    if (WINDOWS[this.window] > RAW_S && this.past.length) {
      const means = this.past.filter((point) => point[0] >= since);
      return [means.map((point) => point[0]), means.map((point) => point[1])];
    }
    const first = this.live.length ? this.live[0][0] : Infinity;
    const all = [...this.past.filter((point) => point[0] < first), ...this.live].filter((point) => point[0] >= since);
    return [all.map((point) => point[0]), all.map((point) => point[1])];
  }

  draw(now) {
    if (WINDOWS[this.window] > RAW_S && now - this.recalled > RECALL_S) this.recall();
    const data = this.points(now);
    if (!this.plot) this.plot = this.build(data);
    this.plot.setData(data, false);
    this.plot.setScale("x", { min: now - WINDOWS[this.window], max: now });
  }

  rebuild() {
    if (!this.plot) return;
    this.plot.destroy();
    this.plot = null;
    this.draw(Date.now() / 1000);
  }

  build(data) {
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    const axis = { stroke: colour("dim"), grid: { stroke: colour("frame"), width: 0.5 }, ticks: { show: false }, font: "12px monospace" };
    return new uPlot({
      ...this.size(),
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false } },
      scales: { x: { time: true, auto: false }, y: { range: (_plot, _low, high) => [0, Math.max(10, high * 1.1)] } },
      axes: [{ ...axis, space: 80, size: 28, values: (_plot, times) => times.map(clock) }, { ...axis, size: 44 }],
      series: [{}, { label: "tok/s", stroke: colour("good"), fill: `${colour("good")}33`, width: 1.5, spanGaps: false, points: { show: false } }],
    }, data, this.place);
  }
}

/* --- sections ------------------------------------------------------------------------------------------------ */

function drawEngines(state, now) {
  const engines = Object.values(state.engines).sort((a, b) => a.profile.localeCompare(b.profile));
  const rows = engines.map((engine) => {
    const stuck = engine.liveness && engine.liveness.state === "stuck";
    const serves = engine.state === "ready" || engine.state === "draining";
    const word = stuck ? "stuck" : serves ? "serves" : engine.state;
    const look = stuck || engine.state === "failed" ? "bad" : serves ? "good" : "warn";
    const since = stuck ? engine.liveness.since : serves && engine.ready_at ? engine.ready_at : engine.since;
    return row(element("span", engine.profile, "name"), element("span", `● ${word} ${span(now - since)}`, look));
  });
  at("engines").replaceChildren(...(rows.length ? rows : [element("p", "No engine runs.", "dim")]));
}

function drawSwaps(state, now) {
  const open = [state.swap, ...state.swaps_beside].filter(Boolean);
  at("swaps").replaceChildren(...open.flatMap((swap) => {
    const bar = element("progress");
    bar.max = 1;
    if (known(swap.fraction)) bar.value = swap.fraction;
    const still = known(swap.still_since);
    const left = known(swap.eta_s) ? `${span(swap.eta_s - (now - swap.eta_at))} left` : "";
    const said = still ? `no progress for ${span(now - swap.still_since)}` : [swap.phase, left].filter(Boolean).join(", ");
    const parts = [
      row(element("span", swap.target || `stops ${swap.evict.join(", ")}`, "name"), element("span", span(now - swap.started_at), "dim")),
      bar, element("p", said, still ? "bad" : "dim"),
    ];
    const failed = swap.failure ? [element("p", swap.failure.message, "notice bad")] : [];
    return [...parts, ...failed];
  }));
  const last = !open.length && state.swaps[0];
  if (last && last.outcome === "failed" && now - last.ended_at < 600) {
    const why = last.failure ? last.failure.message : "";
    at("swaps").replaceChildren(element("p", `${last.target}: the start failed. ${why}`, "notice bad"));
  }
}

function drawFigures(state) {
  const sample = state.sample;
  const engines = Object.entries((sample && sample.engines) || {});
  engines.sort((a, b) => (figure(b[1], "decode_tok_s").value || 0) - (figure(a[1], "decode_tok_s").value || 0));
  const first = engines.length ? engines[0][1] : null;
  const value = (name, show) => {
    const told = figure(first, name);
    return (told.estimated ? "~" : "") + show(told.value);
  };
  const gpu = (sample && sample.gpu) || {};
  const pairs = [
    ["prompt", value("prompt_tok_s", (v) => (known(v) ? `${rate(v)} tok/s` : DASH))],
    ["ttft", value("ttft_p50_s", (v) => (known(v) ? `${v.toFixed(2)} s` : DASH))],
    ["prefix", value("prefix_hit", share)],
    ["kv", value("kv_used", share)],
    ["accepts", value("acceptance_length", (v) => (known(v) ? `${v.toFixed(2)} tok` : DASH))],
    ["running", value("running", round)],
    ["gpu", known(gpu.power_w) ? `${round(gpu.power_w)} W` : share(gpu.utilization)],
    ["heat", known(gpu.temperature_c) ? `${round(gpu.temperature_c)} °C` : DASH],
  ];
  at("figures").replaceChildren(...pairs.map(([name, text]) => {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", text));
    return pair;
  }));
}

function drawMemory(state) {
  const memory = state.sample && state.sample.memory;
  at("available").textContent = memory ? `${(memory.available / GIB).toFixed(1)} of ${gib(memory.total)} left` : DASH;
  const guard = state.guard;
  const guards = guard && guard.mode !== "off" && guard.level !== "ok";
  at("guard").hidden = !guards;
  if (guards) at("guard").textContent = `Memory is short: the guard is at "${guard.level}".`;
  if (!memory) return;
  const engines = Object.entries(memory.engines).filter(([, bytes]) => known(bytes)).sort();
  const cache = memory.page_cache || 0;
  const kept = Math.min(memory.reserve, memory.free);
  const named = engines.reduce((sum, [, bytes]) => sum + bytes, 0);
  const parts = [
    ...engines.map(([name, bytes], i) => [name, bytes, i % 2 ? "of-engine even" : "of-engine"]),
    ["other", Math.max(0, memory.total - memory.free - cache - named), "of-other"],
    ["cache", cache, "of-cache"], ["free", memory.free - kept, "of-free"], ["kept", kept, "of-kept"],
  ];
  at("memory-bar").replaceChildren(...parts.map(([name, bytes, look]) => {
    const part = element("div", null, look);
    part.style.flexGrow = bytes / memory.total;
    part.title = `${name} ${gib(bytes)}`;
    return part;
  }));
  const legend = parts.map(([name, bytes]) => `${name} ${(bytes / GIB).toFixed(1)}`);
  at("memory-legend").replaceChildren(...parts.map(([, , look], i) => {
    const entry = element("span", null, "entry");
    const unit = i === parts.length - 1 ? "\u00a0GiB" : ""; // one that stood alone would wrap into a line of its own
    entry.append(element("i", null, look), element("span", legend[i] + unit));
    return entry;
  }));
  at("memory-bar").setAttribute("aria-label", `${legend.join(", ")} GiB`);
}

function drawRequests(state, now) {
  const open = Object.values(state.requests);
  const waits = open.filter((one) => one.state === "waiting").length;
  at("counts").textContent = `${open.length - waits} run, ${waits} wait`;
  const live = (state.sample && state.sample.requests) || {};
  const items = [...open.slice(-SHOWN_REQUESTS).reverse(), ...state.recent].slice(0, SHOWN_REQUESTS).map((one) => {
    const item = element("li");
    const ended = known(one.finished_at);
    const bad = one.state === "failed";
    const word = one.state === "waiting" ? "waits" : one.state === "prefill" ? "prefill" : one.state === "streaming" ? "decodes" : one.state;
    const speed = ended ? one.decode_tok_s : live[one.id] && live[one.id].tok_s;
    item.append(
      element("span", one.client, ended ? "dim" : "name"),
      element("span", `${word} ${span((ended ? one.finished_at : now) - one.started_at)}`, bad ? "bad" : "dim"),
      element("span", known(speed) ? `${rate(speed)} tok/s` : DASH),
    );
    return item;
  });
  at("requests").replaceChildren(...(items.length ? items : [element("li", "No request yet.", "dim")]));
}

/* --- switching ----------------------------------------------------------------------------------------------- */

const sheet = {
  chosen: null,
  drawn: "",

  open() {
    this.clear();
    at("find").value = "";
    this.list(true);
    at("sheet").showModal();
  },

  clear() {
    this.chosen = null;
    at("sheet-title").textContent = "switch to";
    at("plan").hidden = at("confirm").hidden = true;
  },

  list(again = false) {
    const state = feed.state;
    const wanted = at("find").value.trim().toLowerCase();
    const can = state.profiles.filter((one) => !known(one.cannot_run) && one.name.toLowerCase().includes(wanted));
    const mark = JSON.stringify([wanted, can.map((one) => [one.name, state.engines[one.name] && state.engines[one.name].state])]);
    if (!again && mark === this.drawn) return;
    this.drawn = mark;
    at("profiles").replaceChildren(...can.map((one) => {
      const engine = state.engines[one.name];
      const button = element("button");
      const word = engine ? (engine.state === "ready" ? "runs" : engine.state) : gib(one.needs_bytes);
      button.append(row(element("span", one.name, "name"), element("span", word, engine ? "good" : "dim")), element("small", one.about));
      button.addEventListener("click", () => this.choose(one.name));
      const item = element("li");
      item.append(button);
      return item;
    }));
  },

  async choose(name) {
    this.clear();
    this.chosen = name;
    at("sheet-title").textContent = `switch to ${name}`;
    at("plan").textContent = "asking what it takes …";
    at("plan").className = "notice";
    at("plan").hidden = false;
    at("sheet").scrollTop = 0;
    try {
      const plan = await ask(`/api/plan/${encodeURIComponent(name).replaceAll("%2F", "/")}`);
      if (this.chosen !== name) return;
      const waits = Object.values(feed.state.requests).filter((one) => plan.evict.includes(one.profile)).length;
      const stops = plan.evict.length ? `Stops ${plan.evict.join(", ")}${waits ? `; ${waits} of its requests end first` : ""}.` : "Nothing is stopped.";
      const words = [
        plan.fits === false ? "" : stops,
        plan.held || plan.verdict,
        known(plan.expected_s) ? `Takes about ${span(plan.expected_s)}.` : "",
      ];
      at("plan").textContent = words.filter(Boolean).join(" ");
      if (plan.fits === false) at("plan").className = "notice bad";
      at("switch").disabled = plan.fits === false || known(plan.held);
      at("confirm").hidden = false;
    } catch (error) {
      this.refuse(name, error);
    }
  },

  async go() {
    const name = this.chosen;
    at("switch").disabled = true;
    try {
      await ask("/api/use", { profile: name });
      at("sheet").close();
      say(null);
    } catch (error) {
      this.refuse(name, error);
    }
  },

  refuse(name, error) {
    if (this.chosen !== name) return;
    at("plan").textContent = error instanceof Refused ? error.message : "The gateway cannot be reached.";
    at("plan").className = "notice bad";
  },
};

/* --- the whole page ------------------------------------------------------------------------------------------ */

function say(text) {
  at("message").hidden = !text;
  at("message").textContent = text || "";
}

function linked(word, error) {
  at("link").textContent = { live: "● live", lost: "○ link lost", refused: "○ no access" }[word];
  at("link").className = word === "live" ? "live" : "lost";
  at("dashboard").classList.toggle("stale", word !== "live");
  if (word === "live") {
    at("key-form").hidden = true;
    say(null);
    chart.recall();
  }
  if (word !== "refused") return;
  at("dashboard").hidden = at("footer").hidden = true;
  at("key-form").hidden = false;
  at("key-why").textContent = sessionStorage.getItem(KEY) ? error.message : "This gateway needs a key.";
  sessionStorage.removeItem(KEY);
  at("key").focus();
}

let wanted = false;
function changed() {
  if (wanted) return;
  wanted = true;
  setTimeout(() => requestAnimationFrame(draw), 200);
}

function draw() {
  wanted = false;
  const state = feed.state;
  const now = Date.now() / 1000;
  at("dashboard").hidden = at("footer").hidden = false;
  at("host").textContent = state.daemon.host;
  document.title = `${state.daemon.host} · sparkdash`;
  at("simulated").hidden = !state.daemon.simulated;
  const decode = decodeOfBox(state.sample);
  at("decode").textContent = rate(decode.value);
  at("estimated").hidden = !decode.estimated;
  drawEngines(state, now);
  drawSwaps(state, now);
  drawFigures(state);
  drawMemory(state);
  drawRequests(state, now);
  if (at("sheet").open) sheet.list();
  if (state.sample) chart.add(state.sample.at, decode.value);
}

const chart = new Chart(at("chart"));
const feed = new Feed(changed, linked);

for (const name of Object.keys(WINDOWS)) {
  const button = element("button", name);
  button.setAttribute("aria-pressed", String(name === chart.window));
  button.addEventListener("click", () => {
    at("windows").querySelectorAll("button").forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
    chart.choose(name);
  });
  at("windows").append(button);
}
at("open-sheet").addEventListener("click", () => sheet.open());
at("close-sheet").addEventListener("click", () => at("sheet").close());
at("cancel").addEventListener("click", () => sheet.clear());
at("switch").addEventListener("click", () => sheet.go());
at("find").addEventListener("input", () => sheet.list());
at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, at("key").value.trim());
  at("key").value = "";
  feed.run();
});
setInterval(() => { if (feed.state) changed(); }, 1000);
feed.run();
