// SPDX-License-Identifier: Apache-2.0
// A table to sort and to search. A column has a name, a text of a row, a value to sort by if that is not the text, and
// bar if it shows a share as a bar. A row has a key; a pinned row stands below the others.

const table = {sort: "", up: false, all: false, find: "", trs: new Map()};

function drawTable(columns, rows) {
  if (!columns.some((c) => c.name === table.sort)) Object.assign(table, {sort: columns.find((c) => c.first).name, up: columns[0].first});
  const sort = columns.find((c) => c.name === table.sort), find = table.find.toLowerCase(), value = sort.value ?? sort.text;
  const names = columns.map((c) => c.name).join("\n");
  redraw($("table").tHead, names + table.sort + table.up, () => [el("tr", {}, ...columns.map((c) => {
    const press = () => { table.up = table.sort === c.name ? !table.up : !c.value; table.sort = c.name; draw(); };
    const th = el("th", {scope: "col", className: c.cls ?? ""}, c.bar ? el("span", {className: "hidden"}, "Bar") : el("button", {type: "button", "data-key": c.name, onclick: press}, c.name));
    if (c === sort) th.setAttribute("aria-sort", table.up ? "ascending" : "descending");
    return th;
  }))]);
  const compare = (p, q) => typeof p === "string" ? p.localeCompare(q) : (p ?? -1) - (q ?? -1);
  const matches = (r) => r.pin || !find || columns.some((c) => c.text?.(r).toLowerCase().includes(find)) || r.title?.toLowerCase().includes(find);
  const found = rows.filter(matches).sort((a, b) => (a.pin ?? 0) - (b.pin ?? 0) || (table.up ? 1 : -1) * compare(value(a), value(b)));
  const few = table.all || find ? found : found.filter((r, i) => i < 15 || r.pin);
  $("more").hidden = few.length === found.length && (!table.all || found.length <= 15);
  $("more").textContent = table.all ? "Show fewer" : `Show all ${found.length}`;
  const trs = new Map(few.map((r) => [names + r.key, rowOf(table.trs.get(names + r.key), columns, r)]));
  table.trs = trs;
  if (find && !found.some((r) => !r.pin)) trs.set("", el("tr", {}, el("td", {colSpan: columns.length, className: "hint"}, `No row contains “${table.find}”.`)));
  const body = $("table").tBodies[0], list = [...trs.values()];
  if (list.length !== body.rows.length || list.some((tr, i) => tr !== body.rows[i])) body.replaceChildren(...list);
}

// rowOf returns an element with the texts of a row. It changes only what differs.
function rowOf(tr, columns, r) {
  tr ??= el("tr", {className: r.pin ? "pin" : ""}, ...columns.map((c) => el("td", {className: c.cls ?? ""})));
  columns.forEach((c, i) => {
    const td = tr.cells[i], text = c.bar ? c.bar(r).toFixed(3) : c.text(r);
    if (c.bar) td.style.setProperty("--share", text);
    else if (td.textContent !== text) td.textContent = text;
    if (i === 0 && td.title !== (r.title ?? text)) td.title = r.title ?? text;
  });
  return tr;
}

$("more").onclick = () => { table.all = !table.all; draw(); };
$("search").oninput = (e) => { table.find = e.target.value; draw(); };
document.addEventListener("keydown", (e) => {
  if (e.key !== "/" || e.ctrlKey || e.metaKey || e.target.tagName === "INPUT") return;
  e.preventDefault();
  $("search").focus();
});
