// SPDX-License-Identifier: Apache-2.0

// Package units holds the value types that the rooms hand to each other.
//
// Inside the project energy is whole microjoules and CPU time is whole nanoseconds, so that sums are
// exact. Joules, watts and seconds appear only at the edges: in configuration and in receiver/internal/emit.
// What must never be here: I/O, floating-point state, or anything of the collector.
package units
