// SPDX-License-Identifier: Apache-2.0

// Package cpu reads who used the CPU: the busy and total time of the node, and what each process used.
//
// A Reader reads both from a CPU time source, procfs or BPF, interval by interval. A Source scans the processes into a
// reused Table, which compares each scan with the one before: what each process used, which are new, which ended with what
// last slice, and what short-lived processes used that no scan saw. With a Topology all of it is divided by CPU package.
// Scans allocate nothing for idle processes.
package cpu
