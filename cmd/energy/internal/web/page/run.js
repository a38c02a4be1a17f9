// SPDX-License-Identifier: Apache-2.0
// Documents of energy measure: a run, or the runs of one or two commands. Energies are in joules.

const added = (zones, list) => sumOf(zones.map((z, i) => z.added ? list?.[i] : 0));
const qualityOf = (d, zones) => quality(zones.map(({zone, source, uncertainty, overlaps_with: besides}) =>
  ({name: zone, source, error: uncertainty, besides})), d.notes);

function drawRun(d) {
  const counted = d.zones.filter((z) => z.added), idle = sumOf(counted, (z) => z.node_idle_joules), {co2e, price} = d;
  const others = Math.max(0, d.node_joules - d.joules - idle), name = words(d.command), measured = d.joules != null;
  const error = counted.length && counted.every((z) => z.source === "modeled") ? d.uncertainty ?? 0 : null;
  heading(name, "Energy of a command", `${dateTime(d.started)} · energy measure`, "still");
  const used = [" used ", about(error), [joules(d.joules)], range(error), ` in ${seconds(d.seconds)}, `,
    `${watts(d.mean_watts)} on average.`, ...againstBase(d.ratios)];
  sentence([name], ...measured ? used : [` took ${seconds(d.seconds)}. Its energy is not available.`],
    d.exit_status && ` It failed with exit status ${d.exit_status}.`,
    others > 0 && ` Other programs used ${joules(others)}.`, idle > 0 && ` ${joules(idle)} was idle energy.`);
  const ofMachine = d.node_joules > 0 && `of ${watts(d.node_joules / d.seconds)} of the machine`;
  tiles(measured && ["Energy", joules(d.joules), wattHours(d.joules)],
    measured && ["Mean power", watts(d.mean_watts), ofMachine],
    ["Time", seconds(d.seconds), `${seconds(d.cpu_seconds)} of CPU time`],
    co2e && ["Emissions", grams(co2e.command), "CO₂e, " + rateText(co2e.per_kwh, "g", co2e.grid)],
    price && ["Cost of 1,000 runs", money(price.command * 1000, price.currency),
      rateText(price.per_kwh, price.currency)]);
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
  const zones = counted.map((z, i) => ({name: `This command, ${z.zone}`, fill: `var(--c${i % 7})`, keep: true}));
  drawChart({
    timeText: elapsed, phases: phases.filter((p) => p.name !== "none"),
    series: [{name: "Idle", fill: "var(--idle)"}, ...zones, {name: "Other programs", fill: "var(--rest)"}],
    points: samples.map((s) => {
      const used = counted.map((z) => s.joules[d.zones.indexOf(z)] ?? 0);
      const rest = Math.max(0, added(d.zones, s.node_joules) - sumOf(used));
      const still = Math.min(rest, idle / d.seconds * s.seconds);
      return {end: s.end, seconds: s.seconds, joules: [still, ...used, rest - still]};
    }),
  });
}

// runTree shows a profile, what the command ran, or what the machine ran.
function runTree(d, idle, others) {
  const parts = [d.profile && "Flame graph", d.joules > 0 && "Programs", d.workloads && "Workloads"].filter(Boolean);
  const part = choice("trees", parts), leaf = (name, rows) => node(name, sumOf(rows, (r) => added(d.zones, r.joules)));
  $("where").hidden = !part;
  if (part === "Flame graph") drawFlame(d.profile);
  if (part === "Programs") {
    if (!icicle.cells.length) icicle.path = ["this command"];
    const command = {fill: "var(--c0)", children: d.programs.map((p) => leaf(p.program, [p]))};
    const all = [node("this command", d.joules, command), node("other programs", others), idleNode(idle)];
    drawTree(withoutIdle("The machine", all));
  }
  if (part === "Workloads") {
    const groups = [...Map.groupBy(d.workloads, (w) => w.workload)];
    drawTree(withoutIdle("The machine", groups.map(([name, rows]) => name === "(idle)"
      ? idleNode(leaf(name, rows).value) : {...leaf(name, rows), children: rows.map((w) => leaf(w.phase, [w]))})));
  }
}

// drawFlame draws a profile. Colors are those of packages or, if there is a base, those of changes.
function drawFlame(profile) {
  const hash = (name) => [...name.replace(/[.:(].*/, "")].reduce((h, c) => (h * 31 + c.charCodeAt(0)) >>> 0, 7);
  const frame = (p) => {
    const more = p.joules / p.base_joules - 1, children = p.children?.map(frame);
    if (p.base_joules == null) return node(p.name, p.joules, {children, fill: `var(--c${hash(p.name) % 7})`});
    const fill = Math.abs(more) < 0.02 ? "var(--rest)" : more > 0 ? "var(--more)" : "var(--less)";
    const detail = `before: ${joules(p.base_joules)}, ${change(p.joules, p.base_joules)}`;
    return node(p.name, p.joules, {children, fill, detail});
  };
  const hint = profile.base_joules == null ? "" : "Red: more than before. Blue: less. ";
  drawTree({root: frame(profile), flame: true, hint});
}

function runTable(d) {
  const lists = {Program: d.programs, Phase: d.phases.length > 1 ? d.phases : [], Workload: d.workloads ?? []};
  const tab = choice("tabs", Object.keys(lists).filter((t) => lists[t].length), "", (t) => t + "s");
  const list = lists[tab] ?? [], all = (r) => added(d.zones, r.joules), sum = sumOf(list, all);
  const most = Math.max(...list.map(all), 1e-9), key = tab?.toLowerCase();
  $("list").hidden = !tab;
  if (!tab) return;
  drawTable([
    label(tab, (r) => r[key]), tab === "Workload" && label("In phase", (r) => r.phase, "of"),
    tab === "Phase" && figure("Time", (r) => r.seconds, seconds),
    tab === "Phase" && figure("Mean power", (r) => all(r) / r.seconds, watts),
    ...d.zones.length > 1 ? d.zones.map((z, i) => figure(z.zone, (r) => r.joules[i], joules, "wide")) : [],
    figure("Energy", all, joules), bar((r) => all(r) / most), figure("Share", (r) => sum ? all(r) / sum : 0, percent),
  ], list.map((r) => ({...r, key: `${r[key]}\n${r.phase}`})));
}

// outcomeOf returns by how much the first of two commands uses more or less of what decides, and how sure that is.
const ratio = (v) => v.toFixed(2);
function outcomeOf(ratios) {
  const {a_to_b: v, ci95_low: low, ci95_high: high, ...r} = ratios?.[ratios.compared_by ?? "joules"] ?? {};
  if (v == null) return null;
  const kind = ratios.compared_by === "cpu_seconds" ? "CPU time" : "energy";
  const interval = low != null && ` The 95 % confidence interval of the ratio is ${ratio(low)} to ${ratio(high)}.`;
  return {...r, interval, by: `${percent(Math.abs(v - 1))} ${v >= 1 ? "more" : "less"} ${kind}`};
}
function againstBase(ratios) {
  const o = outcomeOf(ratios), used = o?.significant ? [" It used ", [o.by], " than the base."] : null;
  return o ? [...used ?? [" No difference to the base is shown."], o.interval] : [];
}

const titleOf = (side, name) => side ? `${side}, ${name}` : name[0].toUpperCase() + name.slice(1);

function drawComparison(d) {
  const {commands, profile} = d, [a, b] = commands, o = b && outcomeOf(d.ratios), runs = `${a.runs.length} runs`;
  const full = commands.map((c) => words(c.command));
  const names = full[0] === full[1] || full.some((n) => n.length > 40) ? ["A", "B"] : full;
  heading(full.join(" against "), b ? "Energy of two commands, compared" : "Energy of a command, several runs",
    `${dateTime(a.runs[0].started)} · energy measure`, "still");
  if (o?.significant) sentence([names[0]], " uses ", [o.by], " than ", [names[1]], ".", o.interval);
  else if (o) {
    sentence(["No difference is shown"], ": ", [names[0]], ` used ${o.by} than `, [names[1]], ", which may be chance.",
      o.interval);
  } else {
    const used = a.joules ? [" used ", [joules(a.joules.mean)]] : [` took ${seconds(a.seconds.mean)}`];
    sentence([names[0]], ...used, ` on average of ${runs}.`, ...againstBase(d.ratios),
      !a.joules && " Its energy is not available.");
  }
  const tile = (key, name, text) => commands.map(({[key]: s}, i) => s && [titleOf(b && "AB"[i], name), text(s.mean),
    s.ci95_low != null && `${text(s.ci95_low)} to ${text(s.ci95_high)}`]);
  tiles(...tile("joules", `mean of ${runs}`, joules), ...tile("seconds", "time", seconds),
    ...tile("cpu_seconds", "CPU time", seconds), ...tile("mean_watts", "mean power", watts));
  const [key, kind, text] = d.ratios?.compared_by === "cpu_seconds" || !a.joules ? ["cpu_seconds", "CPU time", seconds]
    : ["joules", "Energy", joules];
  write("power-h", `${kind}: each dot is a run; the bar is the mean with its 95 % confidence interval`);
  $("power").hidden = !a[key];
  if (a[key]) drawDots(commands, full, key, text);
  $("where").hidden = !profile;
  if (profile) drawFlame(profile);
  comparisonTable(d, a, b, key, text);
  qualityOf(d, a.runs[0].zones);
}

function drawDots(commands, names, key, text) {
  const width = $("chart").clientWidth || 900, height = 84 * commands.length + 22, picture = svg("svg",
    {role: "img", viewBox: `0 0 ${width} ${height}`, "aria-label": $("verdict").textContent});
  const ends = commands.flatMap(({[key]: s}) => [s.ci95_low ?? s.min, s.ci95_high ?? s.max, s.min, s.max]);
  const least = Math.min(...ends), most = Math.max(...ends), pad = (most - least || most || 1) * 0.06;
  const low = least - pad, span = most - least + 2 * pad, step = niceStep(span, Math.max(2, Math.floor(width / 110)));
  const x = (v) => 14 + (v - low) / span * (width - 28), add = (...shape) => picture.append(svg(...shape));
  const line = (at, y1, y2, className) => add("line", {x1: x(at), x2: x(at), y1, y2, class: className});
  const tick = tickText(most, step, key === "joules" ? "J" : "s");
  for (let v = Math.ceil(low / step) * step; v <= low + span; v += step) {
    line(v, 0, height - 20, "grid");
    add("text", {x: x(v), y: height - 4, "text-anchor": "middle"}, tick(v));
  }
  for (const [i, {runs, [key]: {mean, ci95_low: from, ci95_high: to}}] of commands.entries()) {
    const y = i * 84 + 54, fill = `var(--c${i})`, name = (commands[1] ? "AB"[i] + "  " : "") + names[i];
    add("text", {x: 14, y: y - 34, class: "title"}, name.slice(0, width / 8));
    const bar = {x: x(from), width: x(to) - x(from), y: y - 20, height: 8, rx: 4, fill, opacity: 0.5};
    if (from != null) add("rect", bar);
    line(mean, y - 25, y + 9, "mean");
    for (const [k, {[key]: v}] of runs.entries()) {
      add("circle", {cx: x(v), cy: y, r: 5.5, fill}, svg("title", {}, `Run ${k + 1}: ${text(v)}`));
    }
  }
  picture.style.height = height + "px";
  $("chart").className = "dots";
  redraw($("chart"), `dots ${width}`, () => [picture]);
}

function comparisonTable(d, a, b, quantity, text) {
  const tabs = ["Run", a.phases?.length && "Phase", a.zones?.length > 1 && "Zone"].filter(Boolean);
  const tab = choice("tabs", tabs, "", (t) => t + "s"), key = tab.toLowerCase(), list = key + "s", both = {a, b};
  const sides = b ? ["a", "b"] : ["a"], named = (side, name) => titleOf(b && side.toUpperCase(), name);
  const energyOf = (side) => b ? side.toUpperCase() : "Energy";
  if (tab === "Run") {
    const columns = (side) => [figure(energyOf(side), (r) => r[side]?.joules, joules),
      quantity !== "joules" && figure(named(side, "CPU time"), (r) => r[side]?.cpu_seconds, text),
      figure(named(side, "time"), (r) => r[side]?.seconds, seconds)];
    const number = b ? "Pair" : "Run", pair = (r) => r.b?.[quantity] ? r.a[quantity] / r.b[quantity] : null;
    const rows = a.runs.map((run, i) => ({key: String(i + 1), a: run, b: b?.runs[i]}));
    const list = [label(number, (r) => r.key), ...sides.flatMap(columns), b && figure("A / B", pair, ratio)];
    return drawTable(list, rows, number);
  }
  const of = (c, r) => c?.[list]?.find((q) => q[key] === r.key) ?? {};
  const compared = (r) => of(d.ratios, r)[quantity] ?? of(d.ratios, r).joules ?? {};
  const shown = (name, t) => d.ratios && label(name, (r) => compared(r).ci95_low == null ? "" : t(compared(r)), "");
  const energy = (side) => figure(energyOf(side), (r) => of(both[side], r).joules?.mean, joules);
  drawTable([label(tab, (r) => r.key), ...sides.map(energy),
    d.ratios && figure("Ratio", (r) => compared(r).a_to_b, ratio),
    shown("95 % interval", (q) => `${ratio(q.ci95_low)} to ${ratio(q.ci95_high)}`),
    shown("Difference", (q) => q.significant ? "shown" : "not shown"),
  ], a[list].map((p) => ({key: p[key]})), energyOf("a"));
}
