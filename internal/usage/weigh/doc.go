// SPDX-License-Identifier: Apache-2.0

// Package weigh measures the weights of claims under the allocation keys beside CPU time: the clock rate at which CPU time
// ran, what the hardware counted meanwhile, and the memory that was held.
//
// Each key has a file here. All of them set the Work of an interval's Shares, and each is a claims.Weigher. What must never
// be here: energy, who a process belongs to, an allocation for what was known before.
package weigh
