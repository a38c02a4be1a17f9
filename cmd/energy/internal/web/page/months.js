// SPDX-License-Identifier: Apache-2.0
// Documents of energy report: energy of many nodes in a period, and in the period before, in joules.

const secondsOf = (time) => Date.parse(time) / 1000;

function drawMonths(d) {
  const {co2e, price, before, rows} = d, length = secondsOf(d.to) - secondsOf(d.from), [most] = rows;
  const idle = percent(d.idle_joules / d.joules), against = before && change(d.joules, before.joules);
  const restName = `Others, and no ${d.by}`, nameOf = (r) => r.name || restName;
  const covered = d.steps.filter((s) => s.covered > 0).length * d.step_seconds;
  const coverage = fixed(Math.floor(d.coverage * 1000 + 1e-6) / 10, d.coverage < 1 ? 1 : 0) + space + "%";
  const moved = (r) => !before || r.before_joules == null ? null : r.joules - r.before_joules;
  const moreText = (r) =>
    moved(r) == null ? "" : `${signed(moved(r), wattHours)}, ${change(r.joules, r.before_joules)}`;
  const moves = rows.filter(moved).sort((p, q) => moved(q) - moved(p)), gaps = d.gaps ?? [];
  const move = (title, r, sign) => r && moved(r) * sign > 0 && [title, nameOf(r), moreText(r)];
  heading(`Energy by ${d.by}`, `Energy report, by ${d.by}`, `${utc(d.from)} to ${utc(d.to)} UTC`);
  sentence(d.nodes ? `${d.nodes} nodes used ` : "All nodes used ", [wattHours(d.joules)], ` in ${duration(length)}`,
    against && `, ${against} against the ${duration(length)} before`, ". ", [idle], " was idle.",
    most && " ", most && [nameOf(most)], most && ` used most, ${percent(most.share)} of the active energy.`,
    d.coverage < 1 && ` There is data for ${coverage} of the time.`);
  const mean = `${watts(d.joules / covered)} on average${gaps.length ? ", without gaps" : ""}`;
  tiles(["Energy", wattHours(d.joules), mean],
    against && ["Change", against, `${wattHours(before.joules)} before`], ["Idle", idle, wattHours(d.idle_joules)],
    co2e && ["Emissions", grams(co2e.grams), "CO₂e, " + rateText(co2e.per_kwh, "g", co2e.grid)],
    price && ["Cost", money(price.cost, price.currency), rateText(price.per_kwh, price.currency)],
    move("Grew most", moves[0], 1), move("Fell most", moves.at(-1), -1),
    ["Coverage", coverage, gaps.length ? `gaps of all nodes: ${gaps.length}` :
      d.coverage < 1 ? "some nodes have gaps" : "no gaps"]);
  monthChart(d, nameOf, restName);
  const rest = d.rest?.joules ?? 0, parts = (r) => r.parts?.map((p) => node(p.name || "(none)", p.joules));
  const fill = (i) => i < 7 ? `var(--c${i})` : undefined;
  const ofRows = rows.map((r, i) => node(nameOf(r), r.joules, {children: parts(r), fill: fill(i)}));
  const ofRest = node(restName, rest, {id: "\x01", fill: "var(--none)"});
  drawTree({...withoutIdle("All nodes", [idleNode(d.idle_joules), ofRest, ...ofRows], length), text: wattHours});
  const largest = Math.max(...rows.map((r) => r.joules), 1e-9), kWh = (r) => r.joules / 3.6e6;
  drawTable([
    label(d.by[0].toUpperCase() + d.by.slice(1), nameOf), figure("Energy", (r) => r.joules, wattHours),
    bar((r) => r.joules / largest), figure("Share without idle", (r) => r.share, percent, "wide"),
    before && {...figure("Change", moved), text: moreText},
    price && figure("Cost", (r) => kWh(r) * price.per_kwh, (v) => money(v, price.currency), "wide"),
    co2e && figure("CO₂e", (r) => kWh(r) * co2e.per_kwh, grams, "wide"),
  ], [...rows.map((r, i) => ({...r, key: r.name, fill: fill(i)})),
    ...rest ? [{key: "\0", pin: 1, joules: rest, share: rest / d.active_joules}] : []]);
  const notes = gaps.map((g) => `No data from ${utc(g.from)} to ${utc(g.to)} UTC.`);
  const zones = d.zones.map((z) => ({name: titleOf(z.zone), source: z.source}));
  quality(zones, [...notes, ...d.notes, `Read from ${d.source}`]);
}

function monthChart(d, nameOf, restName) {
  const named = d.rows.slice(0, 7), series = named.map((r, i) => ({name: nameOf(r), fill: `var(--c${i})`}));
  drawChart({
    timeText: (t, step = 1) => utc(t * 1000).slice(5, step < 86400 ? 16 : 10),
    series: [{name: "Idle", fill: "var(--idle)"}, ...series, {name: restName, fill: "var(--rest)"}],
    points: d.steps.map((s, k) => {
      const used = named.map((r) => r.steps[k] ?? 0), rest = Math.max(0, s.active_joules - sumOf(used));
      const end = secondsOf(s.start) + d.step_seconds;
      return {end, seconds: d.step_seconds, joules: [s.idle_joules ?? 0, ...used, rest]};
    }).filter((p, k) => d.steps[k].covered > 0),
  });
}
