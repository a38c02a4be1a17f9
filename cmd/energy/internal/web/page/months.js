// SPDX-License-Identifier: Apache-2.0
// Documents of energy report: energy of many nodes in a period, and in the period before.

function drawMonths(d) {
  const from = Date.parse(d.from) / 1000, to = Date.parse(d.to) / 1000, {co2e, price} = d, one = d.by[0].toUpperCase() + d.by.slice(1);
  const comparable = d.before && Math.abs(d.coverage - d.before.coverage) < 0.02, against = comparable ? change(d.joules, d.before.joules) : "";
  const cost = (j) => money(j / 3.6e6 * price.per_kwh, price.currency), moved = (r) => r.joules - (r.before_joules ?? r.joules);
  const moves = comparable ? d.rows.toSorted((p, q) => moved(q) - moved(p)) : [], [most] = d.rows, length = to - from;
  const move = (label, r, sign) => r && moved(r) * sign > 0 && [label, r.name, `${signed(moved(r), wattHours)}, ${change(r.joules, r.before_joules)}`];
  heading(`Energy by ${d.by}`, `Energy report, by ${d.by}`, `${utc(from * 1000)} to ${utc(to * 1000)} UTC`, "still");
  sentence("All nodes used ", [wattHours(d.joules)], ` in ${duration(length)}`, against ? `, ${against} against the ${duration(length)} before. ` : ". ", [percent(d.idle_joules / d.joules)], " was idle. ",
    ...most ? [[most.name], ` used most, ${percent(most.joules / d.active_joules)} of the rest.`] : [], d.coverage < 0.9995 ? ` Data covers ${percent(d.coverage)} of the time.` : "");
  tiles(["Energy", wattHours(d.joules), `${watts(d.joules / length / d.coverage)} on average`], ["Idle", percent(d.idle_joules / d.joules), wattHours(d.idle_joules)],
    co2e && ["Emissions", grams(co2e.grams), `CO₂e, at ${co2e.per_kwh} g/kWh${co2e.grid ? ` (${co2e.grid})` : ""}`],
    price && ["Cost", money(price.cost, price.currency), `${money(price.cost / length * 31557600, price.currency)} a year at this rate`],
    against && ["Change", against, `${wattHours(d.before.joules)} before`], move("Grew most", moves[0], 1), move("Fell most", moves.at(-1), -1),
    ["Coverage", percent(d.coverage), d.gaps.length ? `${d.gaps.length} ${d.gaps.length > 1 ? "gaps" : "gap"} without data` : "no gaps"]);
  warn(d.before && !comparable ? `Data of the period before covers ${percent(d.before.coverage)} of its time: changes are not shown.` : "");
  monthChart(d);
  drawTree({...withoutIdle({name: "All nodes", children: [{id: "idle", name: "idle", value: d.idle_joules, fill: "var(--idle)", idle: true}, {id: "rest", name: `no ${d.by}`, value: d.rest?.joules ?? 0},
    ...d.rows.map((r, i) => ({id: "row " + r.name, name: r.name || "(none)", value: r.joules, fill: i < 7 ? `var(--c${i})` : undefined, children: r.parts?.map((p) => ({id: p.name, name: p.name, value: p.joules}))}))]}), text: wattHours});
  const largest = Math.max(...d.rows.map((r) => r.joules), 1e-9), energy = {value: (r) => r.joules};
  drawTable([{name: one, text: (r) => r.name || "(none)", cls: "name"}, {name: "Energy", first: true, ...energy, text: (r) => wattHours(r.joules)}, {name: "Bar", cls: "bars", bar: (r) => r.joules / largest},
    {name: "Share", cls: "wide", ...energy, text: (r) => percent(r.share)}, ...price ? [{name: "Cost", ...energy, text: (r) => cost(r.joules)}] : [], ...co2e ? [{name: "CO₂e", cls: "wide", value: (r) => r.grams, text: (r) => grams(r.grams)}] : [],
    ...comparable ? [{name: "Change", value: (r) => r.joules / (r.before_joules || 1e-9), text: (r) => change(r.joules, r.before_joules)}, {name: "Difference", cls: "wide", value: moved, text: (r) => r.before_joules == null ? "" : signed(moved(r), wattHours)}] : [],
  ], [...d.rows.map((r) => ({...r, key: r.name})), ...d.rest?.joules ? [{key: "\0", pin: 1, name: `no ${d.by}`, joules: d.rest.joules, share: d.rest.joules / d.active_joules, grams: co2e && d.rest.joules / 3.6e6 * co2e.per_kwh}] : []]);
  quality(d.zones.map((z) => ({name: z.zone, source: z.source})), [...d.gaps.map((g) => `No data from ${utc(Date.parse(g.from))} to ${utc(Date.parse(g.to))} UTC.`), ...d.notes, `Read from ${d.source}`]);
}

function monthChart(d) {
  const named = d.rows.slice(0, 7), gaps = d.gaps.map((g) => ({from: Date.parse(g.from) / 1000, to: Date.parse(g.to) / 1000}));
  const days = (Date.parse(d.to) - Date.parse(d.from)) / 86400000;
  drawChart({
    gaps, timeText: (t, step) => utc(t * 1000).slice(5, step >= 86400 ? 10 : 16),
    series: [{name: "Idle", fill: "var(--idle)"}, ...named.map((r, i) => ({name: r.name, fill: `var(--c${i})`})), {name: `Others, and no ${d.by}`, fill: "var(--rest)"}],
    points: d.steps.map((s, k) => {
      const start = Date.parse(s.start) / 1000, seconds = d.step_seconds * s.covered, late = gaps.some((g) => g.from <= start && g.to > start);
      const used = named.map((r) => r.steps[k] ?? 0);
      return {end: late ? start + d.step_seconds : start + seconds, seconds, joules: [s.idle_joules, ...used, Math.max(0, s.active_joules - sumOf(used, (j) => j))]};
    }).filter((p) => p.seconds > 0),
  });
}
