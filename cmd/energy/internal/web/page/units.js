// SPDX-License-Identifier: Apache-2.0
// Figures for people: SI prefixes with three digits, a narrow no-break space, and the unit.

const space = "\u202f";
const prefixes = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"]];

function prefixed(v, unit) {
  if (v == null || !Number.isFinite(v)) return "–";
  const size = Math.abs(v);
  if (size < 5e-7) return "0" + space + unit;
  const [by, prefix] = prefixes.find(([p]) => size >= p * 0.9995) ?? prefixes.at(-1);
  const digits = Math.min(2, Math.max(0, 2 - Math.floor(Math.log10(size / by * 1.0005))));
  return (v / by).toFixed(digits) + space + prefix + unit;
}

const watts = (v) => v != null && Math.abs(v) < 5e-4 ? "0" + space + "W" : prefixed(v, "W");
const joules = (v) => prefixed(v, "J");
const wattHours = (j) => prefixed(j / 3600, "Wh");
const grams = (v) => prefixed(v, "g");
const micro = (v) => v / 1e6;

function percent(part) {
  if (!Number.isFinite(part)) return "–";
  if (part > 0 && part < 0.0005) return "<" + space + "0.1" + space + "%";
  const digits = part !== 0 && Math.abs(part) < 0.0995 ? 1 : 0;
  return (part * 100).toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits}) + space + "%";
}

// change returns by how much a value is more or less than before.
function change(now, before) {
  if (!(before > 0)) return now > 0 ? "new" : "";
  return (now >= before ? "+" : "−") + percent(Math.abs(now / before - 1));
}

// signed returns a difference with its sign.
const signed = (v, text) => (v < 0 ? "−" : "+") + text(Math.abs(v));

// money returns an amount with two decimals, or with two digits if it is smaller, and its currency.
function money(v, currency) {
  const decimals = v === 0 || v >= 0.095 ? 2 : Math.min(8, 1 - Math.floor(Math.log10(v)));
  const amount = v.toLocaleString("en", {minimumFractionDigits: decimals, maximumFractionDigits: decimals});
  return currency ? amount + space + currency : amount;
}

// duration returns a time in words, elapsed an exact one for an axis.
function duration(s) {
  if (s < 1) return prefixed(s, "s");
  if (s < 120) return s.toFixed(s < 9.95 ? 1 : 0) + space + "s";
  if (s < 7200) return (s / 60).toFixed(0) + space + "min";
  if (s < 172800) return +(s / 3600).toFixed(s < 36000 ? 1 : 0) + space + "h";
  return +(s / 86400).toFixed(s < 864000 ? 1 : 0) + space + "days";
}
function elapsed(s) {
  const two = (v) => String(Math.floor(v)).padStart(2, "0");
  if (s < 1) return prefixed(s, "s").replace(/(\.\d*?)0+(?=\u202f)/, "$1").replace(/\.(?=\u202f)/, "");
  if (s < 60) return +s.toFixed(3) + space + "s";
  if (s < 3600) return `${Math.floor(s / 60)}:${two(s % 60)}` + space + "min";
  return `${Math.floor(s / 3600)}:${two(s % 3600 / 60)}` + space + "h";
}

// Times of the day, and dates as 2026-11-28, the same in all languages. Reports have UTC, as their rows do.
const clock = (ms) => new Date(ms).toLocaleTimeString("sv");
const dateTime = (ms) => new Date(ms).toLocaleString("sv");
const utc = (ms) => new Date(ms).toISOString().replace("T", " ").slice(0, 16);

// words returns a command as a shell takes it.
const words = (command) => command.map((w) => /^[\w@%+=:,./-]+$/.test(w) ? w : `'${w.replaceAll("'", "'\\''")}'`).join(" ");

// errorOf returns the expected error of a sum of zones if all are estimated: the errors of models are independent.
function errorOf(zones) {
  if (!zones.length || zones.some((z) => z.source !== "modeled")) return null;
  return Math.hypot(...zones.map((z) => z.weight * (z.error ?? z.uncertainty ?? NaN))) / sumOf(zones, (z) => z.weight);
}
const about = (error) => error == null ? "" : "about ";
const range = (error) => error > 0 ? ` (±${percent(error)})` : "";
