// SPDX-License-Identifier: Apache-2.0

// Package state stores the totals and the trained models, and restores them at the next start.
//
// The state is one value, in a file ([File]) or under the key [Key] of a storage extension. The
// receiver persists no other data. Only package guest resumes from the powercap trees that it wrote
// for guests. The state has these parts:
//
//	part               type               owner, which records and restores the part
//	trained models     training.Models    package training: static power by zone kind and by GPU
//	boot, clocks       [Totals]           this package: whether the totals are of this boot, and their age
//	settings           [Totals]           package config: SettingsOfTotals; other settings reset the totals
//	energy of series   ledger.State       package ledger: zones, kinds, accounts, deferred energy
//	index of zones     window.State       package window: which zone, kind and domain an index is
//	cgroup counters    cgroup.Past        package cgroup: CPU time that is not attributed yet
//	energy counters    power.Past         package power: the last raw readings
//	CPU time           cpu.Past           package cpu: the node, packages, CPUs and processes at the last scan
//
// encoding.go is the format of all parts but the models, whose format is in package training.
package state
