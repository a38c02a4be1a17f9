// SPDX-License-Identifier: Apache-2.0
// A report has its document inside.

// Characters that are invisible or change the direction of a line are shown as question marks, as in a terminal.
const visible = (_, v) => typeof v === "string" ? v.replace(/(?![\n\t])[\p{Cc}\p{Cf}\u2028\u2029]/gu, "?") : v;
const {kind, data} = JSON.parse($("data").textContent, visible);
draw = () => ({run: drawRun, comparison: drawComparison, report: drawMonths})[kind](data);
draw();
