/* The one dialog: what an order would do, and the order; or the details of something. */

import { at, button, draw, h, on } from "./dom.js";
import { ask, named, reason } from "./state.js";
import { span, known } from "./words.js";

let order = null;
let subject = 0;

/* Show `body` under `title`. `go` carries the order out, whose button says `label`; without it there is no button. */
export function propose(title, body, label, go, look = "main") {
  subject += 1;
  order = go || null;
  at("dialog-title").textContent = title;
  draw(at("dialog-body"), body);
  draw(at("dialog-acts"), button(go ? "Cancel" : "Close", "close-dialog"), go ? button(label, "confirm", "", look) : null);
  at("dialog-error").textContent = "";
  if (!at("dialog").open) at("dialog").showModal();
  at("dialog").scrollTop = 0; // the focus is on its first button, at the end of a long body
  return subject;
}

on("close-dialog", () => at("dialog").close());
on("confirm", async (_of, pressed) => {
  const asked = subject;
  pressed.disabled = true;
  at("dialog-error").textContent = "";
  try {
    await order();
    if (asked === subject) at("dialog").close();
  } catch (error) {
    if (asked === subject) at("dialog-error").textContent = reason(error);
  }
  pressed.disabled = false;
});
at("dialog").addEventListener("click", (event) => event.target === at("dialog") && at("dialog").close());

/* Say in sentences what using a profile would do. */
export function planText(plan, state) {
  const waits = Object.values(state.requests).filter((one) => plan.evict.includes(one.profile)).length;
  const stops = plan.evict.length ? `It stops ${plan.evict.join(", ")}${waits ? `; ${waits === 1 ? "1 request ends" : `${waits} requests end`} first` : ""}.` : "Nothing is stopped.";
  const takes = known(plan.expected_s) && plan.expected_s > 0 ? `It takes about ${span(plan.expected_s)}.` : "";
  return [plan.fits === false ? "" : stops, plan.held || plan.verdict, takes].filter(Boolean).join(" ");
}

/* The three orders about a profile, each after its plan. */
export function offerOrders(app) {
  on("use", async (name) => {
    const asked = propose(`Switch to ${name}`, h("p", { class: "dim" }, "Asking what it takes …"));
    try {
      const plan = await ask(`/api/plan/${named(name)}`);
      if (asked !== subject || !at("dialog").open) return;
      const can = plan.fits !== false && !known(plan.held);
      propose(`Switch to ${name}`, h("p", { class: can ? null : "notice bad" }, planText(plan, app.state)), "Switch", can && (async () => {
        await ask("/api/use", { profile: name });
        app.go("now");
      }));
    } catch (error) {
      if (asked === subject) propose(`Switch to ${name}`, h("p", { class: "notice bad" }, reason(error)));
    }
  });
  on("stop", (name) => {
    const open = Object.values(app.state.requests).filter((one) => one.profile === name).length;
    const text = open ? `${open} of its requests are open; they may end first.` : "No request uses it now.";
    propose(`Stop ${name}`, h("p", null, text), "Stop", () => ask("/api/stop", { profile: name, wait: false }), "danger");
  });
  on("cancel-loads", () => {
    const open = [app.state.swap, ...app.state.swaps_beside].filter(Boolean);
    const names = open.map((one) => one.target || `the stop of ${one.evict.join(", ")}`);
    propose("Cancel the load", h("p", null, `This cancels ${names.join(" and ")}.`), "Cancel the load", () => ask("/api/cancel", {}), "danger");
  });
  on("keep-load", async (name) => await app.order(() => ask("/api/extend-load", { profile: name })) && app.say(`${name} may go on standing still.`));
  on("release", (name) => app.order(() => ask("/api/release", { profile: name })));
}
