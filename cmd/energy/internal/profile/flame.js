// Zoom by a click on a frame, and search. An image of a web page runs no script; a file that is opened does.
{
const svg = document.currentScript.closest("svg"), width = svg.viewBox.baseVal.width
const find = svg.querySelector("#find"), found = svg.querySelector("#found")
const frames = [...svg.querySelectorAll(".f")].map(e => ({
  e, box: e.querySelector("rect"), fill: e.querySelector("rect").getAttribute("fill"),
  x: +e.getAttribute("x"), w: +e.getAttribute("width"), y: +e.getAttribute("y"),
  name: e.querySelector("title").textContent,
}))

function zoom(to) {
  const scale = width / to.w
  for (const f of frames) {
    const isCaller = f.y <= to.y && f.x <= to.x + 0.01 && f.x + f.w >= to.x + to.w - 0.01
    const isIn = f.y > to.y && f.x >= to.x - 0.01 && f.x + f.w <= to.x + to.w + 0.01
    f.e.style.display = isCaller || isIn ? "" : "none"
    f.e.setAttribute("x", isCaller ? 0 : (f.x - to.x) * scale)
    f.e.setAttribute("width", isCaller ? width : f.w * scale)
    f.e.style.opacity = isCaller && f !== to ? 0.5 : 1
  }
}

function search() {
  const text = prompt("Search functions (regular expression)", find.dataset.text || "")
  if (text === null) return
  find.dataset.text = text
  let pattern, sum = 0, ends = []
  try { pattern = text && new RegExp(text, "i") } catch (e) { return alert(e.message) }
  for (const f of frames) { // callers before their callees, so that no energy counts twice
    const matches = pattern && pattern.test(f.name.replace(/: [^:]*$/, ""))
    f.box.setAttribute("fill", matches ? "#D05CE3" : f.fill)
    if (matches && !ends.some(([from, to]) => f.x >= from - 0.01 && f.x + f.w <= to + 0.01)) {
      sum += f.w
      ends.push([f.x, f.x + f.w])
    }
  }
  found.textContent = pattern ? "found: " + (100 * sum / width).toFixed(1) + " %" : ""
}

for (const f of frames) f.e.addEventListener("click", () => zoom(f))
find.addEventListener("click", search)
find.setAttribute("visibility", "visible")
addEventListener("keydown", e => {
  if (e.key === "/") search()
  if (e.key === "Escape") zoom(frames[0])
})
}
