// SPDX-License-Identifier: Apache-2.0
// A report has its document inside.

const {kind, data} = JSON.parse($("data").textContent);
draw = () => ({run: drawRun, comparison: drawComparison, report: drawMonths})[kind](data);
draw();
addEventListener("beforeprint", () => { table.all = true; draw(); });
