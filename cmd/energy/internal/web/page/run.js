// SPDX-License-Identifier: Apache-2.0
// Documents of energy measure: a run, or the runs of one or two commands. Energies are in joules.

const added = (zones, list) => sumOf(zones.map((z, i) => z.added ? list?.[i] : 0));
const qualityOf = (d, zones) =>
  quality(zones.map((z) => ({name: z.zone, source: z.source, error: z.uncertainty, besides: z.overlaps_with})), d.notes);

function drawRun(d) {
  const name = words(d.command), counted = d.zones.filter((z) => z.added), idle = sumOf(counted, (z) => z.node_idle_joules);
  const others = Math.max(0, d.node_joules - d.joules - idle), {co2e, price} = d;
  const error = counted.length && counted.every((z) => z.source === "modeled") ? d.uncertainty ?? 0 : null;
  heading(name, "Energy of a command", `${dateTime(d.started)} · energy measure`, "still");
  sentence([name], ...d.joules == null ? [` took ${duration(d.seconds)}. Its energy is not available.`] : [" used ", about(error), [joules(d.joules)],
    range(error), ` in ${duration(d.seconds)}, ${watts(d.mean_watts)} on average.`, againstBase(d.ratios?.joules)],
  d.exit_status && ` It failed with exit status ${d.exit_status}.`,
  d.node_joules > 0 && ` Other programs used ${joules(others)}, and ${joules(idle)} was idle energy.`);
  tiles(d.joules != null && ["Energy", joules(d.joules), wattHours(d.joules)],
    d.mean_watts != null && ["Mean power", watts(d.mean_watts), d.node_joules > 0 && `of ${watts(d.node_joules / d.seconds)} of the machine`],
    ["Time", duration(d.seconds), `${duration(d.cpu_seconds)} of CPU time`],
    co2e && ["Emissions", grams(co2e.command), "CO₂e, " + rateText(co2e.per_kwh, "g", co2e.grid)],
    price && ["Cost of 1,000 runs", money(price.command * 1000, price.currency), rateText(price.per_kwh, price.currency)]);
  runChart(d, counted, idle);
  runTree(d, idle, others);
  runTable(d);
  qualityOf(d, d.zones);
}

function runChart(d, counted, idle) {
  const samples = d.samples.filter((s) => s.seconds > 0), phases = [];
  $("power").hidden = !samples.length || !counted.length;
  if ($("power").hidden) return;
  for (const s of samples) {
    if (phases.at(-1)?.name === s.phase) phases.at(-1).to = s.end;
    else phases.push({name: s.phase, from: s.end - s.seconds, to: s.end});
  }
  const ofZones = counted.map((z, i) => ({name: `This command, ${z.zone}`, fill: `var(--c${i % 7})`, keep: true}));
  drawChart({
    timeText: elapsed, phases: phases.filter((p) => p.name !== "none"),
    series: [{name: "Idle", fill: "var(--idle)"}, ...ofZones, {name: "Other programs", fill: "var(--rest)"}],
    points: samples.map((s) => {
      const used = counted.map((z) => s.joules[d.zones.indexOf(z)] ?? 0), rest = Math.max(0, added(d.zones, s.node_joules) - sumOf(used));
      const still = Math.min(rest, idle / d.seconds * s.seconds);
      return {end: s.end, seconds: s.seconds, joules: [still, ...used, rest - still]};
    }),
  });
}

// runTree shows the first of: a profile, what the command ran, and what the machine ran.
function runTree(d, idle, others) {
  const parts = [d.profile && "Flame graph", d.joules > 0 && "Programs", d.workloads && "Workloads"].filter(Boolean);
  const part = choice("trees", parts), leaf = (name, list) => node(name, sumOf(list, (r) => added(d.zones, r.joules)));
  $("where").hidden = !part;
  if (part === "Flame graph") return drawFlame(d.profile);
  if (part === "Programs" && !icicle.cells.length) icicle.path = ["this command"];
  if (part === "Programs") {
    const command = node("this command", d.joules, {fill: "var(--c0)", children: d.programs.map((p) => leaf(p.program, [p]))});
    drawTree(withoutIdle("The machine", [command, node("other programs", others), idleNode(idle)]));
  } else if (part) {
    const groups = Map.groupBy(d.workloads, (w) => w.workload);
    drawTree(withoutIdle("The machine", [...groups].map(([name, list]) => name === "(idle)" ? idleNode(leaf(name, list).value) :
      {...leaf(name, list), children: list.map((w) => leaf(w.phase, [w]))})));
  }
}

// drawFlame draws a profile. Colors are those of packages, or if there is a base those of changes.
function drawFlame(profile) {
  const frame = (p) => {
    const more = p.joules / p.base_joules - 1, hash = [...p.name.replace(/[.:(].*/, "")].reduce((h, c) => (h * 31 + c.charCodeAt(0)) >>> 0, 7);
    const changed = Math.abs(more) < 0.02 ? "var(--rest)" : more > 0 ? "var(--more)" : "var(--less)", compared = p.base_joules != null;
    return node(p.name, p.joules, {children: p.children?.map(frame), fill: compared ? changed : `var(--c${hash % 7})`,
      detail: compared ? `before: ${joules(p.base_joules)}, ${change(p.joules, p.base_joules)}` : ""});
  };
  drawTree({root: frame(profile), flame: true, hint: profile.base_joules != null ? "Red: more than before. Blue: less. " : ""});
}

function runTable(d) {
  const lists = {Programs: d.programs, Phases: d.phases.length > 1 ? d.phases : [], Workloads: d.workloads ?? []};
  const tab = choice("tabs", Object.keys(lists).filter((t) => lists[t].length)), list = lists[tab] ?? [];
  $("list").hidden = !tab;
  if (!tab) return;
  const key = tab.toLowerCase().slice(0, -1), all = (r) => added(d.zones, r.joules), sum = sumOf(list, all), most = Math.max(...list.map(all), 1e-9);
  drawTable([label(tab.slice(0, -1), (r) => r[key]), tab === "Workloads" && label("In phase", (r) => r.phase, {cls: "of"}),
    ...tab === "Phases" ? [figure("Time", (r) => r.seconds, duration), figure("Mean power", (r) => all(r) / r.seconds, watts)] : [],
    ...d.zones.length > 1 ? d.zones.map((z, i) => figure(z.zone, (r) => r.joules[i], joules, {cls: "wide"})) : [],
    figure("Energy", all, joules, {first: true}), bar((r) => all(r) / most), figure("Share", (r) => sum ? all(r) / sum : 0, percent),
  ], list.map((r) => ({...r, key: `${r[key]}\n${r.phase}`})));
}

// againstBase returns what the ratio to an earlier result shows.
function againstBase(r) {
  if (r?.a_to_b == null) return "";
  const interval = r.ci95_low == null ? "" : ` (95 % confidence interval ${change(r.ci95_low, 1)} to ${change(r.ci95_high, 1)})`;
  if (r.significant) return ` That is ${change(r.a_to_b, 1)} against the base${interval}.`;
  return ` No difference to the base is shown: ${change(r.a_to_b, 1)}${interval} may be chance.`;
}

function drawComparison(d) {
  const [a, b] = d.commands, r = b && d.ratios?.joules, full = d.commands.map((c) => words(c.command)), runs = `${a.runs.length} runs`;
  const names = full[0] === full[1] || full.some((n) => n.length > 40) ? ["A", "B"] : full;
  heading(full.join(" against "), b ? "Energy of two commands, compared" : "Energy of a command, several runs",
    `${dateTime(a.runs[0].started)} · energy measure`, "still");
  if (r?.a_to_b != null) {
    const by = `${percent(Math.abs(r.a_to_b - 1))} ${r.a_to_b >= 1 ? "more" : "less"}`, interval = r.ci95_low != null &&
      ` The 95 % confidence interval of the ratio is ${r.ci95_low.toFixed(2)} to ${r.ci95_high.toFixed(2)}, from ${r.pairs} pairs.`;
    if (r.significant) sentence([names[0]], " uses ", [by], " energy than ", [names[1]], ".", interval);
    else sentence(["No difference is shown: "], [names[0]], ` used ${by} energy than `, [names[1]], ", which may be chance.", interval);
  } else if (a.joules) sentence([names[0]], " used ", [joules(a.joules.mean)], ` on average of ${runs}.`, againstBase(d.ratios?.joules));
  else sentence([names[0]], ` took ${duration(a.seconds.mean)} on average of ${runs}. Its energy is not available.`);
  const tile = (title, key, text) => d.commands.map((c, i) => c[key] && [(b ? "AB"[i] + ", " : "") + title, text(c[key].mean),
    c[key].ci95_low != null && `${text(c[key].ci95_low)} to ${text(c[key].ci95_high)}`]);
  tiles(...tile(`mean of ${runs}`, "joules", joules), ...tile("time", "seconds", duration), ...tile("mean power", "mean_watts", watts));
  redraw($("power-h"), "dots", () => ["Each dot is a run; the bar is the mean with its 95 % confidence interval"]);
  $("power").hidden = !a.joules;
  if (a.joules) drawDots(d.commands, full);
  $("where").hidden = !d.profile;
  if (d.profile) drawFlame(d.profile);
  comparisonTable(d, a, b);
  qualityOf(d, a.runs[0].zones);
}

function drawDots(commands, names) {
  const width = $("chart").clientWidth || 900, height = 84 * commands.length + 22;
  const values = commands.flatMap((c) => [...c.runs.map((run) => run.joules), c.joules.ci95_low ?? c.joules.min, c.joules.ci95_high ?? c.joules.max]);
  const low = Math.min(...values), high = Math.max(...values), pad = (high - low || high || 1) * 0.06, span = high - low + 2 * pad;
  const x = (v) => 14 + (v - low + pad) / span * (width - 28), step = niceStep(span, Math.max(2, Math.floor(width / 130)));
  const picture = svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": $("verdict").textContent});
  for (let v = Math.ceil((low - pad) / step) * step; v <= high + pad; v += step) {
    picture.append(svg("line", {x1: x(v), x2: x(v), y1: 0, y2: height - 20, class: "grid"}),
      svg("text", {x: x(v), y: height - 4, "text-anchor": "middle"}, joules(+v.toPrecision(6))));
  }
  for (const [i, c] of commands.entries()) {
    const y = i * 84 + 54, fill = `var(--c${i})`, {mean, ci95_low: from, ci95_high: to} = c.joules;
    picture.append(svg("text", {x: 14, y: y - 34, class: "title"}, (commands[1] ? "AB"[i] + "  " : "") + names[i].slice(0, width / 8)));
    if (from != null) picture.append(svg("rect", {x: x(from), width: x(to) - x(from), y: y - 20, height: 8, rx: 4, fill, opacity: 0.5}));
    picture.append(svg("line", {x1: x(mean), x2: x(mean), y1: y - 25, y2: y + 9, class: "mean"}));
    for (const [k, run] of c.runs.entries()) {
      picture.append(svg("circle", {cx: x(run.joules), cy: y, r: 5.5, fill}, svg("title", {}, `Run ${k + 1}: ${joules(run.joules)}`)));
    }
  }
  picture.style.height = height + "px";
  $("chart").className = "dots";
  redraw($("chart"), `dots ${width}`, () => [picture]);
}

function comparisonTable(d, a, b) {
  const tab = choice("tabs", ["Runs", a.phases?.length && "Phases", a.zones?.length > 1 && "Zones"].filter(Boolean));
  const ratio = (v) => v.toFixed(2), key = tab === "Phases" ? "phase" : "zone", list = tab.toLowerCase();
  if (tab === "Runs") {
    const of = (c, name) => [figure(b ? name : "Energy", (r) => r[c]?.joules, joules), figure(b ? name + ", time" : "Time", (r) => r[c]?.seconds, duration)];
    return drawTable([label(b ? "Pair" : "Run", (r) => r.key, {first: true, value: (r) => -r.key}), ...of("a", "A"), ...b ? of("b", "B") : [],
      b && figure("A / B", (r) => r.b?.joules ? r.a.joules / r.b.joules : null, ratio)],
    a.runs.map((run, i) => ({key: String(i + 1), a: run, b: b?.runs[i]})));
  }
  const find = (c) => (p) => c?.[list]?.find((q) => q[key] === p.key), r = (p) => find(d.ratios)(p)?.joules ?? {};
  drawTable([label(tab.slice(0, -1), (p) => p.key), figure(b ? "A" : "Energy", (p) => find(a)(p).joules?.mean, joules, {first: true}),
    b && figure("B", (p) => find(b)(p)?.joules?.mean, joules), ...d.ratios ? [figure("Ratio", (p) => r(p).a_to_b, ratio),
      label("95 % interval", (p) => r(p).ci95_low == null ? "" : `${ratio(r(p).ci95_low)} to ${ratio(r(p).ci95_high)}`, {cls: ""}),
      label("Difference", (p) => r(p).a_to_b == null ? "" : r(p).significant ? "shown" : "not shown", {cls: ""})] : [],
  ], a[list].map((p) => ({key: p[key]})));
}
