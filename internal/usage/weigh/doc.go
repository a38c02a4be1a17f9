// SPDX-License-Identifier: Apache-2.0

// Package weigh measures the weights of claims under the allocation keys other than CPU time: the clock rate at which CPU
// time ran, the hardware events counted meanwhile, and the memory that was held.
//
// Each key has a file here. All of them set the Work of an interval's Shares, and each is a claims.Weigher.
package weigh
