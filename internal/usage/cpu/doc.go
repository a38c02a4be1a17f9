// SPDX-License-Identifier: Apache-2.0

// Package cpu says who used the CPU: the node's busy and total time, and every process's.
//
// A Source fills one reused Table per pass; the Table compares it with the pass before and says who used
// how much, who is new, who ended with which last slice, and what can only be inferred. What must never
// be here: what a process belongs to, energy, the collector's types, an allocation per idle process.
package cpu
