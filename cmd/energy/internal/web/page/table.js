// SPDX-License-Identifier: Apache-2.0
// A table to sort and to search. A column has a name, the text of a row, and a value if rows are sorted by it, or bar
// for a share. Figures of a column have the prefix of the largest one, and their own in the title. A row has a key,
// an optional title, the fill of its bar, and pin to be listed last.

const table = {sort: "", up: false, all: false, trs: new Map()};
const label = (name, text, cls = "name") => ({name, text, cls});
const figure = (name, value, text, cls) => ({name, value, cls,
  text: (r, largest) => value(r) == null ? "" : text(value(r), largest)});
const bar = (share) => ({name: "Bar", cls: "bars", bar: share, text: () => ""});

// drawTable sorts by the column that was chosen, or by the one of a name. Columns may be false.
function drawTable(list, rows, first = "Energy") {
  const columns = list.filter(Boolean), named = (name) => columns.find((c) => c.name === name);
  const sort = named(table.sort) ?? named(first) ?? named("Energy"), value = sort.value ?? sort.text;
  const find = $("search").value.toLowerCase(), up = sort.name === table.sort ? table.up : !sort.value;
  const press = (c) => { Object.assign(table, {sort: c.name, up: c === sort ? !up : !c.value}); draw(); };
  const keys = columns.map((c) => c.name).join("\n"), heads = columns.map((c) => c.head);
  const direction = up ? "ascending" : "descending";
  const button = (c) => el("button", {type: "button", "data-key": c.name, onclick: () => press(c)}, c.head ?? c.name);
  const headOf = (c) => el("th", {scope: "col", className: c.cls ?? "", ariaSort: c === sort ? direction : null},
    c.bar ? "" : button(c));
  redraw($("table").tHead, [keys, ...heads, sort.name, up].join("\n"), () => [el("tr", {}, ...columns.map(headOf))]);
  const compare = (p, q) => typeof p === "string" ? p.localeCompare(q, "en", {numeric: true}) : (p ?? -1) - (q ?? -1);
  const texts = (r) => [r.title ?? "", ...columns.map((c) => c.text(r))];
  const found = rows.filter((r) => r.pin || !find || texts(r).some((t) => t.toLowerCase().includes(find)));
  found.sort((a, b) => (a.pin ?? 0) - (b.pin ?? 0) || (up ? 1 : -1) * compare(value(a), value(b)));
  const few = table.all || find ? found : found.filter((r, i) => i < 15 || r.pin);
  $("more").hidden = found.length <= 15 || few.length === found.length && !table.all;
  write("more", table.all ? "Show fewer" : `Show all ${found.length}`);
  for (const c of columns) c.largest = c.value && Math.max(...rows.map((r) => Math.abs(c.value(r) || 0)));
  $("search").hidden = rows.length < 8 && !find && !icicle.flame;
  table.trs = new Map(few.map((r) => [keys + r.key, rowOf(table.trs.get(keys + r.key), columns, r)]));
  const none = find && found.every((r) => r.pin), body = $("table").tBodies[0];
  const trs = [...table.trs.values()];
  if (none) trs.unshift(el("tr", {}, el("td", {className: "name"}, "No rows match.")));
  if (trs.length !== body.rows.length || trs.some((tr, i) => tr !== body.rows[i])) body.replaceChildren(...trs);
}

// rowOf sets the texts of a row. It changes only what differs.
function rowOf(tr, columns, r) {
  tr ??= el("tr", {className: r.pin ? "pin" : ""}, ...columns.map((c) => el("td", {className: c.cls ?? ""})));
  for (const [i, c] of columns.entries()) {
    const td = tr.cells[i], text = c.text(r, c.largest), title = i || !r.title ? c.text(r) : r.title;
    if (c.bar) {
      td.style.setProperty("--share", c.bar(r) && Math.max(0.004, c.bar(r)).toFixed(3));
      td.style.setProperty("--fill", r.fill ?? "var(--rest)");
    } else if (td.textContent !== text) td.textContent = text;
    if (td.title !== title) td.title = title;
  }
  return tr;
}

$("more").onclick = () => { table.all = !table.all; draw(); };
$("search").oninput = () => draw();
addEventListener("beforeprint", () => { table.all = true; draw(); });
