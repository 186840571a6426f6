/* Charts: a line of means over a band, in the colours of the page. */

import { h } from "./dom.js";
import { read } from "./state.js";
import { clock, day, known } from "./words.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/* The library comes with the first chart: nothing before it waits for it. */
let library = null;

function loadLibrary() {
  library ??= new Promise((done) => {
    const script = h("script", { src: "/ui/uplot.js" });
    script.addEventListener("load", done);
    document.head.append(script);
  });
  return library;
}

/* A value between gaps has no line: it is drawn as a point. */
const lone = (plot, series) => plot.data[series].flatMap((value, i, all) => (known(value) && !known(all[i - 1]) && !known(all[i + 1]) ? [i] : []));

/* A plot that follows its place's size and the colour scheme. `lines`: further series as { label, look, dash, fill }. */
export class Plot {
  constructor(place, lines, { bands = [], figure = (value) => String(value) } = {}) {
    Object.assign(this, { place, lines, bands, figure, plot: null, data: [[]], range: [0, 1], closed: false });
    this.watch = new ResizeObserver(() => this.plot && this.plot.setSize(this.size()));
    this.watch.observe(place);
    this.recolour = () => this.rebuild();
    this.scheme = matchMedia("(prefers-color-scheme: light)");
    this.scheme.addEventListener("change", this.recolour);
  }

  size() {
    return { width: Math.max(100, this.place.clientWidth), height: Math.max(80, this.place.clientHeight) };
  }

  show(data, min, max) {
    this.data = data;
    this.range = [min, max];
    if (!globalThis.uPlot) {
      loadLibrary().then(() => this.closed || this.show(this.data, ...this.range));
      return;
    }
    if (!this.plot) this.plot = this.build();
    this.plot.setData(data, false);
    this.plot.setScale("x", { min, max });
  }

  rebuild() {
    if (!this.plot) return;
    this.plot.destroy();
    this.plot = null;
    this.show(this.data, ...this.range);
  }

  close() {
    this.closed = true;
    this.watch.disconnect();
    this.scheme.removeEventListener("change", this.recolour);
    if (this.plot) this.plot.destroy();
  }

  build() {
    const axis = { stroke: colour("dim"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const long = this.range[1] - this.range[0] > 86400 * 1.5;
    const moment = (at) => (long ? day(new Date(at * 1000)) : clock(at, { secs: at % 60 !== 0 }));
    return new uPlot({
      ...this.size(),
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false } },
      scales: { x: { time: true, auto: false }, y: { range: (_plot, _low, high) => [0, known(high) && high > 0 ? high * 1.15 : 1] } },
      axes: [{ ...axis, space: 80, size: 28, grid: { show: false }, values: (_plot, times) => times.map(moment) },
        { ...axis, size: 52, space: 34, values: (_plot, values) => values.map(this.figure) }],
      bands: this.bands.map((series) => ({ series, fill: `${colour("accent")}26` })),
      series: [{}, ...this.lines.map((line) => ({
        stroke: line.look ? colour(line.look) : "transparent", width: line.width || 1.5, dash: line.dash,
        fill: line.fill ? `${colour(line.look)}22` : undefined, spanGaps: false, points: { show: false, filter: line.look ? lone : null, fill: colour(line.look), size: 4 },
      }))],
    }, this.data, this.place);
  }
}

export const WINDOWS = { "1m": 60, "10m": 600, "1h": 3600, "1d": 86400 };
const LIVE_S = 660; // the page's own samples
const RAW_S = 600; // longer windows show recorded means alone
const RECALL_S = 20;

/* The decode rate of the whole box: what was recorded, then the page's own samples. */
export class RateChart {
  constructor() {
    Object.assign(this, { live: [], past: [], window: "10m", plot: null, asked: 0, recalled: 0 });
  }

  open(place) {
    this.plot = new Plot(place, [{ look: "accent", fill: true }]);
    this.recall();
  }

  close() {
    if (this.plot) this.plot.close();
    this.plot = null;
  }

  add(time, value) {
    const last = this.live[this.live.length - 1];
    if (last && time <= last[0]) return;
    this.live.push([time, value]);
    while (this.live[0][0] < time - LIVE_S) this.live.shift();
    this.draw(time);
  }

  choose(window) {
    this.window = window;
    return this.recall();
  }

  /* Read the recorded past of the window; a daemon that records nothing leaves the page's own samples. */
  async recall() {
    const seconds = WINDOWS[this.window];
    const number = ++this.asked;
    this.recalled = Date.now() / 1000;
    const figure = "decode_tok_s";
    const told = await (seconds <= RAW_S
      ? read("/api/history/recent", { figure, seconds })
      : read("/api/history/series", { figure, points: 300, since: this.recalled - seconds })).catch(() => null);
    if (number !== this.asked) return;
    const series = told && told.series ? told.series.find((one) => one.profile === "") : told;
    const time = (i) => (series.start ? series.start[i] : told.begin + i * told.step_s);
    this.past = series && series.mean ? series.mean.map((mean, i) => [time(i), mean]) : [];
    this.draw(Date.now() / 1000);
  }

  points(now) {
    const since = now - WINDOWS[this.window];
    if (WINDOWS[this.window] > RAW_S && this.past.length) return this.past.filter((point) => point[0] >= since);
    const first = this.live.length ? this.live[0][0] : Infinity;
    return [...this.past.filter((point) => point[0] < first), ...this.live].filter((point) => point[0] >= since);
  }

  draw(now) {
    if (!this.plot) return;
    if (WINDOWS[this.window] > RAW_S && now - this.recalled > RECALL_S) this.recall();
    const points = this.points(now);
    this.plot.show([points.map((point) => point[0]), points.map((point) => point[1])], now - WINDOWS[this.window], now);
  }
}
