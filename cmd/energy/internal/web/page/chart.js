// SPDX-License-Identifier: Apache-2.0
// Power over time as a stack of steps, so that areas are energies. A point has its end and its length in seconds, and
// joules by the index of the series. Time without points stays empty.

const chart = {cursor: null, points: []};
const beginOf = (p) => p.end - p.seconds;
const isGap = (p, q) => beginOf(q) - p.end > Math.max(0.02, 0.02 * q.seconds);

// fewer joins neighbors, so that each point is some pixels wide. Energy and gaps are kept. The ends of points are
// multiples of a length, so that they do not move with the time that is shown.
function fewer(points, most) {
  const usual = points.map((p) => p.seconds).sort((a, b) => a - b)[points.length >> 1];
  const tooMany = (points.at(-1).end - beginOf(points[0])) / usual / most;
  const length = usual * 2 ** Math.max(0, Math.ceil(Math.log2(tooMany)));
  const list = [], part = (p) => Math.floor((p.end - usual / 2) / length);
  for (const p of points) {
    const q = list.at(-1);
    if (!q || isGap(q, p) || part(q) !== part(p)) list.push({...p, joules: [...p.joules]});
    else {
      const joules = q.joules.map((j, i) => j + p.joules[i]);
      Object.assign(q, {end: p.end, seconds: q.seconds + p.seconds, joules});
    }
  }
  return list;
}

// niceStep returns a round distance of at most so many ticks, timeStep one that fits clocks.
function niceStep(span, most) {
  const power = 10 ** Math.floor(Math.log10(span / most));
  return [1, 2, 2.5, 5, 10].find((s) => s * power * most >= span * 0.999) * power;
}
const days = [1, 2, 4, 7, 14, 30].map((n) => n * 86400);
const timeSteps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, ...days];
const timeStep = (span, most) => span < most ? niceStep(span, most) : timeSteps.find((s) => s * most >= span) ?? span;

// tickText returns the text of ticks. All have the same prefix and enough decimals to differ.
function tickText(most, step, unit) {
  const [by, prefix] = prefixes.find(([p]) => most >= p) ?? prefixes.at(-1);
  const decimals = [0, 1, 2].find((d) => Math.abs(step / by * 10 ** d % 1) < 1e-6) ?? 3;
  return (v) => (v / by).toFixed(v ? decimals : 0) + space + prefix + unit;
}

// drawChart draws points of series: a name, a fill, and keep if it is listed without energy. timeText returns the text
// of a time for an axis with a step, or without a step for the cursor. offset is the UTC offset in seconds. phases
// have a name, from and to.
function drawChart({points: all, series, timeText, offset = 0, phases = []}) {
  if (!all.length) return redraw($("chart"), "", () => ["The first interval has not ended."]);
  const wide = !matchMedia("(max-width: 760px)").matches;
  const width = Math.max(240, $("chart").clientWidth - (wide ? 330 : 0));
  const height = wide ? 300 : 220, left = 58, right = width - 6, top = phases.length ? 22 : 10, floor = height - 24;
  const points = fewer(all, (right - left) / 2), from = beginOf(points[0]), to = points.at(-1).end;
  const x = (t) => left + (t - from) / (to - from || 1) * (right - left);
  const most = Math.max(...points.map((p) => sumOf(p.joules) / p.seconds), 1e-6), step = niceStep(most, wide ? 5 : 4);
  const ceiling = Math.ceil(most / step - 1e-6) * step, y = (w) => floor - w / ceiling * (floor - top);
  const parts = [], plot = plotOf(), add = (...shape) => parts.push(svg(...shape));
  for (const [i, p] of phases.entries()) {
    const width = x(p.to) - x(p.from), letters = Math.floor((width - 8) / 7.5);
    add("rect", {x: x(p.from), y: 0, width, height: floor, class: i % 2 ? "phase odd" : "phase"});
    if (letters > 1) add("text", {x: x(p.from) + 5, y: 15, class: "name"}, short(p.name, letters));
  }
  const text = tickText(ceiling, step, "W");
  for (let w = 0; w <= ceiling * 1.001; w += step) {
    add("line", {x1: left, x2: right, y1: y(w), y2: y(w), class: "grid"});
    add("text", {x: left - 8, y: y(w) + 4, "text-anchor": "end"}, text(w));
  }
  const base = points.map(() => 0), apart = points.length * 6 < width ? "apart" : "";
  for (const [i, s] of series.entries()) add("path", {d: areaOf(points, i, base, x, y), fill: s.fill, class: apart});
  const each = timeStep(to - from, Math.max(3, Math.floor((right - left) / 80)));
  for (let t = Math.ceil((from - offset) / each - 1e-6) * each + offset; t <= to + each * 1e-6; t += each) {
    add("line", {x1: x(t), x2: x(t), y1: floor, y2: floor + 4, class: "cursor"});
    add("text", {x: Math.min(x(t), right - 22), y: height - 6, "text-anchor": "middle"}, timeText(t, each));
  }
  const line = svg("line", {y1: 0, y2: floor, class: "cursor"});
  plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
  plot.replaceChildren(...parts, line);
  const toTime = (part) => from + (part * width - left) / (right - left) * (to - from);
  Object.assign(chart, {points, series, timeText, line, x, toTime});
  showCursor();
}

// areaOf returns the outline of a series on top of those before it, with a part for each time without gaps.
function areaOf(points, i, base, x, y) {
  let d = "", up = "", down = "";
  for (const [k, p] of points.entries()) {
    const begin = x(beginOf(p)).toFixed(1), end = x(p.end).toFixed(1), low = y(base[k]).toFixed(1);
    base[k] += p.joules[i] / p.seconds;
    up += `${up ? "L" : "M"}${begin},${y(base[k]).toFixed(1)}H${end}`;
    down = `L${end},${low}H${begin}` + down;
    if (k + 1 < points.length && !isGap(p, points[k + 1])) continue;
    d += up + down + "Z";
    up = down = "";
  }
  return d;
}

// plotOf returns the picture, which keeps the focus while its content changes. It is a slider: keys move the cursor.
function plotOf() {
  const plot = chart.plot ??= svg("svg", {class: "plot", tabindex: 0, role: "slider", "aria-valuemin": 0,
    "aria-label": "Power over time; arrow keys move the cursor"});
  const show = (t) => { chart.cursor = t; showCursor(); };
  plot.onpointermove = (e) => {
    const box = plot.getBoundingClientRect();
    show(chart.toTime((e.clientX - box.left) / box.width));
  };
  plot.onpointerleave = plot.onblur = () => show(null);
  plot.onkeydown = (e) => {
    const by = {ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9, Escape: NaN}[e.key];
    if (by == null) return;
    e.preventDefault();
    const last = chart.points.length - 1, i = pointAt(chart.cursor);
    const p = chart.points[Math.min(last, Math.max(0, (i < 0 ? last + 1 : i) + by))];
    show(p ? p.end - p.seconds / 2 : null);
  };
  redraw($("chart"), "plot", () => [plot, chart.legend = el("ul", {className: "legend"})]);
  return plot;
}
const pointAt = (t) => t == null ? -1 : chart.points.findIndex((p) => beginOf(p) <= t && t <= p.end);

// showCursor lists the power of each series at the cursor, or else its mean.
function showCursor() {
  const {points, series, legend, line, plot, timeText, cursor} = chart, i = pointAt(cursor);
  const shown = i < 0 ? points : [points[i]], seconds = sumOf(shown, (p) => p.seconds);
  const power = series.map((_, k) => sumOf(shown, (p) => p.joules[k]) / seconds);
  line.setAttribute("visibility", i < 0 ? "hidden" : "visible");
  if (i >= 0) for (const at of ["x1", "x2"]) line.setAttribute(at, chart.x(points[i].end - points[i].seconds / 2));
  const isListed = (_, k) => power[k] > 0 || series[k].keep;
  const sum = sumOf(power), listed = series.map((s, k) => [s.fill, s.name, watts(power[k], sum)]).filter(isListed);
  const head = i < 0 ? `Mean of ${duration(seconds)}` : `At ${timeText(points[i].end)}`;
  const rows = [["", head, ""], ...listed.toReversed(), ["", "Sum", watts(sum)]];
  redraw(legend, rows.join("\n"), () => rows.map(([fill, name, value]) => {
    const label = el("span", {className: "cut", title: name}, name);
    return el("li", {}, fill ? swatch(fill) : el("i"), label, el("span", {}, value));
  }));
  const text = rows.map((r) => r.slice(1).join(" ")).join(", ").replaceAll(space, " "), last = points.length - 1;
  Object.assign(plot, {ariaValueMax: last, ariaValueNow: i < 0 ? last : i, ariaValueText: text});
}

// A color stays with a series for as long as the series is shown.
const colors = new Map();
function setColors(ids) {
  for (const id of colors.keys()) if (!ids.includes(id)) colors.delete(id);
  const free = [0, 1, 2, 3, 4, 5, 6].filter((c) => ![...colors.values()].includes(c));
  for (const id of ids) if (!colors.has(id)) colors.set(id, free.shift());
}
const fillOf = (id) => colors.has(id) ? `var(--c${colors.get(id)})` : undefined;
