// SPDX-License-Identifier: Apache-2.0

// Package weigh says how much was done in CPU time: at what clock rate it ran, or what the hardware counted.
//
// A Meter weighs the CPU times of an interval, so that energy can be shared by more than time. What nothing
// is known of counts as the average of what is. What must never be here: energy, who a process belongs to,
// an allocation for what was known before.
package weigh
