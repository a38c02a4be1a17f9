// SPDX-License-Identifier: Apache-2.0

// Package attribution is the engine: it splits each zone's energy into active and idle, and shares the
// active part among those who used the CPU, exact to the microjoule in every interval.
//
// An Interval goes in, the Ledger comes out. What must never be here: I/O, a clock, any package but units and the
// standard library, and floating point but in what a split learns.
package attribution
