// SPDX-License-Identifier: Apache-2.0
// Live figures: a stream with a JSON message a line. Energies are in microjoules, powers in watts.

const live = {now: null, points: [], names: new Map(), problem: ""};
const spans = {"1 min": 60, "5 min": 300, "30 min": 1800, All: Infinity};
const views = {programs: "Program", processes: "Process", users: "User", containers: "Container", pods: "Pod",
  namespaces: "Namespace", vms: "VM", units: "Unit", jobs: "Job", zones: "Component", gpus: "GPU"};
const plural = (view) => views[view] + (view === "processes" ? "es" : "s");
function largest(points, view) {
  const sums = new Map();
  for (const p of points) for (const s of p.v[view] ?? []) sums.set(s.i, (sums.get(s.i) ?? 0) + s.e);
  return [...sums].sort((a, b) => b[1] - a[1]);
}

function drawLive() {
  const {now, points, problem} = live, list = Object.keys(views);
  warn(problem || now?.wrong);
  if (!now) return problem && sentence();
  const zones = now.zones.filter((z) => !z.besides).map((z) => ({...z, watts: z.active + z.idle}));
  const some = zones.some((z) => z.active != null || z.idle != null); // is false before the second reading of counters
  // The mean of 10 s is steadier than the last interval, which stands for it if points are longer.
  const recent = points.filter((p) => now.at - p.t < 10000 && p.s < 15), seconds = sumOf(recent, (p) => p.s);
  const mean = (energy) => micro(sumOf(recent, energy)) / seconds;
  const error = errorOf(zones), power = seconds ? mean((p) => p.node) : some ? sumOf(zones, (z) => z.watts) : null;
  const active = seconds ? mean((p) => p.active) : sumOf(zones, (z) => z.active);
  const programs = (now.views.programs ?? []).filter((r) => !r.pin);
  const last = programs.reduce((p, q) => (q.w ?? 0) > (p?.w ?? 0) ? q : p, null);
  const [id, most] = largest(recent, "programs")[0] ?? [], used = seconds ? micro(most) / seconds : last?.w;
  const top = used > 0 && active > 0, name = seconds ? live.names.get(id) : last?.n;
  const time = now.recorded ? `recorded until ${dateTime(now.at)}` : clock(now.at);
  const past = now.recorded || problem, tense = (now, then) => past ? then : now;
  const state = problem ? `Last figures: ${time}` : `${now.source} · ${time}`;
  const title = power == null ? now.host : `${watts(power)} · ${now.host}`;
  heading(title, `Energy of ${now.host}`, state, Boolean(problem));
  if (power == null) sentence("Measuring: the power follows with the next reading.");
  else sentence(now.recorded ? "At the end of this recording, " : problem ? `At ${time}, ` : "",
    past ? "the machine drew " : "The machine draws ", about(error), [watts(power)], range(error), ". ",
    [watts(power - active)], tense(" of it is", " of it was"), " idle power, independent of load; programs ",
    tense("share ", "shared "), [watts(active)], ...top ? [", of which ", [short(name ?? "", 40)],
      tense(" uses ", " used "), [watts(used)], ` (${percent(used / active)} of that)`] : [], ".");
  liveTiles(now, zones, power, active, error, problem ? "Last power" : "Power now");
  const span = choice("span", Object.keys(spans), now.recorded ? "All" : "5 min");
  liveChart(choice("group", list.filter((v) => points.some((p) => p.v[v])), "programs", plural), spans[span] * 1000);
  liveTree(now, zones, choice("trees", ["By owner", "By component"]));
  liveTable(now, recent, choice("tabs", list.filter((v) => now.views[v]?.some((r) => !r.pin)), "programs", plural));
  quality(now.zones.map((z) => ({...z, name: z.title})), now.notes);
}

// energyTitle names the period of the energies, or its start if the chart has another period: the chart lacks the time
// that a collector was gone, and has all runs of a recording. The second text is a shorter period of the chart.
function energyTitle({at, since}) {
  const elapsed = (at - since) / 1000, charted = sumOf(live.points, (p) => p.s), earlier = live.points[0]?.t <= since;
  const [day] = dateTime(since).split(" "), begin = dateTime(at).startsWith(day) ? clock(since) : dateTime(since);
  const equal = !earlier && Math.abs(elapsed - charted) < 0.1, fewer = !earlier && charted < elapsed - 0.1;
  return [!since ? "Energy" : equal ? `Energy in ${duration(elapsed)}` : `Energy since ${begin}`,
    since && fewer ? `; the chart has ${duration(charted)} of ${duration(elapsed)}` : ""];
}

function liveTiles(now, zones, power, active, error, powerName) {
  const {grams: perKWh, grid, price, currency} = now.rates ?? {}, gpus = now.views.gpus ?? [];
  const busy = gpus.filter((g) => g.b != null), models = [...new Set(gpus.map((g) => g.n))].join(", ");
  const origin = error != null ? `estimated${range(error)}` : zones.every((z) => z.source === "measured") && "measured";
  const energy = micro(now.node), [kept, gap] = energyTitle(now);
  const busyText = busy.length && `${percent(sumOf(busy, (g) => g.b) / busy.length)} busy`;
  const gpuPower = gpus.some((g) => g.w != null) && watts(sumOf(gpus, (g) => g.w));
  tiles(power != null && [now.recorded ? "Power at the end" : powerName, watts(power), origin],
    [kept, joules(energy), wattHours(energy) + gap],
    power > 0 && ["Idle", percent(1 - active / power), "of the power"],
    ["GPUs", gpuPower || busyText, `${gpus.length} × ${models}${gpuPower && busyText ? `, ${busyText}` : ""}`],
    power > 0 && perKWh != null && ["Emissions", grams(power / 1000 * perKWh) + "/h",
      "CO₂e, " + rateText(perKWh, "g", grid)],
    power > 0 && price != null && ["Cost per month", money(power / 1000 * 730.5 * price, currency),
      rateText(price, currency)]);
}

// liveChart divides power. Zones and GPUs include idle energy, other rows have active energy only.
function liveChart(view, span) {
  const shown = live.points.filter((p) => live.points.at(-1).t - p.t < span);
  const whole = view === "zones" || view === "gpus";
  const ids = largest(shown, view).slice(0, 7).map(([id]) => id);
  setColors(ids);
  const named = ids.map((id) => ({name: live.names.get(id) ?? id, fill: fillOf(id)}));
  const rest = {name: whole ? "Rest of the machine" : "Other programs", fill: "var(--rest)"};
  const idle = {name: "Idle: independent of load", fill: "var(--idle)", keep: true};
  const timeText = (t, step = 1) => {
    const [date, time] = dateTime(t * 1000).split(" ");
    return step >= 3600 && time === "00:00:00" ? date.slice(5) : time.slice(0, step < 60 ? 8 : 5);
  };
  drawChart({
    timeText, offset: new Date().getTimezoneOffset() * 60,
    series: whole ? [...named, rest] : [idle, ...named, rest, {name: "Unattributed", fill: "var(--none)"}],
    points: shown.map((p) => {
      const used = new Map((p.v[view] ?? []).map((s) => [s.i, s.e]));
      const list = ids.map((id) => used.get(id) ?? 0), sum = sumOf(list);
      const all = whole ? [...list, p.node - sum] : [p.node - p.active, ...list, p.active - p.un - sum, p.un];
      return {end: p.t / 1000, seconds: p.s, joules: all.map((e) => micro(Math.max(0, e)))};
    }),
  });
}

// liveTree divides energy since the start: by what a program belongs to, or by zone.
function liveTree(now, zones, by) {
  const rows = (now.views.programs ?? []).filter((r) => r.e > 0), root = node("", 0, {children: []}), fills = new Map();
  for (const [view, list] of Object.entries(now.views)) {
    for (const r of list.filter((r) => colors.has(r.i))) fills.set(view === "users" ? `user ${r.n}` : r.n, fillOf(r.i));
  }
  const leaf = (r, energy) => node(r.pin ? r.n.split(":")[0] : r.n, micro(energy),
    {id: r.i, detail: r.d, fill: r.pin ? "var(--none)" : fillOf(r.i)});
  if (by === "By component") {
    for (const z of zones) {
      const i = now.zones.findIndex((o) => o.i === z.i);
      const used = rows.filter((r) => r.z?.[i] > 0).map((r) => leaf(r, r.z[i]));
      const children = [...used, idleNode(micro(z.energy - z.activeEnergy))];
      root.children.push(node(z.title, micro(z.energy), {id: z.i, fill: fillOf(z.i), children}));
    }
  } else {
    for (const r of rows) {
      const [namespace, pod, container, vm, unit, user] = r.o;
      const owner = container || vm || unit || (user ? `user ${user}` : "system");
      let at = root;
      for (const name of r.pin ? [] : pod ? [namespace, pod].filter(Boolean) : [owner]) {
        let group = at.children.find((c) => c.group && c.name === name);
        group ??= node(name, 0, {id: "group " + name, group: true, children: [], fill: fills.get(name)});
        if (!group.value) at.children.push(group);
        group.value += micro(r.e);
        at = group;
      }
      at.children.push(leaf(r, r.e));
    }
    root.children.push(idleNode(micro(now.node - sumOf(rows, (r) => r.e))));
  }
  drawTree(withoutIdle(now.host || "The machine", root.children, 0, energyTitle(now)[0]));
}

// liveTable lists the mean power, as the sentence does. Points have the largest rows only: the power of a row that a
// point lacks is the one of the last interval.
function liveTable(now, recent, view) {
  const complete = ([id], rank) => !rank || recent.every((p) => p.v[view]?.some((s) => s.i === id));
  const used = new Map(largest(recent, view).filter(complete)), seconds = sumOf(recent, (p) => p.s);
  const rows = (now.views[view] ?? []).filter((r) => !r.pin || r.e > 0).map((r) =>
    ({...r, w: used.has(r.i) ? micro(used.get(r.i)) / seconds : r.w,
      gpu: r.g > 0 && r.w > 0 ? Math.min(1, r.g / r.w) : null}));
  const some = (key) => rows.some((r) => r[key] != null);
  const most = Math.max(...rows.map((r) => r.w ?? 0), 1e-9), sum = sumOf(rows, (r) => r.e);
  const power = used.size ? `Power, last ${duration(seconds)}` : "Power";
  const owner = (o, i) => o && i === 5 ? `user ${o}` : o;
  const owners = (r) => r.o.map((o, i) => o === r.n ? "" : owner(o, i)).filter(Boolean).join(" · ");
  drawTable([
    label(views[view] ?? "", (r) => r.n), view === "processes" && figure("PID", (r) => r.p, String),
    rows.some(owners) && label("Belongs to", owners, "of"),
    some("w") && {...figure("Power", (r) => r.w, watts), head: power}, some("w") && bar((r) => (r.w ?? 0) / most),
    some("b") && figure("Busy", (r) => r.b, percent),
    view !== "gpus" && some("gpu") && figure("From GPUs", (r) => r.gpu, percent, "wide"),
    some("c") && figure("CPU time", (r) => r.c, duration, "wide"),
    figure("Energy", (r) => micro(r.e), joules),
    figure(view === "gpus" ? "Share" : "Share without idle", (r) => sum ? r.e / sum : 0, percent, "wide"),
  ], rows.map((r) => ({...r, key: r.i, fill: fillOf(r.i), title: r.d ? `${r.n} ${r.d}` : r.n})), "Power");
}

// take adds a message. A point replaces those that it contains.
function take(m) {
  if (m.version !== 1) return report("energy web has another version than this page. Load the page again");
  if (m.complete) Object.assign(live, {points: [], names: new Map()});
  for (const [id, name] of Object.entries(m.names ?? {})) live.names.set(id, name);
  for (const p of m.points ?? []) {
    while (live.points.at(-1)?.t > p.t - p.s * 1000 + 1) live.points.pop();
    live.points.push(p);
  }
  if (live.names.size > 20000) {
    const ids = new Set(live.points.flatMap((p) => Object.values(p.v).flat().map((s) => s.i)));
    for (const id of live.names.keys()) if (!ids.has(id)) live.names.delete(id);
  }
  live.now = m.now ?? live.now;
  report(m.problem);
}
let frame = 0;
function report(problem = "") {
  live.problem = problem;
  cancelAnimationFrame(frame);
  if (!document.hidden) frame = requestAnimationFrame(() => draw());
}

async function follow() {
  if (location.hash.length > 1) sessionStorage.token = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  for (let delay = 500; ; delay = Math.min(delay * 2, 15000)) {
    let reason = "No response from energy web";
    try {
      const r = await fetch("stream", {headers: {Authorization: "Bearer " + (sessionStorage.token ?? "")}});
      if (r.status === 401) return report("Open the full address that energy web printed: it ends in # and a token");
      if (!r.ok) throw new Error(await r.text());
      let text = "";
      for await (const part of chunks(r.body.pipeThrough(new TextDecoderStream()).getReader())) {
        const lines = (text + part).split("\n");
        text = lines.pop();
        for (const line of lines) take(JSON.parse(line));
        delay = 250;
      }
    } catch (e) { if (!(e instanceof TypeError)) reason = e.message.trim(); }
    report(`${reason}. Trying again in ${duration(delay / 1000)}`);
    await new Promise((done) => setTimeout(done, delay));
  }
}
async function* chunks(reader) {
  try {
    for (let {value, done} = await reader.read(); !done; {value, done} = await reader.read()) yield value;
  } finally { reader.cancel().catch(() => {}); }
}

addEventListener("hashchange", () => location.reload()); // the address of the next start was entered
draw = drawLive;
follow();
