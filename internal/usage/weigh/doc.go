// SPDX-License-Identifier: Apache-2.0

// Package weigh measures the weights of claims under the allocation keys other than CPU time: the
// clock rate at which CPU time ran, the hardware events counted meanwhile, and the memory that was
// held.
//
// ByRate weighs CPU time by a clock rate (clock.go) or by counted events (counters.go), Memory by
// what is held. Each sets the Work of an interval's Shares, and implements claims.Weigher.
package weigh
