// SPDX-License-Identifier: Apache-2.0

// Package weigh measures the attribution weights of claims other than CPU time: the clock rate of
// the CPU, hardware events, and resident memory.
//
// ByRate weighs CPU time by a clock rate (clock.go), by hardware events (events.go), or by the
// power that a model of hardware events estimates (model.go and smartwatts.go). Memory weighs
// claims by resident memory. Each sets the Work of an interval's Shares, and implements
// window.Weigher.
package weigh
