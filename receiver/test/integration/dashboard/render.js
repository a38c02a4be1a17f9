'use strict';

// ?node=, ?namespace= and ?pod= are regular expressions, ?end= is the last time (Unix) and ?hours= the hours before it, ?below= is
// the row of the grid before which to stop, ?open=1 opens collapsed rows. All may be left out.
const asked = new URLSearchParams(location.search);
const hours = Number(asked.get('hours') || 6);
const end = Number(asked.get('end')) || Math.floor(Date.now() / 1000), start = end - hours * 3600, step = Math.max(15, hours * 12);
const variables = {
  node: asked.get('node') || '.*',
  namespace: asked.get('namespace') || '.*',
  pod: asked.get('pod') || '.*',
  zones: 'package|dram|gpu',
  __rate_interval: asked.get('rate') || '5m',
  __range: `${hours}h`,
};

const palette = ['#73bf69', '#f2cc0c', '#5794f2', '#ff9830', '#b877d9', '#8ab8ff', '#fa6400', '#37872d', '#ca95e5', '#e0b400', '#ffa6b0', '#96d98d'];
const named = { white: '#d8d9da', green: '#73bf69', yellow: '#f2cc0c', blue: '#5794f2', orange: '#ff9830', red: '#f2495c', 'light-blue': '#2f5d9e', purple: '#b877d9' };

const element = (tag, className, text) => {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
};

// Units are Grafana's: https://github.com/grafana/grafana/blob/main/packages/grafana-data/src/valueFormats/categories.ts
function format(value, unit, decimals) {
  const digits = (v, d) => v.toLocaleString('en', { minimumFractionDigits: d ?? 0, maximumFractionDigits: d ?? (Math.abs(v) < 10 ? 2 : Math.abs(v) < 100 ? 1 : 0) });
  const scaled = (factors, suffix) => {
    for (const [factor, prefix] of factors) {
      if (Math.abs(value) >= factor) return `${digits(value / factor, decimals)} ${prefix}${suffix}`;
    }
    return `${digits(value, value === 0 ? 0 : decimals)} ${suffix}`;
  };
  switch (unit) {
    case 'watt': return scaled([[1e6, 'M'], [1e3, 'k'], [1, ''], [1e-3, 'm']].map(([f, p]) => [f, p]), 'W');
    case 'watth': return scaled([[1e3, 'k'], [1, '']], 'Wh');
    case 'kwatth': return `${digits(value, decimals)} kWh`;
    case 'percentunit': return `${digits(value * 100, decimals)} %`;
    case 'bytes': return scaled([[2 ** 30, 'Gi'], [2 ** 20, 'Mi'], [2 ** 10, 'Ki']], 'B');
    case 's': return scaled([[1, ''], [1e-3, 'm'], [1e-6, 'µ']], 's');
    case 'massg': return scaled([[1e6, 't'], [1e3, 'kg'], [1, 'g'], [1e-3, 'mg']], '');
    default: return digits(value, decimals) + (unit?.startsWith('suffix:') ? unit.slice('suffix:'.length) : '');
  }
}

const interpolate = text => text.replace(/\$\{?(\w+)\}?/g, (whole, name) => variables[name] ?? whole);

async function ask(path, values) {
  const answer = await fetch(`/api/v1/${path}`, { method: 'POST', body: new URLSearchParams(values) });
  const decoded = await answer.json();
  if (decoded.status !== 'success') throw new Error(decoded.error);
  return decoded.data.result;
}

function legendOf(target, labels) {
  if (target.legendFormat === '__auto') {
    const text = Object.entries(labels).map(([k, v]) => `${k}="${v}"`).join(', ');
    return text || target.expr;
  }
  return target.legendFormat.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => labels[name] ?? '').trim();
}

function thresholdColor(defaults, value) {
  let color = 'green';
  for (const s of defaults.thresholds?.steps ?? []) if (s.value === null || value >= s.value) color = s.color;
  return named[color] ?? color;
}

class Nothing extends Error {
  constructor(panel) { super(panel.fieldConfig.defaults.noValue); }
}

async function instant(panel) {
  const results = await Promise.all(panel.targets.map(t => ask('query', { query: interpolate(t.expr), time: end })));
  if (results.every(r => r.length === 0)) throw new Nothing(panel);
  return results;
}

async function stat(panel, body) {
  const results = await instant(panel), { defaults } = panel.fieldConfig;
  const box = element('div', 'stats');
  results.forEach((result, i) => result.forEach(r => {
    const value = Number(r.value[1]), one = element('div');
    const number = element('span', 'value', format(value, defaults.unit, defaults.decimals));
    number.style.color = thresholdColor(defaults, value);
    one.append(number);
    if (panel.options.textMode === 'value_and_name') one.append(element('small', '', legendOf(panel.targets[i], r.metric)));
    box.append(one);
  }));
  body.append(box);
}

async function bargauge(panel, body) {
  const [result] = await instant(panel), { defaults } = panel.fieldConfig;
  const most = Math.max(...result.map(r => Number(r.value[1])));
  const box = element('div', 'bars');
  for (const r of result) {
    const value = Number(r.value[1]), track = element('div', 'track'), fill = element('div', 'fill');
    fill.style.cssText = `width:${100 * value / most}%;background:${thresholdColor(defaults, value)}`;
    track.append(fill);
    box.append(element('span', '', legendOf(panel.targets[0], r.metric)), track, element('span', '', format(value, defaults.unit, defaults.decimals)));
  }
  body.append(box);
}

// The transformations merge and organize.
async function table(panel, body) {
  const results = await instant(panel);
  const organize = panel.transformations.find(t => t.id === 'organize').options;
  const rows = new Map();
  results.forEach((result, i) => result.forEach(r => {
    const key = JSON.stringify(r.metric);
    if (!rows.has(key)) rows.set(key, { ...r.metric });
    rows.get(key)[results.length > 1 ? `Value #${panel.targets[i].refId}` : 'Value'] = Number(r.value[1]);
  }));
  const columns = Object.entries(organize.indexByName).sort((a, b) => a[1] - b[1]).map(([name]) => name)
    .filter(name => !organize.excludeByName[name] && [...rows.values()].some(row => row[name] !== undefined));
  const title = name => organize.renameByName[name] ?? name;
  const sort = panel.options.sortBy?.[0].displayName;
  const by = columns.find(name => title(name) === sort);
  const sorted = [...rows.values()].sort((a, b) => (b[by] ?? 0) - (a[by] ?? 0));
  const t = element('table'), head = element('tr');
  const isNumber = name => name.startsWith('Value');
  for (const name of columns) head.append(element('th', isNumber(name) ? 'number' : '', title(name)));
  t.append(head);
  for (const row of sorted) {
    const line = element('tr');
    for (const name of columns) {
      const properties = panel.fieldConfig.overrides.find(o => o.matcher.options === title(name))?.properties ?? [];
      const property = id => properties.find(p => p.id === id)?.value;
      const text = row[name] === undefined ? '' : isNumber(name) ? format(row[name], property('unit'), property('decimals')) : name === 'container_id' ? row[name].slice(0, 12) : row[name];
      line.append(element('td', isNumber(name) ? 'number' : '', text));
    }
    t.append(line);
  }
  body.append(t);
}

function niceStep(span, count, unit) {
  const base = unit === 'bytes' ? 1024 ** Math.floor(Math.log(span) / Math.log(1024)) : 1;
  const raw = span / count / base, magnitude = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 2.5, 5, 10].map(f => f * magnitude).find(s => s >= raw) * base;
}

async function timeseries(panel, body) {
  const results = await Promise.all(panel.targets.map(t => ask('query_range', { query: interpolate(t.expr), start, end, step })));
  const { defaults, overrides } = panel.fieldConfig;
  const lines = [];
  results.forEach((result, i) => result.forEach(r => {
    const name = legendOf(panel.targets[i], r.metric);
    const property = id => overrides.find(o => o.matcher.options === name)?.properties.find(p => p.id === id)?.value;
    const fixed = property('color')?.fixedColor, lineWidth = property('custom.lineWidth') ?? defaults.custom.lineWidth;
    const points = new Map(r.values.map(([at, v]) => [at, Number(v)]).filter(([, v]) => Number.isFinite(v)));
    const stacked = (property('custom.stacking') ?? defaults.custom.stacking).mode === 'normal';
    if (points.size) lines.push({ name, lineWidth, stacked, color: fixed && (named[fixed] ?? fixed), points });
  }));
  if (!lines.length) throw new Nothing(panel);
  lines.forEach((l, i) => { l.color ??= palette[i % palette.length]; });

  const times = [];
  for (let at = start; at <= end; at += step) times.push(at);
  const below = new Map(times.map(at => [at, 0]));
  for (const l of lines) {
    l.segments = [[]];
    for (const at of times) {
      const v = l.points.get(at);
      if (v === undefined) { if (l.segments.at(-1).length) l.segments.push([]); continue; }
      const base = l.stacked ? below.get(at) : 0;
      if (l.stacked) below.set(at, base + v);
      l.segments.at(-1).push([at, base + v, base]);
    }
  }
  const width = body.clientWidth;
  const legendRows = lines.reduce((sum, l) => sum + 35 + 6.5 * l.name.length, 0) > width ? 2 : 1; // about
  const height = body.clientHeight - 26 - (legendRows - 1) * 17;
  const tops = lines.flatMap(l => l.segments.flat().map(p => p[1]));
  let top = Math.max(...tops);
  if (!(top > 0)) top = 1;
  const tick = niceStep(top, Math.max(2, Math.floor(height / 45)), defaults.unit);
  top = Math.ceil(top * 1.02 / tick) * tick;
  const low = Math.floor(Math.min(0, ...tops) / tick) * tick;
  const left = 62, right = 12, bottom = 20, above = 8;
  const x = at => left + (at - start) / (end - start) * (width - left - right);
  const y = v => above + (top - v) / (top - low) * (height - above - bottom);
  let svg = `<svg width="${width}" height="${height}">`;
  for (let v = low; v <= top * 1.0001; v += tick) {
    svg += `<line x1="${left}" x2="${width - right}" y1="${y(v)}" y2="${y(v)}" stroke="#26292f"/>` +
      `<text x="${left - 7}" y="${y(v) + 4}" text-anchor="end">${format(v, defaults.unit)}</text>`;
  }
  const every = hours > 4 ? 3600 : hours > 1 ? 1800 : Math.max(60, Math.ceil(hours * 3600 / 6 / 60) * 60);
  for (let at = Math.ceil(start / every) * every; at <= end; at += every) {
    if (x(at) > width - 30) continue;
    svg += `<text x="${x(at)}" y="${height - 4}" text-anchor="middle">${new Date(at * 1000).toISOString().slice(11, 16)}</text>`;
  }
  for (const l of lines) {
    for (const s of l.segments.filter(s => s.length)) {
      const upper = s.map(([at, v]) => `${x(at).toFixed(1)},${y(v).toFixed(1)}`).join(' ');
      if (l.stacked) {
        const lower = s.map(([at, , base]) => `${x(at).toFixed(1)},${y(base).toFixed(1)}`).reverse().join(' ');
        svg += `<polygon points="${upper} ${lower}" fill="${l.color}" fill-opacity="${defaults.custom.fillOpacity / 100}"/>`;
      }
      svg += `<polyline points="${upper}" fill="none" stroke="${l.color}" stroke-width="${l.lineWidth}" stroke-linejoin="round"/>`;
    }
  }
  const plot = element('div', 'plot');
  plot.innerHTML = `${svg}</svg>`;
  const legend = element('div', legendRows > 1 ? 'legend two' : 'legend');
  for (const l of lines) {
    const entry = element('span', '', l.name), mark = element('i');
    mark.style.background = l.color;
    entry.prepend(mark);
    legend.append(entry);
  }
  body.append(plot, legend);
}

const kinds = { stat, bargauge, table, timeseries };

// opened returns all panels, with those of collapsed rows below their rows.
function opened(panels) {
  let moved = 0;
  return panels.flatMap(panel => {
    panel.gridPos.y += moved;
    const inside = panel.panels ?? [];
    for (const p of inside) p.gridPos.y += moved;
    moved += Math.max(0, ...inside.map(p => p.gridPos.y + p.gridPos.h - panel.gridPos.y - 1));
    return [panel, ...inside];
  });
}

async function render() {
  const dashboard = await (await fetch('/energy.json')).json();
  const header = document.querySelector('header');
  header.append(element('h1', '', dashboard.title));
  for (const [name, text] of [['Node', variables.node], ['Namespace', variables.namespace], ['', `last ${hours} hours`]]) {
    const all = ['.*', '.+'].includes(text) ? 'All' : text.replace(/[()]/g, '').replaceAll('|', ' + ');
    const entry = element('span', '', name ? `${name} ` : '');
    entry.append(element('b', '', all));
    header.append(entry);
  }
  const last = Number(asked.get('below') || Infinity);
  const panels = (asked.get('open') ? opened(dashboard.panels) : dashboard.panels).filter(p => p.gridPos.y < last);
  await Promise.all(panels.map(async panel => {
    const { x, y, w, h } = panel.gridPos, box = element('section', panel.type === 'row' ? 'row' : 'panel');
    box.style.gridColumn = `${x + 1} / span ${w}`;
    box.style.gridRow = `${y + 1} / span ${h}`;
    document.getElementById('grid').append(box);
    if (panel.type === 'row') {
      box.textContent = panel.collapsed && !asked.get('open') ? `\u203a ${panel.title} (${panel.panels.length} panels)` : panel.title;
      return;
    }
    const body = element('div', 'body');
    box.append(element('h2', '', panel.title), body);
    try {
      await kinds[panel.type](panel, body);
      box.dataset.drawn = panel.title;
    } catch (e) {
      body.append(element('div', e instanceof Nothing ? 'nothing' : 'error', e.message));
    }
  }));
  document.body.dataset.done = 'yes';
}

render().catch(e => document.body.append(element('div', 'error', e.stack)));
