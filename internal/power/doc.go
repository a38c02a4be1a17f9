// SPDX-License-Identifier: Apache-2.0

// Package power says how much energy the node used: zones, their counters, and the meters that read them.
//
// A Meter turns whatever a machine offers (RAPL through powercap, a power curve) into monotonic totals
// in microjoules that start at 0. Wraparound, resets and failed reads end here: nothing downstream sees
// a raw counter. What must never be here: who used the energy, the collector's types, a log line.
package power
