// SPDX-License-Identifier: Apache-2.0
// Documents of energy measure: a run, or the runs of one or two commands. Energies are in joules.

const added = (zones, list) => sumOf(zones.map((z, i) => z.added ? list?.[i] : 0));
const joined = (...texts) => texts.filter(Boolean).join(" · ");
const qualityOf = (d, zones) => quality(zones.map((z) =>
  ({name: titleOf(z.zone), source: z.source, error: z.uncertainty, besides: titleOf(z.overlaps_with)})), d.notes);

function drawRun(d) {
  const counted = d.zones.filter((z) => z.added), idle = sumOf(counted, (z) => z.node_idle_joules), {co2e, price} = d;
  const others = Math.max(0, d.node_joules - d.joules - idle), measured = d.joules != null;
  const error = counted.length && counted.every((z) => z.source === "modeled") ? d.uncertainty ?? 0 : null;
  const [name] = commandLines([d.command]), power = watts(d.mean_watts), time = seconds(d.seconds), {base} = d;
  const before = (key, text) => base?.[key] && `base: ${text(base[key].mean)}${marginOf(base[key], text)}`;
  heading(words(d.command), "Energy of a command", `${dateTime(d.started)} · energy measure`);
  const used = [" used ", about(error), [joules(d.joules)], range(error), ` in ${time}, ${power} on average.`];
  const rest = [others > 0 && `other programs used ${joules(others)}`, idle > 0 && `${joules(idle)} was idle energy`];
  sentence([name], ...measured ? used : [` took ${time}. Its energy is not available.`], ...verdictOf(d),
    d.exit_status && ` It failed with exit status ${d.exit_status}.`,
    others + idle > 0 && ` In that time, ${rest.filter(Boolean).join(", and ")}.`);
  const whole = d.node_joules > 0 && `the machine drew ${watts(d.node_joules / d.seconds)}`;
  tiles(measured && ["Energy", joules(d.joules), joined(wattHours(d.joules), before("joules", joules))],
    measured && ["Mean power", power, joined(whole, before("mean_watts", watts))],
    ["Time", time, joined(!base && `${seconds(d.cpu_seconds)} of CPU time`, before("seconds", seconds))],
    base && ["CPU time", seconds(d.cpu_seconds), before("cpu_seconds", seconds)],
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
    tab === "Phase" && figure("Mean power", (r) => r.seconds > 0 ? all(r) / r.seconds : null, watts),
    ...d.zones.length > 1 ? d.zones.map((z, i) => figure(titleOf(z.zone), (r) => r.joules[i], joules, "wide")) : [],
    figure("Energy", all, joules), bar((r) => all(r) / most), figure("Share", (r) => sum ? all(r) / sum : 0, percent),
  ], list.map((r) => ({...r, key: `${r[key]}\n${r.phase}`, fill: "var(--c0)"})));
}

// marginOf returns the ± of a mean: its confidence interval, and the expected error of a model.
const marginOf = (s, text) => s.margin == null ? "" : ` ± ${text(s.margin)}`;

// verdictOf returns the sentence that decides a comparison, emphasized. The other sentences are shown below.
function verdictOf({ratios, verdict = [], base}) {
  const decides = verdict[ratios?.compared_by === "cpu_seconds" ? 1 : 0];
  const others = verdict.filter((s) => s !== decides).map((s) => s + ".");
  const runs = base?.runs.length, of = base && short(words(base.command), 120);
  also([...base ? [`Base: ${joined(of, runs > 1 ? `mean of ${runs} runs` : "1 run")}`] : [], ...others]);
  return decides ? [" ", [decides + "."]] : [];
}

// differenceOf returns the difference of commands in a quantity.
function differenceOf({ratios, base}, key) {
  const {a_to_b: ratio, ci95_low: low, significant} = ratios?.[key] ?? {};
  if (ratio == null) return "";
  const by = `${percent(Math.abs(ratio - 1))} ${ratio < 1 ? "less" : "more"}`;
  return (base ? by + " than the base" : `A: ${by} in pairs`) + (low == null || significant ? "" : ", not significant");
}

// quantities are the fields of runs, their names, and the texts of their values.
const quantities = [["joules", "Energy", joules], ["seconds", "Time", seconds], ["cpu_seconds", "CPU time", seconds],
  ["mean_watts", "Mean power", watts]];

function drawComparison(d) {
  const {profile, base} = d, commands = base ? [...d.commands, base] : d.commands, [a, b] = commands;
  const sides = base ? ["now", "base"] : ["A", "B"], [who] = commandLines(commands.map((c) => c.command), sides);
  heading(d.commands.map((c) => words(c.command)).join(" against "),
    d.commands[1] ? "Energy of two commands, compared" : "Energy of a command, several runs",
    `${dateTime(a.runs[0].started)} · energy measure`);
  const verdict = verdictOf(d), shown = a.joules ? ["used ", joules, a.joules] : ["took ", seconds, a.seconds];
  const [verb, text, mean] = shown, used = text(mean.mean) + marginOf(mean, text);
  if (d.commands[1]) sentence(...verdict);
  else {
    sentence([base ? "This command" : who], ` ${verb}`, [used], ` on average of ${a.runs.length} runs.`,
      !a.joules && " Its energy is not available.", ...verdict);
  }
  tiles(...quantities.filter(([key]) => a[key]).map(([key, name, text]) => {
    const all = (of) => commands.map((c) => c[key] ? of(c[key]) : "–").join(" / ");
    const margins = commands.some((c) => c[key]?.margin != null) && all((s) => marginOf(s, text).trim() || "–");
    return [`${name}, mean of ${a.runs.length} runs`, all((s) => text(s.mean)), joined(margins, differenceOf(d, key))];
  }));
  const quantity = quantities[d.ratios?.compared_by === "cpu_seconds" || !a.joules ? 2 : 0], [key, name] = quantity;
  write("power-h", `${name} of each run`);
  $("power").hidden = commands.some((c) => !c[key]);
  if (!$("power").hidden) drawDots(commands, quantity, sides);
  $("where").hidden = !profile;
  if (profile) drawFlame(profile);
  comparisonTable(d, commands, quantity, sides);
  qualityOf(d, a.runs[0].zones);
}

// drawDots draws a dot for each run, those of similar runs on top of each other, and the mean with its interval.
function drawDots(commands, [key], sides) {
  const width = $("chart").clientWidth || 900, height = 84 * commands.length + 22, right = width - 32;
  const left = commands[1] ? 26 + 9 * sides[1].length + 9 : 22, picture = svg("svg",
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
    if (commands[1]) add("text", {x: 6, y: y + 5, class: "name"}, sides[i]);
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
    (key === "joules" && commands.some((c) => c.uncertainty) ? " The error of the model is not included." : "") +
    (low ? ` The axis starts at ${tick(low)}.` : ""));
}

// comparisonTable lists runs, or phases and zones.
function comparisonTable(d, commands, [quantity, title], sides) {
  const [a, b] = commands, pairs = d.commands.length > 1, number = pairs ? "Pair" : "Run";
  const ratio = (v) => v.toFixed(2);
  const quotient = `${title} ${sides.join(" / ")}`, titled = (name, i) => b ? `${name} ${sides[i]}` : name;
  const both = (name, value, text, cls) =>
    commands.map((_, i) => figure(titled(name, i), (r) => value(r, i), text, cls));
  const parts = (c) => [...c?.phases ?? [], ...a.zones?.length > 1 ? c?.zones ?? [] : []];
  if (choice("tabs", parts(a).length ? ["Runs", "Phases and components"] : []) !== "Phases and components") {
    const columns = quantities.filter(([key]) => a[key]).flatMap(([key, name, text]) =>
      both(name, (r, i) => r.runs[i]?.[key], text, key === quantity ? "" : "wide"));
    const divided = ({runs: [p, q]}) => q?.[quantity] ? p[quantity] / q[quantity] : null;
    const longest = commands.reduce((p, q) => q.runs.length > p.runs.length ? q : p).runs;
    return drawTable([label(number, (r) => r.key), ...columns, pairs && figure(quotient, divided, ratio)],
      longest.map((_, k) => ({key: String(k + 1), runs: commands.map((c) => c.runs[k])})), number);
  }
  const of = (c, r) => parts(c).find((q) => q.phase === r.phase && q.zone === r.zone) ?? {};
  const compared = (r) => of(d.ratios, r)[quantity] ?? {};
  const shown = (name, t) => d.ratios && label(name, (r) => compared(r).ci95_low == null ? "" : t(compared(r)), "");
  drawTable([
    label("Part", (r) => r.phase ?? titleOf(r.zone)),
    ...both("Energy", (r, i) => of(commands[i], r).joules?.mean, joules),
    d.ratios && figure(quotient, (r) => compared(r).a_to_b, ratio),
    shown("95 % interval", (q) => `${ratio(q.ci95_low)} to ${ratio(q.ci95_high)}`),
    shown("Difference", (q) => q.significant ? "shown" : "not shown"),
  ], parts(a).map((p) => ({phase: p.phase, zone: p.zone, key: `${p.phase}\n${p.zone}`})), titled("Energy", 0));
}
