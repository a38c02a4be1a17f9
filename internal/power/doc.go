// SPDX-License-Identifier: Apache-2.0

// Package power measures how much energy the node uses.
//
// A Meter turns what a machine offers into zones with monotonic totals in microjoules that start at
// 0. Each meter has a folder; package drivers lists them. A Set reads several meters side by side.
// A Source becomes a Meter by Direct, or by Poll if it may take long to answer. Wraparound, resets
// and failed reads are handled here, so that no other package sees a raw counter. The package does
// not attribute energy.
package power
