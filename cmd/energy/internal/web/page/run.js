// SPDX-License-Identifier: Apache-2.0
// Documents of energy measure: a run, or the runs of one or two commands.

const added = (zones, list) => sumOf(zones, (z) => z.added ? list?.[zones.indexOf(z)] : 0);
const flame = (p) => {
  const more = p.base_joules == null ? null : p.joules / p.base_joules - 1;
  const hash = [...p.name.replace(/[.:(].*/, "")].reduce((sum, c) => (sum * 31 + c.charCodeAt(0)) >>> 0, 7);
  return {
    id: p.name, name: p.name, value: p.joules, children: p.children?.map(flame), detail: more == null ? "" : `before: ${joules(p.base_joules)} (${change(p.joules, p.base_joules)})`,
    fill: more == null ? `var(--c${hash % 7})` : Math.abs(more) < 0.02 ? "var(--rest)" : more > 0 ? "var(--more)" : "var(--less)",
  };
};
const qualityOf = (d, zones) => quality(zones.map((z) => ({name: z.zone, source: z.source, error: z.uncertainty, besides: z.overlaps_with})), d.notes);

function drawRun(d) {
  const name = words(d.command), zones = d.zones, counted = zones.filter((z) => z.added), idle = sumOf(counted, (z) => z.node_idle_joules);
  const others = Math.max(0, d.node_joules - d.joules - idle), failed = d.exit_status ? ` It failed with exit status ${d.exit_status}.` : "";
  const error = counted.length && counted.every((z) => z.source === "modeled") ? d.uncertainty ?? 0 : null;
  heading(name, "Energy of a command", `${dateTime(d.started)} · energy measure`, "still");
  if (d.joules == null) sentence([name], ` took ${duration(d.seconds)}. Its energy is not available.`, failed);
  else sentence([name], " used ", about(error), [joules(d.joules)], range(error), ` in ${duration(d.seconds)}, ${watts(d.mean_watts)} on average.`,
    ratioText(d.ratios?.joules, "the base"), failed, d.node_joules > 0 ? ` The other programs used ${joules(others)}, and ${joules(idle)} was idle energy.` : "");
  tiles(d.joules != null && ["Energy", joules(d.joules), wattHours(d.joules)],
    d.mean_watts != null && ["Mean power", watts(d.mean_watts), d.node_joules > 0 ? `of ${watts(d.node_joules / d.seconds)} of the machine` : ""],
    ["Time", duration(d.seconds), `${duration(d.cpu_seconds)} of CPU time`],
    d.co2e && ["Emissions", grams(d.co2e.command), `CO₂e, at ${d.co2e.per_kwh} g/kWh`],
    d.price && ["Cost of 1,000 runs", money(d.price.command * 1000, d.price.currency), `at ${money(d.price.per_kwh, d.price.currency)} per kWh`]);
  runChart(d, counted, idle);
  runTree(d, counted, idle, others);
  runTable(d);
  qualityOf(d, zones);
}

function runChart(d, counted, idle) {
  const samples = d.samples.filter((s) => s.seconds > 0), phases = [];
  $("power").hidden = !samples.length || !counted.length;
  if ($("power").hidden) return;
  for (const s of samples) phases.at(-1)?.name === s.phase ? phases.at(-1).to = s.end : phases.push({name: s.phase, from: s.end - s.seconds, to: s.end});
  drawChart({
    timeText: elapsed, phases: phases.filter((p) => p.name !== "none"),
    series: [{name: "Idle", fill: "var(--idle)"}, ...counted.map((z, i) => ({name: `This command, ${z.zone}`, fill: `var(--c${i % 7})`, keep: true})), {name: "Other programs", fill: "var(--rest)"}],
    points: samples.map((s) => {
      const used = counted.map((z) => s.joules[d.zones.indexOf(z)] ?? 0), free = Math.max(0, added(d.zones, s.node_joules) - sumOf(used, (j) => j));
      const still = Math.min(free, idle / d.seconds * s.seconds);
      return {end: s.end, seconds: s.seconds, joules: [still, ...used, free - still]};
    }),
  });
}

function runTree(d, counted, idle, others) {
  const by = (list, key) => [...new Set(list.map((r) => r[key]))].map((name) => {
    const rows = list.filter((r) => r[key] === name);
    return {id: "by " + name, name, value: sumOf(rows, (r) => added(d.zones, r.joules)), rows, idle: name === "(idle)", fill: name === "(idle)" ? "var(--idle)" : undefined};
  });
  const parts = [d.profile && "Flame graph", d.joules > 0 && "By program", d.workloads && "By workload"].filter(Boolean), part = choice("trees", parts);
  $("where").hidden = !part;
  if (part === "Flame graph") return drawFlame(d.profile);
  if (part === "By workload") {
    drawTree(withoutIdle({name: "The machine", children: by(d.workloads, "workload").map((w) => ({...w, children: w.idle ? [] : by(w.rows, "phase")}))}));
  } else if (part) {
    drawTree(withoutIdle({name: "The machine", children: [{id: "command", name: "this command", value: d.joules, fill: "var(--c0)", children: by(d.programs, "program")},
      {id: "others", name: "other programs", value: others}, {id: "idle", name: "idle", value: idle, fill: "var(--idle)", idle: true}]}));
  }
}

function drawFlame(profile) {
  const changed = profile.base_joules != null;
  drawTree({root: flame(profile), flame: true, hint: changed ? "Red: more than before. Blue: less. " : ""});
}

function runTable(d) {
  const lists = {Programs: d.programs, Phases: d.phases.length > 1 ? d.phases : [], Workloads: d.workloads ?? []};
  const tab = choice("tabs", Object.keys(lists).filter((t) => lists[t].length)), key = (tab ?? "").toLowerCase().slice(0, -1);
  $("list").hidden = !tab;
  if (!tab) return;
  const all = (r) => added(d.zones, r.joules), list = lists[tab], sum = sumOf(list, all), most = Math.max(...list.map(all), 1e-9);
  drawTable([{name: tab.slice(0, -1), text: (r) => r[key], cls: "name"}, ...tab === "Workloads" ? [{name: "In phase", text: (r) => r.phase, cls: "of"}] : [],
    ...tab === "Phases" ? [{name: "Time", value: (r) => r.seconds, text: (r) => duration(r.seconds)}, {name: "Mean power", value: (r) => all(r) / r.seconds, text: (r) => watts(all(r) / r.seconds)}] : [],
    ...d.zones.length > 1 ? d.zones.map((z, i) => ({name: z.zone, cls: "wide", value: (r) => r.joules[i], text: (r) => joules(r.joules[i])})) : [],
    {name: "Energy", first: true, value: all, text: (r) => joules(all(r))}, {name: "Bar", cls: "bars", bar: (r) => all(r) / most},
    {name: "Share", value: all, text: (r) => percent(sum ? all(r) / sum : 0)}], list.map((r) => ({...r, key: [r[key], r.phase].join("\n")})));
}

// ratioText returns what a ratio to something shows.
function ratioText(r, other) {
  if (r?.a_to_b == null) return "";
  const by = change(r.a_to_b, 1), range = r.ci95_low == null ? "" : ` (95 % confidence interval ${change(r.ci95_low, 1)} to ${change(r.ci95_high, 1)})`;
  return r.significant ? ` That is ${by} against ${other}${range}.` : ` No difference to ${other} is shown: ${by}${range} may be chance.`;
}

function drawComparison(d) {
  const [a, b] = d.commands, r = d.ratios?.joules, full = d.commands.map((c) => words(c.command)), error = errorOf(a.zones.filter((z) => z.added).map((z) => ({...z, weight: z.joules?.mean, error: a.uncertainty})));
  const names = b && (full[0] === full[1] || full.some((n) => n.length > 40)) ? ["A", "B"] : full;
  heading(full.join(" against "), b ? "Energy of two commands, compared" : "Energy of a command, several runs", `${dateTime(a.runs[0].started)} · energy measure`, "still");
  if (b && r?.a_to_b != null) {
    const by = `${percent(Math.abs(r.a_to_b - 1))} ${r.a_to_b >= 1 ? "more" : "less"}`;
    const interval = r.ci95_low == null ? "" : ` The 95 % confidence interval of the ratio is ${r.ci95_low.toFixed(2)} to ${r.ci95_high.toFixed(2)}, from ${r.pairs} pairs.`;
    if (r.significant) sentence([names[0]], " uses ", [by], " energy than ", [names[1]], ".", interval);
    else sentence(["No difference is shown."], " ", [names[0]], ` used ${by} than `, [names[1]], ", which may be chance.", interval);
  } else if (a.joules) sentence([names[0]], " used ", about(error), [joules(a.joules.mean)], ` on average of ${a.runs.length} runs.`, ratioText(r, "the base"), b ? ` ${names[1]} used ${joules(b.joules?.mean)}.` : "");
  else sentence([names[0]], ` took ${duration(a.seconds.mean)} on average of ${a.runs.length} runs. Its energy is not available.`);
  const label = (i) => b ? "AB"[i] + ", " : "", between = (s, text) => s?.ci95_low == null ? "" : `${text(s.ci95_low)} to ${text(s.ci95_high)}`;
  tiles(...d.commands.map((c, i) => c.joules && [`${label(i)}mean of ${c.runs.length} runs`, joules(c.joules.mean), between(c.joules, joules)]),
    ...d.commands.map((c, i) => c.seconds && [`${label(i)}time`, duration(c.seconds.mean), between(c.seconds, duration)]),
    ...d.commands.map((c, i) => c.mean_watts && [`${label(i)}mean power`, watts(c.mean_watts.mean), between(c.mean_watts, watts)]));
  $("power-h").textContent = "Each dot is a run; the bar is the mean with its 95 % confidence interval";
  $("power").hidden = !a.joules;
  if (a.joules) drawDots(d.commands, full);
  $("where").hidden = !d.profile;
  if (d.profile) drawFlame(d.profile);
  comparisonTable(d, a, b);
  qualityOf(d, a.runs[0].zones);
}

function drawDots(commands, names) {
  const width = $("chart").clientWidth || 900, row = 84, height = row * commands.length + 22, values = commands.flatMap((c) => c.runs.map((run) => run.joules).concat(c.joules.ci95_low ?? [], c.joules.ci95_high ?? []));
  const low = Math.min(...values), high = Math.max(...values), pad = (high - low || high || 1) * 0.06, step = niceStep(high - low + 2 * pad, Math.max(2, Math.floor(width / 130)));
  const x = (v) => 14 + (v - low + pad) / (high - low + 2 * pad) * (width - 28), picture = svg("svg", {viewBox: `0 0 ${width} ${height}`, class: "dots", role: "img", "aria-label": $("verdict").textContent});
  for (let v = Math.ceil((low - pad) / step) * step; v <= high + pad; v += step) {
    picture.append(svg("line", {x1: x(v), x2: x(v), y1: 0, y2: height - 20, class: "grid"}), svg("text", {x: x(v), y: height - 4, "text-anchor": "middle"}, joules(+v.toPrecision(6))));
  }
  commands.forEach((c, i) => {
    const y = i * row + 54, color = `var(--c${i})`, {mean, ci95_low: from, ci95_high: to} = c.joules;
    picture.append(svg("text", {x: 14, y: y - 34, class: "title"}, (commands.length > 1 ? "AB"[i] + "  " : "") + names[i].slice(0, width / 8)));
    if (from != null) picture.append(svg("rect", {x: x(from), width: x(to) - x(from), y: y - 20, height: 8, rx: 4, fill: color, opacity: 0.45}));
    picture.append(svg("line", {x1: x(mean), x2: x(mean), y1: y - 25, y2: y + 9, class: "mean"}));
    c.runs.forEach((run, k) => {
      const dot = svg("circle", {cx: x(run.joules), cy: y, r: 5, fill: color});
      dot.append(svg("title", {}, `Run ${k + 1}: ${joules(run.joules)}`));
      picture.append(dot);
    });
  });
  picture.style.height = height + "px";
  $("chart").className = "dots";
  redraw($("chart"), "dots " + width, () => [picture]);
}

function comparisonTable(d, a, b) {
  const tab = choice("tabs", ["Runs", a.phases?.length && "Phases", a.zones?.length > 1 && "Zones"].filter(Boolean)), key = tab === "Phases" ? "phase" : "zone";
  const figure = (name, of, text, more) => ({name, value: of, text: (r) => of(r) == null ? "" : text(of(r)), ...more}), ratio = (v) => v.toFixed(2);
  if (tab === "Runs") {
    const rows = a.runs.map((run, i) => ({key: String(i), i: i + 1, a: run, b: b?.runs[i]}));
    return drawTable([figure(b ? "Pair" : "Run", (r) => r.i, String, {first: true}), ...["a", "b"].slice(0, d.commands.length).flatMap((c) => [
      figure(b ? c.toUpperCase() : "Energy", (r) => r[c]?.joules, joules), figure(b ? c.toUpperCase() + ", time" : "Time", (r) => r[c]?.seconds, duration)]),
    ...b ? [figure("A / B", (r) => r.b?.joules ? r.a.joules / r.b.joules : null, ratio)] : []], rows);
  }
  const list = tab === "Phases" ? "phases" : "zones", rows = a[list].map((p) => ({key: p[key], a: p, b: b?.[list].find((q) => q[key] === p[key]), r: d.ratios?.[list]?.find((q) => q[key] === p[key])?.joules}));
  drawTable([{name: tab.slice(0, -1), text: (r) => r.key, cls: "name"}, figure(b ? "A" : "Energy", (r) => r.a.joules?.mean, joules, {first: true}), ...b ? [figure("B", (r) => r.b?.joules?.mean, joules)] : [],
    ...d.ratios ? [figure("Ratio", (r) => r.r?.a_to_b, ratio), {name: "95 % interval", text: (r) => r.r?.ci95_low == null ? "" : `${ratio(r.r.ci95_low)} to ${ratio(r.r.ci95_high)}`},
      {name: "Difference", text: (r) => r.r?.a_to_b == null ? "" : r.r.significant ? "shown" : "not shown"}] : []], rows);
}
