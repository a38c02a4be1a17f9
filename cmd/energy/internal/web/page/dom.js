// SPDX-License-Identifier: Apache-2.0
// Elements of the page. Names of the machine become text nodes and attributes only: there is no innerHTML.

const $ = (id) => document.getElementById(id);
function el(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) name in e ? e[name] = value : e.setAttribute(name, value);
  e.append(...children);
  return e;
}
function svg(tag, attributes = {}, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}
const sumOf = (list, of = (v) => v) => list.reduce((sum, v) => sum + (of(v) || 0), 0);

// redraw replaces the children of an element if the key, a text of all that they show, has changed. The focus stays on
// the child with the same data-key.
const drawn = new Map();
function redraw(at, key, children) {
  if (drawn.get(at) === key || at.contains(held)) return;
  drawn.set(at, key);
  const focused = at.contains(document.activeElement) ? document.activeElement.dataset.key ?? "" : null;
  at.replaceChildren(...children());
  if (focused == null) return;
  const keyed = [...at.querySelectorAll("[data-key]")];
  (keyed.find((e) => e.dataset.key === focused) ?? keyed[0])?.focus({preventScroll: true});
}
const write = (id, text) => redraw($(id), text, () => [text]);

// The element under a pressed pointer is not replaced, because its click event would be lost.
let held = null;
addEventListener("pointerdown", (e) => { held = e.button ? null : e.target; });
const release = () => { held = null; setTimeout(() => draw()); };
for (const end of ["pointerup", "pointercancel", "contextmenu", "blur"]) addEventListener(end, release);

// choice draws a group of buttons, and returns the option that is pressed.
const chosen = new Map();
function choice(id, options, first, title = (o) => o) {
  const pressed = [chosen.get(id), first, options[0]].find((o) => options.includes(o));
  const press = (o) => { chosen.set(id, o); draw(); };
  redraw($(id), [...options, pressed].join("\n"), () => options.length < 2 ? [] : options.map((o) => el("button",
    {type: "button", ariaPressed: String(o === pressed), "data-key": o, onclick: () => press(o)}, title(o))));
  return pressed;
}

// heading sets the title of the document and of the page, and the text at its top right.
function heading(title, text, state, bad = false) {
  document.title = title;
  $("main").className = "";
  write("title", text);
  write("state", state);
  $("state").className = bad ? "bad" : "";
}
function warn(text) {
  write("alert", text || "");
  $("alert").hidden = !text;
}

// sentence shows parts of text. A part in an array is emphasized.
function sentence(...parts) {
  const shown = parts.filter(Boolean);
  redraw($("verdict"), shown.join("\n"), () => shown.map((p) => Array.isArray(p) ? el("b", {}, p[0]) : p));
}

// also shows further sentences below.
const also = (lines) => redraw($("also"), lines.join("\n"), () => lines.map((text) => el("li", {}, text)));

// commandLines shows commands above the sentence if they are long or two, on two lines each until all is asked for. It
// returns their names in sentences. Two commands are A and B, or now and base.
function commandLines(commands, sides = ["A", "B"]) {
  const full = commands.map(words), two = full.length > 1, lines = two || full[0].length > 40 ? full : [];
  const lineOf = (text, i) => {
    const code = el("code", {}, text), more = el("button", {type: "button"}, "Show all");
    more.onclick = () => { more.textContent = code.classList.toggle("whole") ? "Show less" : "Show all"; };
    return el("li", {}, ...two ? [swatch(`var(--c${i})`), el("b", {}, sides[i])] : [], code, more);
  };
  redraw($("commands"), lines.join("\n"), () => lines.map(lineOf));
  for (const code of $("commands").querySelectorAll("code:not(.whole)")) {
    code.nextSibling.hidden = code.scrollHeight <= code.clientHeight;
  }
  return two ? sides : lines.length ? ["This command"] : full;
}
function swatch(fill) {
  const e = el("i", {className: "swatch"});
  e.style.setProperty("--fill", fill);
  return e;
}

// tiles shows figures: a label, a value and an explanation each. Figures that are not available are left out.
function tiles(...list) {
  const shown = list.filter((t) => t && t[1]), div = (text) => el("div", {}, text || "\u00a0");
  redraw($("tiles"), shown.join("\n"), () => shown.map((texts) => el("li", {}, ...texts.map(div))));
}

// quality shows the sources and the errors of the figures. A zone has a name, a source, an error (0.2 for
// 20 %), and the zone that contains it if its energy is not added.
function quality(zones, notes) {
  const origin = (source) => source === "modeled" ? "estimated" : source || "of unknown origin";
  const chips = zones.map((z) => `${z.name}: ${origin(z.source)}${z.error ? ` ±${percent(z.error)}` : ""}` +
    (z.besides ? `, not added: overlaps with ${z.besides}` : ""));
  redraw($("zones"), chips.join("\n"), () => chips.map((c, i) => el("li", {className: zones[i].source ?? ""}, c)));
  redraw($("notes"), notes?.join("\n"), () => (notes ?? []).map((n) => el("li", {}, n)));
}

// draw draws the whole page. The last file of the page sets it.
let draw = () => {}, resized;
addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(() => draw(), 100); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) draw(); });
