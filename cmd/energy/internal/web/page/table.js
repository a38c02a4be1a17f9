// SPDX-License-Identifier: Apache-2.0
// A table to sort and to search. A column has a name, the text of a row, and a value if rows are sorted by it, or bar
// for a share. A row has a key, a name, perhaps a title, and pin if it stands below the others.

const table = {sort: "", up: false, all: false, trs: new Map()};
const label = (name, text, more) => ({name, text, cls: "name", ...more});
const figure = (name, value, text, more) => ({name, value, text: (r) => value(r) == null ? "" : text(value(r)), ...more});
const bar = (share) => ({name: "Bar", cls: "bars", bar: share, text: () => ""});

function drawTable(list, rows) {
  const columns = list.filter(Boolean), names = columns.map((c) => c.name).join("\n"), find = $("search").value.toLowerCase();
  const sort = columns.find((c) => c.name === table.sort) ?? columns.find((c) => c.first), value = sort.value ?? sort.text;
  const head = (c) => {
    const press = () => { Object.assign(table, {sort: c.name, up: c === sort ? !table.up : !c.value}); draw(); };
    const button = el("button", {type: "button", "data-key": c.name, onclick: press}, c.name);
    const th = el("th", {scope: "col", className: c.cls ?? ""}, c.bar ? el("span", {className: "unseen"}, c.name) : button);
    if (c === sort) th.setAttribute("aria-sort", table.up ? "ascending" : "descending");
    return th;
  };
  redraw($("table").tHead, [names, sort.name, table.up].join("\n"), () => [el("tr", {}, ...columns.map(head))]);
  const compare = (p, q) => typeof p === "string" ? p.localeCompare(q) : (p ?? -1) - (q ?? -1);
  const matches = (r) => r.pin || !find || [r.title ?? "", ...columns.map((c) => c.text(r))].some((t) => t.toLowerCase().includes(find));
  const found = rows.filter(matches).sort((a, b) => (a.pin ?? 0) - (b.pin ?? 0) || (table.up ? 1 : -1) * compare(value(a), value(b)));
  const few = table.all || find ? found : found.filter((r, i) => i < 15 || r.pin);
  $("more").hidden = few.length === found.length && !table.all || found.length <= 15;
  redraw($("more"), `${table.all} ${found.length}`, () => [table.all ? "Show fewer" : `Show all ${found.length}`]);
  table.trs = new Map(few.map((r) => [names + r.key, rowOf(table.trs.get(names + r.key), columns, r)]));
  const body = $("table").tBodies[0], trs = [...table.trs.values()];
  if (find && !found.some((r) => !r.pin)) trs.unshift(el("tr", {}, el("td", {colSpan: columns.length, className: "name"}, "No row contains this text.")));
  if (trs.length !== body.rows.length || trs.some((tr, i) => tr !== body.rows[i])) body.replaceChildren(...trs);
}

// rowOf sets the texts of a row. It changes only what differs.
function rowOf(tr, columns, r) {
  tr ??= el("tr", {className: r.pin ? "pin" : ""}, ...columns.map((c) => el("td", {className: c.cls ?? ""})));
  for (const [i, c] of columns.entries()) {
    const td = tr.cells[i], text = c.text(r);
    if (c.bar) td.style.setProperty("--share", c.bar(r).toFixed(3));
    else if (td.textContent !== text) td.textContent = text;
    if (c.cls && !c.bar) td.title = i ? text : r.title ?? text;
  }
  return tr;
}

$("more").onclick = () => { table.all = !table.all; draw(); };
$("search").oninput = () => draw();
addEventListener("beforeprint", () => { table.all = true; draw(); });
document.addEventListener("keydown", (e) => {
  if (e.key !== "/" || e.ctrlKey || e.metaKey || e.target === $("search")) return;
  e.preventDefault();
  $("search").focus();
});
