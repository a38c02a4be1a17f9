// SPDX-License-Identifier: Apache-2.0
// Elements of the page. Names of the machine become text nodes and attributes only: there is no innerHTML.

const $ = (id) => document.getElementById(id);

function el(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) name in e ? e[name] = value : e.setAttribute(name, value);
  e.append(...children.filter((c) => c != null));
  return e;
}

function svg(tag, attributes = {}, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  if (text != null) e.textContent = text;
  return e;
}

const sumOf = (list, of) => list.reduce((sum, v) => sum + (of(v) || 0), 0);

// redraw replaces the children of an element if the key, a text of all that they show, has changed. The focus stays on
// the child with the same data-key.
const drawn = new Map();
function redraw(at, key, children) {
  if (drawn.get(at) === key) return;
  drawn.set(at, key);
  const focused = at.contains(document.activeElement) ? document.activeElement.dataset.key ?? "" : null;
  at.replaceChildren(...children());
  if (focused == null) return;
  const keyed = [...at.querySelectorAll("[data-key]")];
  (keyed.find((e) => e.dataset.key === focused) ?? keyed[0])?.focus({preventScroll: true});
}

// choice draws a group of buttons, and returns the option that is pressed.
const chosen = new Map();
function choice(id, options, first = options[0]) {
  const pressed = options.includes(chosen.get(id)) ? chosen.get(id) : first;
  redraw($(id), [...options, pressed].join("\n"), () => (options.length < 2 ? [] : options).map((o) => el("button", {
    type: "button", ariaPressed: String(o === pressed), "data-key": o, onclick: () => { chosen.set(id, o); draw(); },
  }, o)));
  return pressed;
}

// sentence shows parts of text. A part in an array is emphasized.
function sentence(...parts) {
  redraw($("verdict"), parts.join("\n"), () => parts.map((p) => Array.isArray(p) ? el("b", {}, p[0]) : p));
}

// tiles shows figures: a label, a value and an explanation each. Figures that are not available are left out.
function tiles(...list) {
  const shown = list.filter((t) => t && t[1]);
  redraw($("tiles"), shown.join("\n"), () => shown.map(([label, value, explanation]) => el("li", {},
    el("div", {className: "k"}, label), el("div", {className: "v"}, value), el("div", {className: "s"}, explanation))));
}

// quality shows how the figures came to be. A zone has a name, a source, an error (0.2 for 20 %) and the zone that
// contains it, if its energy is not added.
const origins = new Map([["modeled", "estimated"], ["", "of unknown origin"]]);
function quality(zones, notes) {
  redraw($("zones"), JSON.stringify(zones), () => zones.map(({name, source = "", error, besides}) => el("span", {
    className: "chip " + source,
  }, `${name}: ${origins.get(source) ?? source}${error ? " ±" + percent(error) : ""}` +
    (besides ? `, not added: overlaps with ${besides}` : ""))));
  redraw($("notes"), notes.join("\n"), () => notes.map((n) => el("li", {}, n)));
}

// heading sets the title of the document and of the page, and the text at its top right.
function heading(title, text, state, className) {
  document.title = title;
  $("title").textContent = text;
  status(state, className);
}
function status(text, className = "") {
  if ($("state").textContent !== text) $("state").textContent = text;
  $("state").className = className;
}
function warn(text) {
  if ($("alert").textContent !== text) $("alert").textContent = text;
  $("alert").hidden = !text;
}

// draw draws the whole page. The last file of the page sets it.
let draw = () => {}, resized;
addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(() => draw(), 100); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) draw(); });
