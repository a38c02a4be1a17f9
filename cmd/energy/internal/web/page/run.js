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
  const used = [" used ", about(error), [joules(d.joules)], range(error), ` in ${duration(d.seconds)}, `,
    `${watts(d.mean_watts)} on average.`, againstBase(d.ratios?.joules)];
  sentence([name], ...measured ? used : [` took ${duration(d.seconds)}. Its energy is not available.`],
    d.exit_status && ` It failed with exit status ${d.exit_status}.`,
    d.node_joules > 0 && ` Other programs used ${joules(others)}, and ${joules(idle)} was idle energy.`);
  const ofMachine = d.node_joules > 0 && `of ${watts(d.node_joules / d.seconds)} of the machine`;
  tiles(measured && ["Energy", joules(d.joules), wattHours(d.joules)],
    measured && ["Mean power", watts(d.mean_watts), ofMachine],
    ["Time", duration(d.seconds), `${duration(d.cpu_seconds)} of CPU time`],
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
    tab === "Phase" && figure("Time", (r) => r.seconds, duration),
    tab === "Phase" && figure("Mean power", (r) => all(r) / r.seconds, watts),
    ...d.zones.length > 1 ? d.zones.map((z, i) => figure(z.zone, (r) => r.joules[i], joules, "wide")) : [],
    figure("Energy", all, joules), bar((r) => all(r) / most), figure("Share", (r) => sum ? all(r) / sum : 0, percent),
  ], list.map((r) => ({...r, key: `${r[key]}\n${r.phase}`})));
}

// againstBase returns what the ratio to an earlier result shows.
function againstBase(r) {
  if (r?.a_to_b == null) return "";
  const ends = r.ci95_low != null && `95 % confidence interval ${change(r.ci95_low, 1)} to ${change(r.ci95_high, 1)}`;
  const by = change(r.a_to_b, 1) + (ends ? ` (${ends})` : "");
  if (r.significant) return ` That is ${by} against the base.`;
  return ` No difference to the base is shown: ${by} may be chance.`;
}

function drawComparison(d) {
  const [a, b] = d.commands, r = b && d.ratios?.joules, runs = `${a.runs.length} runs`;
  const full = d.commands.map((c) => words(c.command));
  const names = full[0] === full[1] || full.some((n) => n.length > 40) ? ["A", "B"] : full;
  heading(full.join(" against "), b ? "Energy of two commands, compared" : "Energy of a command, several runs",
    `${dateTime(a.runs[0].started)} · energy measure`, "still");
  if (r?.a_to_b != null) {
    const by = `${percent(Math.abs(r.a_to_b - 1))} ${r.a_to_b >= 1 ? "more" : "less"}`;
    const ends = r.ci95_low != null && ` The 95 % confidence interval of the ratio is ${ratio(r.ci95_low)} to ` +
      `${ratio(r.ci95_high)}, from ${r.pairs} pairs.`;
    if (r.significant) sentence([names[0]], " uses ", [by], " energy than ", [names[1]], ".", ends);
    else sentence(["No difference is shown"], `: the ${by} energy of `, [names[0]], " may be chance.", ends);
  } else if (a.joules) {
    sentence([names[0]], " used ", [joules(a.joules.mean)], ` on average of ${runs}.`, againstBase(d.ratios?.joules));
  } else sentence([names[0]], ` took ${duration(a.seconds.mean)} on average of ${runs}. Its energy is not available.`);
  const label = (title, i) => b ? `${"AB"[i]}: ${title.toLowerCase()}` : title;
  const tile = (title, key, text) => d.commands.map(({[key]: s}, i) => s && [label(title, i), text(s.mean),
    s.ci95_low != null && `${text(s.ci95_low)} to ${text(s.ci95_high)}`]);
  tiles(...tile(`Mean of ${runs}`, "joules", joules), ...tile("Time", "seconds", duration),
    ...tile("Mean power", "mean_watts", watts));
  write("power-h", "Each dot is a run; the bar is the mean with its 95 % confidence interval");
  $("power").hidden = !a.joules;
  if (a.joules) drawDots(d.commands, full);
  $("where").hidden = !d.profile;
  if (d.profile) drawFlame(d.profile);
  comparisonTable(d, a, b);
  qualityOf(d, a.runs[0].zones);
}
const ratio = (v) => v.toFixed(2);

function drawDots(commands, names) {
  const width = $("chart").clientWidth || 900, height = 84 * commands.length + 22, picture = svg("svg", {role: "img",
    viewBox: `0 0 ${width} ${height}`, "aria-label": $("verdict").textContent});
  const ends = commands.flatMap(({joules: s}) => [s.ci95_low ?? s.min, s.ci95_high ?? s.max, s.min, s.max]);
  const pad = (Math.max(...ends) - Math.min(...ends) || Math.max(...ends) || 1) * 0.06;
  const low = Math.min(...ends) - pad, high = Math.max(...ends) + pad;
  const step = niceStep(high - low, Math.floor(width / 110));
  const x = (v) => 14 + (v - low) / (high - low) * (width - 28), add = (...shape) => picture.append(svg(...shape));
  const line = (at, y1, y2, className) => add("line", {x1: x(at), x2: x(at), y1, y2, class: className});
  for (let v = Math.ceil(low / step) * step; v <= high; v += step) {
    line(v, 0, height - 20, "grid");
    add("text", {x: x(v), y: height - 4, "text-anchor": "middle"}, joules(+v.toPrecision(6)));
  }
  for (const [i, {runs, joules: {mean, ci95_low: from, ci95_high: to}}] of commands.entries()) {
    const y = i * 84 + 54, fill = `var(--c${i})`;
    add("text", {x: 14, y: y - 34, class: "title"}, (commands[1] ? "AB"[i] + "  " : "") + names[i].slice(0, width / 8));
    const bar = {x: x(from), width: x(to) - x(from), y: y - 20, height: 8, rx: 4, fill, opacity: 0.5};
    if (from != null) add("rect", bar);
    line(mean, y - 25, y + 9, "mean");
    for (const [k, run] of runs.entries()) {
      add("circle", {cx: x(run.joules), cy: y, r: 5.5, fill}, svg("title", {}, `Run ${k + 1}: ${joules(run.joules)}`));
    }
  }
  picture.style.height = height + "px";
  $("chart").className = "dots";
  redraw($("chart"), `dots ${width}`, () => [picture]);
}

function comparisonTable(d, a, b) {
  const tabs = ["Run", a.phases?.length && "Phase", a.zones?.length > 1 && "Zone"].filter(Boolean);
  const tab = choice("tabs", tabs, "", (t) => t + "s"), key = tab.toLowerCase(), list = key + "s";
  const of = (c, p) => c?.[list]?.find((q) => q[key] === p.key)?.joules ?? {};
  if (tab === "Run") {
    const both = [["a", b ? "A" : "Energy", b ? "A, time" : "Time"], b && ["b", "B", "B, time"]].filter(Boolean);
    drawTable([label(b ? "Pair" : "Run", (r) => r.key), ...both.flatMap(([c, energy, time]) => [
      figure(energy, (r) => r[c]?.joules, joules), figure(time, (r) => r[c]?.seconds, duration)]),
    b && figure("A / B", (r) => r.b?.joules ? r.a.joules / r.b.joules : null, ratio),
    ], a.runs.map((run, i) => ({key: String(i + 1), a: run, b: b?.runs[i]})), b ? "Pair" : "Run");
  } else {
    const r = (p) => of(d.ratios, p), interval = (q) => `${ratio(q.ci95_low)} to ${ratio(q.ci95_high)}`;
    const text = (name, t) => d.ratios && label(name, (p) => r(p).ci95_low == null ? "" : t(r(p)), "");
    drawTable([label(tab, (p) => p.key), figure(b ? "A" : "Energy", (p) => of(a, p).mean, joules),
      b && figure("B", (p) => of(b, p).mean, joules), d.ratios && figure("Ratio", (p) => r(p).a_to_b, ratio),
      text("95 % interval", interval), text("Difference", (q) => q.significant ? "shown" : "not shown"),
    ], a[list].map((p) => ({key: p[key]})), b ? "A" : "Energy");
  }
}
