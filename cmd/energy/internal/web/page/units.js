// SPDX-License-Identifier: Apache-2.0
// Figures for people: SI prefixes with three digits, a narrow no-break space, and the unit.

const space = "\u202f";
const prefixes = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"]];

// prefixed returns a figure with the prefix that fits it, or that fits the largest one of a column.
function prefixed(v, unit, least = 5e-7, largest = v) {
  const size = Math.abs(v);
  if (!(size >= least)) return "0" + space + unit;
  const [by, prefix] = prefixes.find(([p]) => Math.abs(largest) >= p * 0.9995) ?? prefixes.at(-1);
  if (size < by * 0.005) return "<" + space + "0.01" + space + prefix + unit;
  const digits = Math.min(2, Math.max(0, 2 - Math.floor(Math.log10(size / by * 1.0005))));
  return (v / by).toFixed(digits).replace("-", "−") + space + prefix + unit;
}
const figureIn = (unit, by = 1, least) => (v, largest = v) => prefixed(v / by, unit, least, largest / by);
const watts = figureIn("W", 1, 5e-4), joules = figureIn("J"), grams = figureIn("g"), wattHours = figureIn("Wh", 3600);
const micro = (v) => v / 1e6;

const fixed = (v, digits) => v.toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits});
function percent(part) {
  if (part > 0 && part < 0.0005) return "<" + space + "0.1" + space + "%";
  return fixed(part * 100 || 0, part !== 0 && Math.abs(part) < 0.0995 ? 1 : 0) + space + "%";
}
const signed = (v, text) => (v < 0 ? "−" : "+") + text(Math.abs(v));
const change = (now, before) => before > 0 ? signed(now / before - 1, percent) : now > 0 ? "new" : "";

// money returns an amount with two decimals, or with two digits if it is smaller, and its currency.
function money(v, currency) {
  const decimals = v > 0 && v < 0.095 ? Math.min(8, 1 - Math.floor(Math.log10(v))) : 2;
  return fixed(v, decimals) + (currency ? " " + currency : "");
}
const rateText = (rate, unit = "", place = "") => `at ${+rate.toPrecision(5)} ${unit}/kWh${place ? ` (${place})` : ""}`;

// duration returns a time in words, seconds one with three digits, elapsed a multiple of a step for an axis.
function duration(s) {
  if (s < 1) return prefixed(s, "s");
  const [by, unit] = s < 120 ? [1, "s"] : s < 7200 ? [60, "min"] : s < 172800 ? [3600, "h"] : [86400, "days"];
  return +(s / by).toFixed(s / by < 9.95 ? 1 : 0) + space + unit;
}
const seconds = (s, largest = s) => largest < 120 ? prefixed(s, "s", 5e-7, largest) : duration(s);
function elapsed(s, step) {
  if (!step) return duration(s);
  const [by, unit] = step < 0.1 ? [1e-3, "ms"] : step < 60 ? [1, "s"] : step < 3600 ? [60, "min"] : [3600, "h"];
  return +(s / by).toFixed(6) + space + unit;
}

// Times are written as 2026-11-28 13:51:00 in all languages. Periods of months are in UTC.
const clock = (ms) => new Date(ms).toLocaleTimeString("sv"), dateTime = (ms) => new Date(ms).toLocaleString("sv");
const utc = (time) => new Date(time).toISOString().replace("T", " ").slice(0, 16);

// words returns a command as a shell takes it.
const quoted = (word) => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
const words = (command) => command.map(quoted).join(" ");
const short = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;

// Words for the zones of reports. Zones of the live page have a title.
const titles = new Map(Object.entries({package: "CPU", core: "CPU cores", uncore: "CPU graphics", dram: "Memory",
  psys: "Mainboard", platform: "Machine", other: "Other parts", gpu: "GPU"}));
const titleOf = (zone) => titles.get(zone) ?? zone;

// errorOf returns the expected error of a sum of zones with watts, or null if a zone is measured. The errors of models
// are independent.
function errorOf(zones) {
  if (!zones.length || zones.some((z) => z.source !== "modeled")) return null;
  return Math.hypot(...zones.map((z) => z.watts * (z.error ?? NaN))) / sumOf(zones, (z) => z.watts);
}
const about = (error) => error == null ? "" : "about ";
const range = (error) => error > 0 ? ` (±${percent(error)})` : "";
