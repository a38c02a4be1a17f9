// SPDX-License-Identifier: Apache-2.0
// A tree of energies, to click into. A node has an id, a name, a value, children, and a fill if it differs from its
// parent's. Trees of owners grow to the right: height is energy. Flame graphs grow down: width is energy.

const icicle = {path: [], cells: []};

// valueOf returns the children of a node with the largest first.
const sorted = (node) => (node.children ?? []).toSorted((p, q) => q.value - p.value);

// smaller returns the children of a node from the nth as one node, which can be enlarged like any other.
function smaller(node, from) {
  const rest = sorted(node).slice(from);
  return {id: "\0" + from, name: `${rest.length} smaller`, value: sumOf(rest, (c) => c.value), children: rest, fill: "var(--rest)"};
}
const childOf = (node, id) => id.startsWith("\0") ? smaller(node, +id.slice(1)) : node.children?.find((c) => c.id === id);

// drawTree draws a tree: its root, whether it is a flame graph, and the text of a value.
function drawTree(tree) {
  const {root, flame, text = joules, hint = ""} = tree, at = $("icicle"), trail = [root];
  for (const id of icicle.path) {
    const child = childOf(trail.at(-1), id);
    if (!child?.value) break;
    trail.push(child);
  }
  icicle.path = trail.slice(1).map((n) => n.id);
  const node = trail.at(-1), cells = layout(node, flame, at), find = $("search").value.toLowerCase();
  const share = (n) => percent(n.value / (root.value || 1)), zoom = (path) => { icicle.path = path; drawTree(tree); };
  Object.assign(icicle, {cells, flame, leave: () => zoom(icicle.path.slice(0, -1))});

  redraw($("trail"), trail.map((n) => n.name + text(n.value)).join("\n"), () => trail.map((n, i) => el("button", {
    type: "button", "data-key": String(i), className: i > 0 && i < trail.length - 4 ? "cut short" : "cut", title: n.name,
    onclick: () => zoom(icicle.path.slice(0, i)), ariaCurrent: i === trail.length - 1 ? "true" : null,
  }, n.name, el("small", {}, ` ${text(n.value)}${i ? ", " + share(n) : ""}`))));

  at.classList.toggle("searching", Boolean(find));
  at.classList.toggle("flame", Boolean(flame));
  at.setAttribute("role", cells.length ? "tree" : "presentation");
  redraw(at, cells.map((c) => [c.start.toFixed(4), c.size.toFixed(4), c.n.name, c.n.fill, text(c.n.value)]).join("\n") + find, () => {
    for (const [i, c] of cells.entries()) {
      const found = find && c.n.name.toLowerCase().includes(find) ? " found" : "";
      const title = `${c.n.name}: ${text(c.n.value)}, ${share(c.n)}${c.n.detail ? "\n" + c.n.detail : ""}`;
      c.e = el("button", {
        type: "button", className: `cell${c.pixels < (flame ? 24 : 17) ? " tiny" : ""}${found}`, title, tabIndex: i ? -1 : 0, role: "treeitem",
        "aria-level": c.depth + 1, "aria-label": title, "data-key": c.path.join("\n"), onclick: () => zoom(c.path),
      }, c.n.name, el("small", {}, `${text(c.n.value)}  ${share(c.n)}`));
      for (const [name, value] of Object.entries(c.box)) c.e.style.setProperty(name, value);
    }
    return cells.map((c) => c.e);
  });
  const match = find ? `Found: ${share({value: foundIn(node, find)})} of all. ` : "";
  $("where-hint").textContent = match + hint + (flame ? "Width is energy. Click a function to enlarge it." : "Height is energy. Click a part to enlarge it.");
}

// layout returns the cells of what a node contains, so large that they can be seen.
function layout(node, flame, at) {
  const deep = (n) => n.children?.length ? 1 + Math.max(...n.children.map(deep)) : 0;
  const levels = flame ? deep(node) : Math.min(deep(node), 4), width = at.clientWidth || 900, cells = [];
  const height = !levels ? 0 : flame ? levels * 25 : width < 560 ? 420 : 340, whole = flame ? width : height;
  at.style.height = height + "px";
  const place = (parent, n, depth, from, path, parentCell, inherited) => {
    let list = sorted(n), start = from;
    const small = list.filter((c) => c.value / node.value * whole < 20).length;
    if (!flame && small > 1) list = [...list.slice(0, list.length - small), smaller(n, list.length - small)];
    for (const c of list) {
      const size = c.value / (node.value || 1), pixels = size * whole;
      if (!(pixels >= 2) || depth >= levels) continue;
      const last = flame || c.children?.length && depth + 1 < levels ? depth + 1 : levels, fill = c.fill ?? inherited;
      const [along, across, length, breadth] = flame ? ["left", "top", "width", "height"] : ["top", "left", "height", "width"];
      const share = (v) => (v * 100).toFixed(3) + "%";
      const box = {[along]: share(start), [length]: share(size), [across]: share(depth / levels), [breadth]: share((last - depth) / levels), "--fill": fill};
      const cell = {n: c, depth, start, size, pixels, path: [...path, c.id], parent: parentCell, box};
      cells.push(cell);
      place(n, c, depth + 1, start, cell.path, cell, fill);
      start += size;
    }
  };
  place(null, node, 0, 0, icicle.path, null, node.fill ?? "var(--rest)");
  return cells;
}

// withoutIdle offers to leave out idle energy, which hides what programs use if there is much of it.
function withoutIdle(root) {
  const idleOf = (n) => n.idle ? n.value : sumOf(n.children ?? [], idleOf), all = sumOf(root.children, (c) => c.value), idle = idleOf(root);
  const without = idle > 0 && choice("idle", ["With idle", "Without idle"], idle > 0.7 * all ? "Without idle" : "With idle") === "Without idle";
  const strip = (n) => !n.children ? n : {...n, value: n.value - idleOf(n), children: n.children.filter((c) => !c.idle && c.value > 0).map(strip)};
  return {root: without ? strip({...root, value: all}) : {...root, value: all}, hint: without ? `Not drawn: ${joules(idle)} idle, ${percent(idle / all)}. ` : ""};
}

// foundIn returns the energy of the outermost nodes whose name contains a text.
function foundIn(node, find) {
  return sumOf(node.children ?? [], (c) => c.name.toLowerCase().includes(find) ? c.value : foundIn(c, find));
}

// Arrow keys move between cells, Enter enlarges one, Escape goes back.
$("icicle").onkeydown = (e) => {
  const {cells, flame} = icicle, cell = cells.find((c) => c.e === document.activeElement);
  const level = cells.filter((c) => c.depth === cell?.depth), i = level.indexOf(cell);
  const moves = [cell?.parent, cells.find((c) => c.parent === cell), level[i - 1], level[i + 1]];
  const keys = flame ? ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"] : ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"];
  if (e.key === "Escape") icicle.leave();
  else if (!keys.includes(e.key)) return;
  e.preventDefault();
  const to = moves[keys.indexOf(e.key)];
  if (!to) return;
  cell.e.tabIndex = -1;
  to.e.tabIndex = 0;
  to.e.focus();
};
