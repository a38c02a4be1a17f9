// SPDX-License-Identifier: Apache-2.0
// Documents of energy measure: a run, or the runs of one or two commands. Energies are in joules.

const added = (zones, list) => sumOf(zones.map((z, i) => z.added ? list?.[i] : 0));
const qualityOf = (d, zones) => quality(zones.map((z) =>
  ({name: titleOf(z.zone), source: z.source, error: z.uncertainty, besides: titleOf(z.overlaps_with)})), d.notes);

function drawRun(d) {
  const counted = d.zones.filter((z) => z.added), idle = sumOf(counted, (z) => z.node_idle_joules), {co2e, price} = d;
  const others = Math.max(0, d.node_joules - d.joules - idle), measured = d.joules != null;
  const error = counted.length && counted.every((z) => z.source === "modeled") ? d.uncertainty ?? 0 : null;
  const [name] = commandLines(d.command), power = watts(d.mean_watts), time = seconds(d.seconds);
  heading(words(d.command), "Energy of a command", `${dateTime(d.started)} · energy measure`);
  const used = [" used ", about(error), [joules(d.joules)], range(error), ` in ${time}, ${power} on average.`];
  const rest = [others > 0 && `other programs used ${joules(others)}`, idle > 0 && `${joules(idle)} was idle energy`];
  sentence([name], ...measured ? used : [` took ${time}. Its energy is not available.`], ...againstBase(d.ratios),
    d.exit_status && ` It failed with exit status ${d.exit_status}.`,
    others + idle > 0 && ` In that time, ${rest.filter(Boolean).join(", and ")}.`);
  tiles(measured && ["Energy", joules(d.joules), wattHours(d.joules)],
    measured && ["Mean power", power, d.node_joules > 0 && `the machine drew ${watts(d.node_joules / d.seconds)}`],
    ["Time", time, `${seconds(d.cpu_seconds)} of CPU time`],
    co2e && ["Emissions", grams(co2e.command), "CO₂e, " + rateText(co2e.per_kwh, "g", co2e.grid)],
    price && ["Cost of 1,000 runs", money(price.command * 1000, price.currency),
      rateText(price.per_kwh, price.currency)]);
  runChart(d, counted, idle);
  runTree(d);
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
  const whole = choice("group", ["This command", "Whole machine"]) === "Whole machine";
  const zones = counted.map(({zone}, i) =>
    ({name: (whole ? "This command, " : "") + titleOf(zone), fill: `var(--c${i % 7})`, keep: true}));
  const others = [{name: "Idle", fill: "var(--idle)"}, {name: "Other programs", fill: "var(--other)"}];
  drawChart({
    timeText: elapsed, phases: phases.filter((p) => p.name !== "none"), series: whole ? [...zones, ...others] : zones,
    points: samples.map((s) => {
      const used = counted.map((z) => s.joules[d.zones.indexOf(z)] ?? 0);
      const rest = Math.max(0, added(d.zones, s.node_joules) - sumOf(used));
      const still = Math.min(rest, idle / d.seconds * s.seconds);
      return {end: s.end, seconds: s.seconds, joules: whole ? [...used, still, rest - still] : used};
    }),
  });
}

// runTree shows a profile, the programs of the command, or what the machine ran.
function runTree(d) {
  const options = {"Flame graph": d.profile, Programs: d.joules > 0 && d.programs.length > 1, Workloads: d.workloads};
  const part = choice("trees", Object.keys(options).filter((o) => options[o]));
  const leaf = (name, rows) => node(name, sumOf(rows, (r) => added(d.zones, r.joules)));
  $("where").hidden = !part;
  if (part === "Flame graph") drawFlame(d.profile);
  if (part === "Programs") {
    const children = d.programs.map((p) => leaf(p.program, [p]));
    drawTree({root: node("This command", d.joules, {fill: "var(--c0)", children})});
  }
  if (part === "Workloads") {
    const groups = [...Map.groupBy(d.workloads, (w) => w.workload)];
    const group = ([name, rows]) => name === "(idle)" ? idleNode(leaf(name, rows).value)
      : {...leaf(name, rows), children: rows.map((w) => leaf(w.phase, [w]))};
    drawTree(withoutIdle("The machine", groups.map(group), d.seconds));
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
    ...d.zones.length > 1 ? d.zones.map((z, i) => figure(titleOf(z.zone), (r) => r.joules[i], joules, "wide")) : [],
    figure("Energy", all, joules), bar((r) => all(r) / most), figure("Share", (r) => sum ? all(r) / sum : 0, percent),
  ], list.map((r) => ({...r, key: `${r[key]}\n${r.phase}`, fill: "var(--c0)"})));
}

// outcomeOf returns the difference of two commands in a quantity and its significance, or null.
const byHow = (ratio) => `${percent(Math.abs(ratio - 1))} ${ratio < 1 ? "less" : "more"}`;
function outcomeOf(ratios, key = ratios?.compared_by ?? "joules") {
  const {a_to_b: ratio, ci95_low: low, ci95_high: high, significant} = ratios?.[key] ?? {};
  if (ratio == null) return null;
  const from = low < 1 === high < 1 ? percent(Math.abs(low - 1)) : byHow(low);
  const interval = low == null ? "" : ` (${from} to ${byHow(high)}, at 95 % confidence)`;
  return {significant, interval, by: byHow(ratio), of: `${byHow(ratio)} ${key === "joules" ? "energy" : "CPU time"}`};
}
function againstBase(ratios) {
  const o = outcomeOf(ratios), used = o?.significant ? [" It used ", [o.of], " than the base"] : null;
  return o ? [...used ?? [" No difference to the base is shown"], o.interval, "."] : [];
}

// quantities are the fields of runs, their names, and the texts of their values.
const quantities = [["joules", "Energy", joules], ["seconds", "Time", seconds], ["cpu_seconds", "CPU time", seconds],
  ["mean_watts", "Mean power", watts]];

function drawComparison(d) {
  const {commands, profile} = d, [a, b] = commands, [nameA, nameB] = commandLines(...commands.map((c) => c.command));
  const o = b && outcomeOf(d.ratios), means = (key, text) => commands.map((c) => text(c[key].mean));
  heading(commands.map((c) => words(c.command)).join(" against "),
    b ? "Energy of two commands, compared" : "Energy of a command, several runs",
    `${dateTime(a.runs[0].started)} · energy measure`);
  if (o?.significant) sentence([nameA], " uses ", [o.of], " than ", [nameB], o.interval, ".");
  else if (o) {
    sentence(["No difference is shown"], `: ${nameA} used ${o.of} than ${nameB}${o.interval}, not significant.`);
  } else {
    const used = a.joules ? [" used ", [joules(a.joules.mean)]] : [` took ${seconds(a.seconds.mean)}`];
    sentence([nameA], ...used, ` on average of ${a.runs.length} runs.`, ...againstBase(d.ratios),
      !a.joules && " Its energy is not available.");
  }
  tiles(...quantities.map(([key, name, text]) => {
    const {[key]: s} = a, of = outcomeOf(d.ratios, key);
    if (commands.some((c) => !c[key])) return null;
    const detail = b ? of && `A: ${of.by} in pairs${of.significant ? "" : ", not significant"}`
      : s.ci95_low != null && `${text(Math.max(0, s.ci95_low))} to ${text(s.ci95_high)}`;
    return [`${name}, mean of ${a.runs.length} runs`, means(key, text).join(" / "), detail];
  }));
  const quantity = quantities[d.ratios?.compared_by === "cpu_seconds" || !a.joules ? 2 : 0], [key, name] = quantity;
  write("power-h", `${name} of each run`);
  $("power").hidden = commands.some((c) => !c[key]);
  if (!$("power").hidden) drawDots(commands, quantity);
  $("where").hidden = !profile;
  if (profile) drawFlame(profile);
  comparisonTable(d, commands, quantity);
  qualityOf(d, a.runs[0].zones);
}

// drawDots draws a dot for each run, those of similar runs on top of each other, and the mean with its interval.
function drawDots(commands, [key]) {
  const width = $("chart").clientWidth || 900, height = 84 * commands.length + 22, right = width - 32;
  const left = commands[1] ? 44 : 22, picture = svg("svg",
    {role: "img", viewBox: `0 0 ${width} ${height}`, "aria-label": $("verdict").textContent});
  const ends = commands.flatMap(({[key]: s}) => [s.ci95_low ?? s.min, s.ci95_high ?? s.max, s.min, s.max]);
  const least = Math.max(0, Math.min(...ends)), most = Math.max(...ends), start = least < 0.7 * most ? 0 : least;
  const step = niceStep(most - start || most || 1, Math.max(4, Math.floor(width / 110)));
  const low = Math.floor(start / step) * step, high = Math.max(low + step, Math.ceil(most / step) * step);
  const x = (v) => left + (v - low) / (high - low) * (right - left), add = (...shape) => picture.append(svg(...shape));
  const line = (v, y1, y2, className) => add("line", {x1: x(v), x2: x(v), y1, y2, class: className});
  const tick = tickText(most, step, key === "joules" ? "J" : "s");
  for (let v = low; v < high + step / 2; v += step) {
    line(v, 0, height - 20, "grid");
    add("text", {x: x(v), y: height - 4, "text-anchor": "middle"}, tick(v));
  }
  for (const [i, {runs, [key]: {mean, ci95_low: from, ci95_high: to}}] of commands.entries()) {
    const y = i * 84 + 54, fill = `var(--c${i})`, rows = [], begin = x(Math.max(low, from)), height = 8;
    if (commands[1]) add("text", {x: 6, y: y + 5, class: "name"}, "AB"[i]);
    if (from != null) add("rect", {x: begin, width: x(to) - begin, y: y + 9, height, rx: 4, fill, opacity: 0.5});
    line(mean, y + 6, y + 20, "cursor");
    for (const cx of runs.map((r) => x(r[key])).sort((p, q) => p - q)) {
      const free = rows.findIndex((last) => cx - last > 11), row = free < 0 ? rows.length : free;
      rows[row] = cx;
      add("circle", {cx, cy: y - Math.min(row, 4) * 11, r: 5.5, fill});
    }
  }
  picture.style.height = height + "px";
  $("chart").className = "dots";
  redraw($("chart"), `dots ${width}`, () => [picture]);
  write("power-hint", "Each dot is a run. The line is the mean, the bar its 95 % confidence interval." +
    (low ? ` The axis starts at ${tick(low)}.` : ""));
}

// comparisonTable lists runs, or phases and zones.
function comparisonTable(d, commands, [quantity]) {
  const [a, b] = commands, sides = b ? [" A", " B"] : [""], ratio = (v) => v.toFixed(2), number = b ? "Pair" : "Run";
  const both = (name, value, text, cls) => sides.map((side, i) => figure(name + side, (r) => value(r, i), text, cls));
  const parts = (c) => [...c?.phases ?? [], ...a.zones?.length > 1 ? c?.zones ?? [] : []];
  if (choice("tabs", parts(a).length ? ["Runs", "Phases and components"] : []) !== "Phases and components") {
    const columns = quantities.filter(([key]) => a[key]).flatMap(([key, name, text]) =>
      both(name, (r, i) => r.runs[i]?.[key], text, key === quantity ? "" : "wide"));
    const quotient = ({runs: [p, q]}) => q?.[quantity] ? p[quantity] / q[quantity] : null;
    return drawTable([label(number, (r) => r.key), ...columns, b && figure("A / B", quotient, ratio)],
      a.runs.map((_, k) => ({key: String(k + 1), runs: commands.map((c) => c.runs[k])})), number);
  }
  const of = (c, r) => parts(c).find((q) => q.phase === r.phase && q.zone === r.zone) ?? {};
  const compared = (r) => of(d.ratios, r)[quantity] ?? of(d.ratios, r).joules ?? {};
  const shown = (name, t) => d.ratios && label(name, (r) => compared(r).ci95_low == null ? "" : t(compared(r)), "");
  drawTable([
    label("Part", (r) => r.phase ?? titleOf(r.zone)),
    ...both("Energy", (r, i) => of(commands[i], r).joules?.mean, joules),
    d.ratios && figure("Ratio", (r) => compared(r).a_to_b, ratio),
    shown("95 % interval", (q) => `${ratio(q.ci95_low)} to ${ratio(q.ci95_high)}`),
    shown("Difference", (q) => q.significant ? "shown" : "not shown"),
  ], parts(a).map((p) => ({phase: p.phase, zone: p.zone, key: `${p.phase}\n${p.zone}`})), "Energy" + sides[0]);
}
