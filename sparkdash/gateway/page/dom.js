/* Elements, and bringing a freshly drawn tree onto the page so that focus, selection and clicks survive.
   Rule: text from outside is only ever put in as text. */

export const at = (id) => document.getElementById(id);

export function h(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") Object.assign(made.style, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return made;
}

/* Make the children of `place` look like `children`. Rows that have a `data-key` keep their element when others come
   or go; what is marked `data-own` belongs to its view and is left alone. */
export function draw(place, ...children) {
  sync(place, h("div", null, ...children));
}

const key = (node) => node.dataset && node.dataset.key;

function sync(old, fresh) {
  const wanted = [...fresh.childNodes];
  const keyed = new Map([...old.childNodes].filter(key).map((node) => [key(node), node]));
  wanted.forEach((node, i) => {
    let there = old.childNodes[i];
    const kept = key(node) && keyed.get(key(node));
    if (kept && kept !== there) {
      old.insertBefore(kept, there || null);
      there = kept;
    }
    if (!there) old.append(node);
    else if (key(there) !== key(node)) old.insertBefore(node, there);
    else if (there.nodeName !== node.nodeName) there.replaceWith(node);
    else if (node.nodeType === Node.TEXT_NODE) { if (there.data !== node.data) there.data = node.data; }
    else if (!there.hasAttribute("data-own")) {
      attributes(there, node);
      sync(there, node);
    }
  });
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}

function attributes(old, fresh) {
  for (const { name } of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) === value) continue;
    if (name === "style") old.style.cssText = value; // the policy forbids the attribute, not its text
    else old.setAttribute(name, value);
  }
}

/* What a click on an element with `data-do` does: its function gets `data-of` and the element. */
const acts = {};

export function on(name, act) {
  acts[name] = act;
}

document.addEventListener("click", (event) => {
  const found = event.target.closest("[data-do]");
  if (found && acts[found.dataset.do]) acts[found.dataset.do](found.dataset.of, found);
});

export const button = (label, name, of, look) => h("button", { type: "button", "data-do": name, "data-of": of, class: look }, label);
export const facts = (pairs) => h("dl", { class: "facts" }, pairs.map(([name, value, unit]) => h("div", null,
  h("dt", null, name), h("dd", null, value, unit && value !== "-" ? h("small", null, ` ${unit}`) : null))));
export const empty = (text) => h("p", { class: "dim" }, text);
