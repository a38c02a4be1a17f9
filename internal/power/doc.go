// SPDX-License-Identifier: Apache-2.0

// Package power measures how much energy the node uses.
//
// A Meter turns what a machine offers into zones with monotonic totals in microjoules that start at 0. Each meter has a
// folder: powercap (RAPL), hwmon and model (a power curve). A Set reads several of them side by side. Wraparound, resets
// and failed reads end here: nothing downstream sees a raw counter. What must never be here: who used the energy, the
// collector's types, a log line.
package power
