// SPDX-License-Identifier: Apache-2.0
// Power over time as a stack of steps, so that areas are energies. A point has its end and its length in seconds, and
// joules by the index of the series. Time without points stays empty.

const chart = {cursor: null, plot: null};

const beginOf = (p) => p.end - p.seconds;
const isGap = (p, q) => beginOf(q) - p.end > Math.max(0.02, 0.02 * q.seconds);

// fewer joins neighbors, so that each point is some pixels wide. Energy is kept, and so are gaps. The bounds of the
// joined points are multiples of a length, so that they do not move with the time that is shown.
function fewer(points, most) {
  const length = 2 ** Math.ceil(Math.log2((points.at(-1).end - beginOf(points[0])) / most));
  const list = [];
  for (const p of points) {
    const q = list.at(-1);
    if (q && !isGap(q, p) && Math.ceil(q.end / length) === Math.ceil(p.end / length)) {
      q.end = p.end;
      q.seconds += p.seconds;
      p.joules.forEach((j, i) => { q.joules[i] += j; });
    } else list.push({...p, joules: [...p.joules]});
  }
  return list;
}

// niceStep returns a round distance of at most so many ticks.
function niceStep(span, most) {
  const power = 10 ** Math.floor(Math.log10(span / most));
  return [1, 2, 2.5, 5, 10].find((s) => s * power * most >= span * 0.999) * power;
}
const timeSteps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800,
  345600, 604800, 1209600, 2592000];
const timeStep = (span, most) => span < most ? niceStep(span, most) : timeSteps.find((s) => s * most >= span) ?? span;

// wattTicks returns the labels of an axis. All have the same prefix and as many decimals as tell them apart.
function wattTicks(most, step) {
  const [by, prefix] = prefixes.find(([p]) => most >= p) ?? prefixes.at(-1);
  const decimals = [0, 1, 2, 3].find((d) => Math.abs(step / by * 10 ** d % 1) < 1e-6) ?? 3;
  return (v) => (v / by).toFixed(decimals) + space + prefix + "W";
}

// drawChart draws points of series: a name, a fill, and keep to list it if it has no energy. timeText returns the text
// of a time for the axis, or for the cursor. phases have a name, from and to; gaps have from and to.
function drawChart({points: all, series, timeText, zone = 0, phases = [], gaps = []}) {
  if (!all.length) return redraw($("chart"), "none", () => [el("p", {className: "hint"}, "The first interval has not ended.")]);
  const legendWidth = matchMedia("(max-width: 760px)").matches ? 0 : 330;
  const width = Math.max(240, $("chart").clientWidth - legendWidth), height = width < 560 ? 220 : 300;
  const left = 58, bottom = 24, top = phases.length ? 22 : 10;
  const points = fewer(all, (width - left) / 3), from = beginOf(points[0]), to = points.at(-1).end;
  const x = (t) => left + (t - from) / (to - from || 1) * (width - left - 8);
  const largest = Math.max(...points.map((p) => sumOf(p.joules, (j) => j) / p.seconds), 1e-6);
  const step = niceStep(largest, height < 300 ? 4 : 5), ceiling = Math.ceil(largest / step - 1e-6) * step;
  const y = (w) => height - bottom - w / ceiling * (height - bottom - top);
  const plot = plotOf(), parts = [hatching()], label = wattTicks(ceiling, step);

  for (const [i, p] of phases.entries()) {
    const length = x(p.to) - x(p.from);
    parts.push(svg("rect", {x: x(p.from), y: 0, width: length, height: height - bottom, class: i % 2 ? "phase odd" : "phase"}));
    const fits = Math.floor((length - 8) / 7.5);
    if (fits > 1) parts.push(svg("text", {x: x(p.from) + 5, y: 15, class: "name"}, p.name.length > fits ? p.name.slice(0, fits - 1) + "…" : p.name));
  }
  for (let w = 0; w <= ceiling * 1.001; w += step) {
    parts.push(svg("line", {x1: left, x2: width, y1: y(w), y2: y(w), class: "grid"}));
    parts.push(svg("text", {x: left - 8, y: y(w) + 4, "text-anchor": "end"}, label(w)));
  }
  for (const g of gaps) {
    parts.push(svg("rect", {x: x(g.from), y: top, width: Math.max(1, x(g.to) - x(g.from)), height: height - bottom - top, class: "gap"}));
  }
  const base = points.map(() => 0);
  series.forEach((s, i) => {
    const d = areaOf(points, i, base, x, y);
    if (d) parts.push(svg("path", {d, fill: s.fill, class: points.length * 6 < width ? "apart" : ""}));
  });
  const each = timeStep(to - from, Math.max(2, Math.floor((width - left) / 100)));
  for (let t = Math.ceil((from - zone) / each - 1e-6) * each + zone; t <= to + each * 1e-6; t += each) {
    parts.push(svg("line", {x1: x(t), x2: x(t), y1: height - bottom, y2: height - bottom + 4, class: "cursor"}));
    const anchor = x(t) > width - 34 ? "end" : x(t) < left + 20 ? "start" : "middle";
    parts.push(svg("text", {x: anchor === "end" ? width : anchor === "start" ? left : x(t), y: height - 6, "text-anchor": anchor}, timeText(t, each)));
  }
  const cursor = svg("line", {y1: 0, y2: height - bottom, class: "cursor"});
  plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
  plot.replaceChildren(...parts, cursor);
  Object.assign(chart, {points, series, timeText, line: cursor, x, toTime: (px) => from + (px * width - left) / (width - left - 8) * (to - from)});
  showCursor();
}

// areaOf returns the outline of a series on top of those before it, with a part for each time without gaps.
function areaOf(points, i, base, x, y) {
  let d = "", up = "", down = "", some = false;
  points.forEach((p, k) => {
    const a = x(beginOf(p)).toFixed(1), b = x(p.end).toFixed(1), low = y(base[k]).toFixed(1);
    base[k] += p.joules[i] / p.seconds;
    const high = y(base[k]).toFixed(1);
    some ||= p.joules[i] > 0;
    up += `${up ? "L" : "M"}${a},${high}H${b}`;
    down = `L${b},${low}H${a}` + down;
    if (k + 1 === points.length || isGap(p, points[k + 1])) {
      d += up + down + "Z";
      up = down = "";
    }
  });
  return some ? d : "";
}

function hatching() {
  const defs = svg("defs"), pattern = svg("pattern", {id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)"});
  pattern.append(svg("rect", {width: 6, height: 6, fill: "var(--sheet)"}), svg("rect", {width: 3, height: 6, fill: "var(--none)"}));
  defs.append(pattern);
  return defs;
}

// plotOf returns the picture, which keeps the focus while its content changes. It is a slider: keys move the cursor.
function plotOf() {
  if (chart.plot) return chart.plot;
  const plot = chart.plot = svg("svg", {
    class: "plot", tabindex: 0, role: "slider", "aria-label": "Power over time; arrow keys move the cursor", "aria-valuemin": 0,
  });
  chart.legend = el("ul", {className: "legend"});
  plot.onpointermove = (e) => {
    const box = plot.getBoundingClientRect();
    chart.cursor = chart.toTime((e.clientX - box.left) / box.width);
    showCursor();
  };
  plot.onpointerleave = plot.onblur = () => { chart.cursor = null; showCursor(); };
  plot.onkeydown = (e) => {
    const by = {ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9, Escape: NaN}[e.key];
    if (by == null) return;
    const i = pointAt(chart.cursor) ?? chart.points.length;
    const p = chart.points[Math.min(chart.points.length - 1, Math.max(0, i + by))];
    chart.cursor = p ? p.end - p.seconds / 2 : null;
    e.preventDefault();
    showCursor();
  };
  redraw($("chart"), "plot", () => [plot, chart.legend]);
  return plot;
}

// pointAt returns the index of the point at a time, or null.
function pointAt(t) {
  const i = t == null ? -1 : chart.points.findIndex((p) => beginOf(p) <= t && t <= p.end);
  return i < 0 ? null : i;
}

// showCursor lists the power of each series at the cursor, or else its mean.
function showCursor() {
  const {points, series, legend, line, plot, timeText} = chart, i = pointAt(chart.cursor), shown = i == null ? points : [points[i]];
  const seconds = sumOf(shown, (p) => p.seconds), powers = series.map((_, k) => sumOf(shown, (p) => p.joules[k]) / seconds);
  line.setAttribute("visibility", i == null ? "hidden" : "visible");
  if (i != null) for (const at of ["x1", "x2"]) line.setAttribute(at, chart.x(points[i].end - points[i].seconds / 2));
  const rows = series.map((s, k) => [s, powers[k]]).filter(([s, w]) => w > 0 || s.keep).reverse();
  const texts = rows.map(([s, w]) => `${s.name} ${watts(w)}`), sum = watts(sumOf(powers, (w) => w));
  const head = i == null ? `Mean of ${duration(seconds)}` : `At ${timeText(points[i].end)}`;
  redraw(legend, [head, ...rows.map(([s]) => s.fill), ...texts, sum].join("\n"), () => {
    const item = (className, swatch, name, value) => el("li", {className}, swatch,
      el("span", {className: "cut", title: name}, name), el("span", {className: "value"}, value));
    return [item("head", el("span"), head, ""), ...rows.map(([s, w]) => {
      const swatch = el("span", {className: s.fill.startsWith("url") ? "swatch hatched" : "swatch"});
      swatch.style.setProperty("--fill", s.fill);
      return item("", swatch, s.name, watts(w));
    }), item("sum", el("span"), "Sum", sum)];
  });
  plot.setAttribute("aria-valuemax", points.length - 1);
  plot.setAttribute("aria-valuenow", i ?? points.length - 1);
  plot.setAttribute("aria-valuetext", [head, ...texts, `Sum ${sum}`].join(", ").replaceAll(space, " "));
}

// A color stays with a series for as long as the series is shown.
const colors = new Map();
function colorsOf(ids) {
  for (const id of colors.keys()) if (!ids.includes(id)) colors.delete(id);
  for (const id of ids) {
    if (!colors.has(id)) colors.set(id, [0, 1, 2, 3, 4, 5, 6].find((c) => ![...colors.values()].includes(c)) ?? 6);
  }
  return (id) => `var(--c${colors.get(id)})`;
}
