// SPDX-License-Identifier: Apache-2.0
// Live figures: a stream with a JSON message a line. Energies are in microjoules, powers in watts.

const live = {now: null, points: [], names: new Map(), heard: 0};
const spans = new Map([["1 min", 60], ["5 min", 300], ["30 min", 1800], ["All", Infinity]]);
const views = new Map(Object.entries({programs: "Program", processes: "Process", users: "User", containers: "Container", pods: "Pod",
  namespaces: "Namespace", vms: "VM", units: "Unit", jobs: "Job", zones: "Zone", gpus: "GPU"}));
const several = (view) => views.get(view) + (view === "processes" ? "es" : "s");
const viewOf = (title) => [...views.keys()].find((v) => several(v) === title);

function drawLive() {
  const {now} = live;
  if (!now) return;
  const tables = [...views.keys()].filter((v) => now.views[v]?.some((r) => !r.pin));
  const charted = [...views.keys()].filter((v) => live.points.some((p) => p.v[v]?.length));
  const zones = now.zones.filter((z) => !z.besides), error = errorOf(zones.map((z) => ({...z, weight: z.active + z.idle})));
  const state = now.recorded ? `Recorded ${dateTime(now.at)}` : `${now.source} · ${clock(now.at)}`;
  const recent = live.points.filter((p) => live.points.at(-1).t - p.t < 10000);
  const seconds = sumOf(recent, (p) => p.s), mean = (of) => micro(sumOf(recent, of)) / seconds;
  const power = seconds ? mean((p) => p.node) : sumOf(zones, (z) => z.active + z.idle);
  const active = seconds ? mean((p) => p.active) : sumOf(zones, (z) => z.active);
  heading(`${watts(power)} · ${now.host}`, `Energy of ${now.host}`, state);
  liveSentence(now, power, active, error, recent, seconds);
  liveTiles(now, power, active, error);
  liveChart(choice("group", charted.map(several)), choice("span", [...spans.keys()], now.recorded ? "All" : "5 min"));
  liveTree(now, zones);
  liveTable(now, viewOf(choice("tabs", tables.map(several))));
  quality(now.zones.map((z) => ({...z, name: z.title ?? z.name})), now.notes);
}

function liveSentence(now, power, active, error, recent, seconds) {
  const used = new Map();
  for (const p of recent) for (const s of p.v.programs ?? []) used.set(s.i, (used.get(s.i) ?? 0) + s.e);
  const [id, most] = [...used].sort((a, b) => b[1] - a[1])[0] ?? [];
  const top = most > 0 ? [", of which ", [live.names.get(id) ?? id], ` uses ${percent(micro(most) / seconds / active)}.`] : ["."];
  sentence(now.recorded ? `At the end of this recording, ${now.host} drew ` : "This machine draws ", about(error), [watts(power)],
    range(error), ". ", [watts(power - active)], " of it is idle power, which it draws in any case; programs share ", [watts(active)], ...top);
}

function liveTiles(now, power, active, error) {
  const {grams: perKWh, grid, price, currency} = now.rates ?? {}, gpus = now.views.gpus ?? [], busy = gpus.filter((g) => g.b != null);
  const names = new Set(gpus.map((g) => g.n)), gpu = gpus.length > 1 ? `${gpus.length} × ` : "";
  tiles([now.recorded ? "Power at the end" : "Power now", watts(power), error == null ? "" : `estimated${range(error)}: no meter was found`],
    [now.since ? `Energy in ${duration((now.at - now.since) / 1000)}` : "Energy", joules(micro(now.node)), wattHours(micro(now.node))],
    ["Idle", percent(power ? 1 - active / power : 0), "of the power"],
    gpus.length && ["GPUs", watts(sumOf(gpus, (g) => g.w)), gpu + (names.size === 1 ? [...names][0] : "GPUs") +
      (busy.length ? `, ${percent(sumOf(busy, (g) => g.b) / busy.length)} busy` : "")],
    perKWh != null && ["Emissions", grams(power / 1000 * perKWh) + "/h", `CO₂e, at ${perKWh} g/kWh${grid ? ` (${grid})` : ""}`],
    price != null && ["Cost", money(power / 1000 * 730.5 * price, currency), `a month at this power, at ${money(price, currency)} per kWh`]);
}

function liveChart(title, span) {
  const view = viewOf(title), length = spans.get(span) * 1000, last = live.points.at(-1)?.t ?? 0;
  const shown = live.points.filter((p) => last - p.t < length), totals = new Map();
  for (const p of shown) for (const s of p.v[view] ?? []) totals.set(s.i, (totals.get(s.i) ?? 0) + s.e);
  const named = [...totals].sort((a, b) => b[1] - a[1]).slice(0, 7).map(([id]) => id), color = colorsOf(named);
  const whole = view === "zones" || view === "gpus"; // their energy includes idle energy
  const rest = {zones: "Other zones", gpus: "Rest of the machine", programs: "All other programs"}[view] ?? `Other than these ${(title ?? "").toLowerCase()}`;
  const others = [{name: rest, fill: "var(--rest)"}, {name: "Unattributed", fill: "url(#hatch)"}];
  drawChart({
    timeText: (t, step = 0) => clock(t * 1000).slice(0, step < 60 ? 8 : 5), zone: new Date().getTimezoneOffset() * 60,
    series: [...whole ? [] : [{name: "Idle: drawn in any case", fill: "var(--idle)", keep: true}],
      ...named.map((id) => ({name: live.names.get(id) ?? id, fill: color(id)})), ...whole ? others.slice(0, 1) : others],
    points: shown.map((p) => {
      const used = new Map((p.v[view] ?? []).map((s) => [s.i, s.e])), list = named.map((id) => used.get(id) ?? 0), sum = sumOf(list, (e) => e);
      const all = whole ? [...list, p.node - sum] : [p.node - p.active, ...list, p.active - p.un - sum, p.un];
      return {end: p.t / 1000, seconds: p.s, joules: all.map((e) => micro(Math.max(0, e)))};
    }),
  });
}

// liveTree shows energy since the start: by what a program belongs to, or by zone.
function liveTree(now, zones) {
  const by = choice("trees", ["By owner", "By zone"]), rows = now.views.programs ?? [], root = {name: now.recorded ? now.host : "This machine", children: []};
  const leaf = (r, value) => ({id: r.i, name: r.pin ? r.n.replace(/:.*/, "") : r.n, value, detail: r.d, fill: r.pin ? "var(--none)" : colors.has(r.i) ? `var(--c${colors.get(r.i)})` : undefined});
  if (by === "By zone") {
    for (const z of zones) {
      const i = now.zones.indexOf(z), used = rows.filter((r) => r.z?.[i] > 0).map((r) => leaf(r, micro(r.z[i])));
      const idle = {id: "idle", name: "idle", value: micro(z.energy - z.activeEnergy), fill: "var(--idle)", idle: true};
      root.children.push({id: "zone " + z.name, name: z.title ?? z.name, value: micro(z.energy), children: [...used, idle]});
    }
  } else {
    for (const r of rows.filter((r) => r.e > 0)) {
      const [namespace, pod, container, vm, unit, user] = r.o, owner = container || vm || unit || (user && `user ${user}`) || "system";
      let at = root;
      for (const name of r.pin ? [] : pod ? [namespace, pod].filter(Boolean) : [owner]) {
        let child = at.children.find((c) => c.id === "group " + name);
        if (!child) at.children.push(child = {id: "group " + name, name, value: 0, children: []});
        child.value += micro(r.e);
        at = child;
      }
      at.children.push(leaf(r, micro(r.e)));
    }
    root.children.push({id: "idle", name: "idle", value: micro(now.node) - micro(sumOf(rows, (r) => r.e)), fill: "var(--idle)", idle: true});
  }
  drawTree(withoutIdle(root));
}

function liveTable(now, view) {
  const rows = (now.views[view] ?? []).filter((r) => !r.pin || r.e > 0), largest = Math.max(...rows.map((r) => r.w ?? 0), 1e-9), sum = sumOf(rows, (r) => r.e);
  const column = (name, key, text, more) => ({name, value: (r) => r[key], text: (r) => r[key] == null ? "" : text(r[key]), ...more});
  const has = (key) => rows.some((r) => r[key] != null);
  drawTable([
    {name: views.get(view) ?? "", text: (r) => r.n, cls: "name"},
    ...has("p") && view === "processes" ? [column("PID", "p", String)] : [],
    ...rows.some((r) => r.o?.some(Boolean)) ? [{name: "Belongs to", cls: "of", text: (r) => (r.o ?? []).filter((o) => o && o !== r.n).join(" · ")}] : [],
    column("Power", "w", watts, {first: true}),
    {name: "Bar", cls: "bars", bar: (r) => (r.w ?? 0) / largest},
    ...has("b") ? [column("Busy", "b", percent)] : [], ...has("g") && view !== "gpus" ? [column("GPU", "g", watts, {cls: "wide"})] : [],
    ...has("c") ? [column("CPU time", "c", duration, {cls: "wide"})] : [],
    column("Energy", "e", (e) => joules(micro(e))), column("Share", "e", (e) => percent(sum ? e / sum : 0), {cls: "wide"}),
  ], rows.map((r) => ({...r, key: r.i, title: r.d ? `${r.n} ${r.d}` : r.n})));
}

// take adds a message. A point replaces the last ones that it contains.
function take(m) {
  if (m.version !== 1) return stop("This page and energy web are of different versions");
  if (m.complete) Object.assign(live, {points: [], names: new Map()});
  for (const [id, name] of Object.entries(m.names ?? {})) live.names.set(id, name);
  for (const p of m.points ?? []) {
    while (live.points.length && live.points.at(-1).t > p.t - p.s * 1000 + 1) live.points.pop();
    live.points.push(p);
  }
  if (m.now) Object.assign(live, {now: m.now, heard: performance.now()});
  warn(m.problem || live.now?.wrong);
  if (m.problem) status("No new figures", "bad");
  if (!document.hidden) requestAnimationFrame(draw);
}

// stop reloads the page once, which helps if a server of another version answers.
function stop(reason) {
  if (!sessionStorage.reloaded) {
    sessionStorage.reloaded = "yes";
    location.reload();
  }
  throw new Error(reason);
}

async function read(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (text + value).split("\n");
    text = lines.pop();
    for (const line of lines) take(JSON.parse(line));
    delete sessionStorage.reloaded;
  }
}

async function follow() {
  if (location.hash.length > 1) {
    sessionStorage.token = location.hash.slice(1);
    history.replaceState(null, "", location.pathname);
  }
  for (let delay = 500; ; delay = Math.min(delay * 2, 15000)) {
    let reason = "";
    try {
      const r = await fetch("stream", {headers: {Authorization: "Bearer " + (sessionStorage.token ?? "")}});
      if (r.status === 401) return status("No access", "bad"), warn("Open the address that energy web printed: it ends with the token that this page lacks.");
      if (!r.ok) reason = await r.text();
      else {
        delay = 250;
        await read(r);
      }
    } catch (e) { reason = e.message; }
    if (reason) console.info(reason);
    status("No answer", "bad");
    warn(`No answer from energy web${reason ? ` (${reason.trim()})` : ""}. Trying again in ${duration(delay / 1000)}.`);
    await new Promise((done) => setTimeout(done, delay));
  }
}

draw = drawLive;
status("Connecting");
follow();
setInterval(() => {
  const age = (performance.now() - live.heard) / 1000;
  if (live.heard && age > 60 && !document.hidden && !live.now.recorded) warn(`No new figures for ${duration(age)}.`);
}, 10000);
