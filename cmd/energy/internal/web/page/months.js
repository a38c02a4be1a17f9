// SPDX-License-Identifier: Apache-2.0
// Documents of energy report: energy of many nodes in a period, and in the period before, in joules.

const secondsOf = (time) => Date.parse(time) / 1000;

function drawMonths(d) {
  const {co2e, price, before} = d, length = secondsOf(d.to) - secondsOf(d.from), [most] = d.rows, none = `no ${d.by}`;
  const comparable = before && Math.abs(d.coverage - before.coverage) < 0.02, against = comparable ? change(d.joules, before.joules) : "";
  const moved = (r) => r.before_joules == null ? null : r.joules - r.before_joules, cost = (j) => money(j / 3.6e6 * price.per_kwh, price.currency);
  const moves = comparable ? d.rows.filter((r) => moved(r)).sort((p, q) => moved(q) - moved(p)) : [];
  const move = (title, r, sign) => r && moved(r) * sign > 0 && [title, r.name, `${signed(moved(r), wattHours)}, ${change(r.joules, r.before_joules)}`];
  heading(`Energy by ${d.by}`, `Energy report, by ${d.by}`, `${utc(Date.parse(d.from))} to ${utc(Date.parse(d.to))} UTC`, "still");
  sentence("All nodes used ", [wattHours(d.joules)], ` in ${duration(length)}`, against && `, ${against} against the ${duration(length)} before`, ". ",
    [percent(d.idle_joules / d.joules)], " was idle. ", ...most ? [[most.name || none], ` used most, ${percent(most.share)} of the rest.`] : [],
    d.coverage < 0.9995 && ` There is data for ${percent(d.coverage)} of the time.`);
  warn(before && !comparable ? `Changes are not shown: there is data for ${percent(before.coverage)} of the period before.` : "");
  tiles(["Energy", wattHours(d.joules), `${watts(d.joules / length / d.coverage)} on average`],
    against && ["Change", against, `${wattHours(before.joules)} before`], ["Idle", percent(d.idle_joules / d.joules), wattHours(d.idle_joules)],
    co2e && ["Emissions", grams(co2e.grams), "CO₂e, " + rateText(co2e.per_kwh, "g", co2e.grid)],
    price && ["Cost", money(price.cost, price.currency), rateText(price.per_kwh, price.currency)],
    move("Grew most", moves[0], 1), move("Fell most", moves.at(-1), -1),
    ["Coverage", percent(d.coverage), d.gaps.length ? `${d.gaps.length} ${d.gaps.length > 1 ? "gaps" : "gap"} without data` : "no gaps"]);
  monthChart(d);
  const parts = (r) => r.parts?.map((p) => node(p.name || "(none)", p.joules)), rest = d.rest?.joules ?? 0;
  const rows = d.rows.map((r, i) => node(r.name || "(none)", r.joules, {children: parts(r), fill: i < 7 ? `var(--c${i})` : undefined}));
  drawTree({...withoutIdle("All nodes", [idleNode(d.idle_joules), node(none, rest, {id: "\x01", fill: "var(--none)"}), ...rows]), text: wattHours});
  const largest = Math.max(...d.rows.map((r) => r.joules), 1e-9);
  drawTable([label(d.by[0].toUpperCase() + d.by.slice(1), (r) => r.name || "(none)"), figure("Energy", (r) => r.joules, wattHours, {first: true}),
    bar((r) => r.joules / largest), figure("Share", (r) => r.share, percent, {cls: "wide"}),
    comparable && {...figure("Change", (r) => r.before_joules == null ? null : r.joules / (r.before_joules || 1e-9)), text: (r) => r.pin ? "" : change(r.joules, r.before_joules)},
    comparable && figure("Difference", moved, (v) => signed(v, wattHours), {cls: "wide"}),
    price && figure("Cost", (r) => r.joules, cost, {cls: "wide"}), co2e && figure("CO₂e", (r) => r.joules / 3.6e6 * co2e.per_kwh, grams, {cls: "wide"}),
  ], [...d.rows.map((r) => ({...r, key: r.name})), ...rest ? [{key: "\0", pin: 1, name: none, joules: rest, share: rest / d.active_joules}] : []]);
  const gaps = d.gaps.map((g) => `No data from ${utc(Date.parse(g.from))} to ${utc(Date.parse(g.to))} UTC.`);
  quality(d.zones.map((z) => ({name: z.zone, source: z.source})), [...gaps, ...d.notes, `Read from ${d.source}`]);
}

// monthChart draws steps that are covered in part as long as they are covered.
function monthChart(d) {
  const named = d.rows.slice(0, 7), gaps = d.gaps.map((g) => ({from: secondsOf(g.from), to: secondsOf(g.to)}));
  drawChart({
    gaps, timeText: (t, step = 1) => utc(t * 1000).slice(5, step < 86400 ? 16 : 10),
    series: [{name: "Idle", fill: "var(--idle)"}, ...named.map((r, i) => ({name: r.name || "(none)", fill: `var(--c${i})`})),
      {name: `Others, and no ${d.by}`, fill: "var(--rest)"}],
    points: d.steps.filter((s) => s.covered > 0).map((s) => {
      const k = d.steps.indexOf(s), start = secondsOf(s.start), seconds = d.step_seconds * s.covered, used = named.map((r) => r.steps[k] ?? 0);
      const end = gaps.some((g) => g.from <= start && start < g.to) ? start + d.step_seconds : start + seconds;
      return {end, seconds, joules: [s.idle_joules, ...used, Math.max(0, s.active_joules - sumOf(used))]};
    }),
  });
}
