// SPDX-License-Identifier: Apache-2.0
// A tree of energies, whose nodes can be enlarged. A node has an id, a name, a value, children, and a fill if it
// differs from that of its parent. Trees of owners grow to the right: height is energy. Flame graphs grow down: width
// is energy.

const icicle = {path: []};
const node = (name, value, more) => ({id: name, name, value, ...more});
const idleNode = (value) => node("idle", value, {fill: "var(--idle)", idle: true});
const order = (p, q) => Boolean(p.idle) - Boolean(q.idle) || q.value - p.value;
const has = (n, find) => n.name.toLowerCase().includes(find);
const foundIn = (n, find) => has(n, find) ? n.value : sumOf(n.children ?? [], (c) => foundIn(c, find));

// smaller returns the children of a node from the nth on as one node, which can be enlarged like any other.
function smaller(n, from) {
  const children = n.children.toSorted(order).slice(from).filter((c) => !c.idle);
  return node(`${children.length} smaller`, sumOf(children, (c) => c.value),
    {id: "\0" + from, children, fill: "var(--rest)", closed: true});
}
const childOf = (n, id) => id[0] === "\0" ? smaller(n, +id.slice(1)) : n.children.find((c) => c.id === id);

// withoutIdle offers to leave out idle energy, which hides what programs use if there is much of it.
function withoutIdle(name, children, period, title = period ? `Energy of ${duration(period)}` : "Energy") {
  const idleOf = (n) => n.idle ? n.value : sumOf(n.children ?? [], idleOf);
  const root = node(name, sumOf(children, (c) => c.value), {children}), share = idleOf(root) / root.value;
  const strip = (n) => ({...n, value: n.value - idleOf(n), children: n.children?.filter((c) => !c.idle).map(strip)});
  const options = share > 0 && share < 1 ? ["With idle", "Without idle"] : [];
  const drawn = choice("idle", options, options[share > 0.7 ? 1 : 0]) !== "Without idle";
  const idle = drawn ? "percentages include idle" : `idle energy is not drawn, ${percent(share)} of all`;
  const hint = `${title}${share ? "; " + idle : ""}. `;
  return {root: drawn ? root : strip(root), hint};
}

// drawTree draws a tree: its root, whether it is a flame graph, the text of a value, and a hint.
function drawTree({root, flame, text = joules, hint = ""}) {
  const at = $("icicle"), trail = [root], bar = $(flame ? "trees" : "tabs").parentElement;
  const find = $("search").value.toLowerCase();
  if ($("search").parentElement !== bar) bar.append($("search"));
  for (const id of icicle.path) {
    const child = childOf(trail.at(-1), id);
    if (!child?.children?.length) break;
    trail.push(child);
  }
  icicle.path = trail.slice(1).map((n) => n.id);
  $("idle").hidden = flame || !hint || trail.length > 1;
  icicle.go = (path) => { icicle.path = path; drawTree({root, flame, text, hint}); };
  const whole = trail.at(-1), share = (value, of = whole) => percent(value / (of.value || 1));
  const labels = trail.map((n, i) => ` ${text(n.value)}${i ? " " + share(n.value, root) : ""}`);
  redraw($("trail"), trail.map((n, i) => n.name + labels[i]).join("\n"), () => trail.map((n, i) => el("button", {
    type: "button", "data-key": String(i), className: "cut", ariaCurrent: n === whole ? "true" : null,
    onclick: () => icicle.go(icicle.path.slice(0, i)),
  }, n.name, el("small", {}, labels[i]))));

  const cells = layout(whole, flame, at.clientWidth || 900);
  const details = (n) => n.detail ? ", " + n.detail : "";
  const title = (n) => `${n.name}: ${text(n.value)}, ${share(n.value)} of ${whole.name}${details(n)}`;
  icicle.flame = flame;
  at.className = find ? "searching" : "";
  at.style.height = flame ? `${25 * Math.max(0, ...cells.map((c) => c.depth + 1))}px` : `${cells[0]?.whole ?? 0}px`;
  redraw(at, cells.map((c) => [...Object.values(c.box), title(c.n)]).join("\n") + find, () => cells.map((c) => {
    const found = find && (has(c.n, find) || c.n.closed && foundIn(c.n, find));
    const cell = el("button", {
      type: "button", title: title(c.n), "data-key": c.path.join("\n"), onclick: () => icicle.go(c.path),
      tabIndex: c.pixels < 24 ? -1 : 0,
      className: `cell${c.pixels < (flame ? 24 : 14) ? " tiny" : ""}${found ? " found" : ""}`,
    }, c.n.name, el("small", {}, ` ${text(c.n.value)}, ${share(c.n.value)}`));
    for (const [name, value] of Object.entries(c.box)) cell.style.setProperty(name, value);
    return cell;
  }));
  const how = `${flame ? "Width" : "Height"} is energy. Click a part to enlarge it.`;
  write("where-hint", (find ? `Found: ${share(foundIn(whole, find))}. ` : "") + hint + how);
}

// layout returns the cells of what a node contains, except for those that are too small to be seen.
function layout(root, flame, width) {
  const deep = (n) => n.children?.length ? 1 + Math.max(...n.children.map(deep)) : 0, cells = [];
  const levels = flame ? deep(root) : Math.min(deep(root), width < 560 ? 2 : 4);
  const leaves = (n) => n.children?.length ? sumOf(n.children, leaves) : 1;
  const whole = flame ? width : Math.min(width < 560 ? 420 : 340, 120 + 30 * leaves(root));
  const size = (c) => c.value / (root.value || 1);
  const names = flame ? ["left", "width", "top", "height"] : ["top", "height", "left", "width"];
  const place = (n, depth, start, path, inherited) => {
    let list = n.children?.toSorted(order) ?? [];
    const active = list.filter((c) => !c.idle), small = active.slice(1).filter((c) => size(c) * whole < 24).length;
    const kept = active.length - small;
    if (!flame && small > 1) list = [...list.slice(0, kept), smaller(n, kept), ...list.slice(active.length)];
    for (const c of list) {
      const pixels = size(c) * whole, open = c.children?.length && !c.closed && depth + 1 < levels;
      if (!(pixels >= 2)) continue;
      const box = {"--fill": c.fill ?? inherited}, last = flame || open ? depth + 1 : levels;
      const values = [start, size(c), depth / levels, (last - depth) / levels];
      names.forEach((name, i) => { box[name] = (values[i] * 100).toFixed(3) + "%"; });
      cells.push({n: c, depth, whole, box, pixels, path: [...path, c.id]});
      if (open) place(c, depth + 1, start, [...path, c.id], box["--fill"]);
      start += size(c);
    }
  };
  place(root, 0, 0, icicle.path, root.fill ?? "var(--rest)");
  return cells;
}

// Arrow keys reach also the cells that are too small for the tab key.
$("icicle").onkeydown = (e) => {
  const cells = [...$("icicle").children], by = {ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1}[e.key];
  const to = by && cells[cells.indexOf(document.activeElement) + by];
  if (!to) return;
  e.preventDefault();
  to.focus();
};
