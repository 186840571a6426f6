/* The frame of the page: which view is shown, the link and the key, and what is told aside. */

import { offerOrders } from "./dialog.js";
import { at, h } from "./dom.js";
import * as now from "./now.js";
import { Feed, key, onRefused, reason } from "./state.js";
import { requestDetails } from "./details.js";
import { clock } from "./words.js";

const VIEWS = {
  now: async () => now, try: () => import("./tryout.js"), requests: () => import("./requests.js"), profiles: () => import("./profiles.js"),
  history: () => import("./history.js"), logs: () => import("./logs.js"), box: () => import("./box.js"),
};
const DRAW_MS = 200;
const DRAW_SHARE = 10; // of the time at most a tenth goes into drawing: a list of 500 models takes 0.2 s each time
const TOLD_MS = 8000;
const TOLD_AT_ONCE = 3; // the newest of those that came while nobody looked

let view = null;
let shown = "";
let wanted = false;
let took_ms = 0;
let told = null;

const app = {
  get state() { return feed.state; },
  get now() { return Date.now() / 1000 + feed.ahead_s; },
  go(name, ...rest) { location.hash = `#/${[name, ...rest.map(encodeURIComponent)].join("/")}`; },
  /* Carry an order out that needs no plan; a failure is told aside. */
  async order(act) {
    try {
      return await act();
    } catch (error) {
      say(reason(error), "bad");
      return null;
    }
  },
  say,
};

function say(text, look) {
  const made = h("p", { class: look }, text);
  at("toasts").append(made);
  setTimeout(() => made.remove(), TOLD_MS);
}

/* Open the view that the address names. */
async function route() {
  if (location.hash && !location.hash.startsWith("#/")) return;
  const [name, ...rest] = location.hash.slice(2).split("/");
  const chosen = VIEWS[name] ? name : "now";
  const here = [chosen, ...rest].join("/");
  if (!feed.state || here === shown) return;
  const first = !view;
  shown = here;
  const next = await VIEWS[chosen]().catch(() => null);
  if (here !== shown) return;
  if (!next) { // its file did not come: the next drawing asks for it again
    shown = "";
    return;
  }
  if (view && view.close) view.close();
  view = next;
  for (const one of at("nav").children) {
    if (one.getAttribute("href") === `#/${chosen}`) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  const place = h("div", { class: `view view-${chosen}` });
  at("view").replaceChildren(place);
  view.open(place, app, rest.map(decodeURIComponent).join("/"));
  scrollTo(0, 0);
  if (!first && !place.contains(document.activeElement)) at("main").focus({ preventScroll: true });
  draw();
}

function linked(word, error) {
  const seen = feed.at ? `, as of ${clock(feed.at)}` : "";
  at("link").textContent = { connecting: "connecting …", live: "live", lost: `link lost${seen}`, refused: "no access" }[word];
  at("link").className = word;
  at("view").classList.toggle("stale", word !== "live");
  if (word === "live") {
    at("key-form").hidden = true;
    at("view").hidden = at("nav").hidden = at("switch").hidden = false;
    if (view && view.again) view.again(); // what the feed does not tell is read again after a lost link
  }
  if (word !== "refused") return;
  at("view").hidden = at("nav").hidden = at("switch").hidden = true;
  at("dialog").close();
  at("key-form").hidden = false;
  at("key-why").textContent = key.get() ? error.message : "This gateway needs a key.";
  key.forget();
  at("key").focus();
}

function changed() {
  if (wanted) return;
  wanted = true;
  setTimeout(() => requestAnimationFrame(draw), Math.max(DRAW_MS, took_ms * DRAW_SHARE));
}

function draw() {
  wanted = false;
  const state = feed.state;
  at("host").textContent = state.daemon.host;
  document.title = `${view ? `${view.title} · ` : ""}${state.daemon.host} · sparkdash`;
  at("simulated").hidden = !state.daemon.simulated;
  tellNotices(state);
  if (!shown) route();
  if (!view) return;
  const began = performance.now();
  view.show(state, app.now);
  took_ms = performance.now() - began;
}

/* Tell new notices aside; those that were there when the page opened are listed only. */
function tellNotices(state) {
  const before = told;
  told = state.notices.length ? state.notices[0].at : 0;
  if (before === null) return;
  for (const one of state.notices.filter((notice) => notice.at > before).slice(0, TOLD_AT_ONCE).reverse()) say(one.text, one.level === "info" ? "" : "warn");
}

const feed = new Feed(changed, linked);
onRefused(() => feed.abort && feed.abort.abort()); // it comes back, is refused, and asks for the key
offerOrders(app);
requestDetails(app);
addEventListener("hashchange", route);
at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key.set(at("key").value.trim());
  at("key").value = "";
  at("key-form").hidden = true; // a second Enter would begin a second feed
  linked("connecting");
  feed.run();
});
setInterval(() => feed.state && !document.hidden && changed(), 1000);
feed.run();
