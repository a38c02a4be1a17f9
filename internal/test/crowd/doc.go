// SPDX-License-Identifier: Apache-2.0

// Package crowd starts thousands of real processes for benchmarks, and ends them.
//
// They are forked from one small program, so that ten thousand take little memory. Only tests and
// benchmarks use it. What must never be here: a measurement.
package crowd
