// SPDX-License-Identifier: Apache-2.0

// Package power measures how much energy the node uses.
//
// A Meter provides zones with monotonic totals in microjoules that start at 0. Each meter has a
// package below this package, and package drivers lists all meters. A Set reads several meters.
//
// Most meters implement a Source, which reads raw counters and powers. Direct converts a Source to
// a Meter. Poll does the same for a Source that may be slow. Both handle wraparound, resets and
// failed reads, so no other package uses raw counters. The package does not attribute energy.
package power
