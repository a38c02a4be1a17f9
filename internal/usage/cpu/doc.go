// SPDX-License-Identifier: Apache-2.0

// Package cpu reads CPU time: the busy and total time of the node, and what each process used.
//
// A Reader reads both from a CPU time source (BPF, CPU clocks or procfs), interval by interval. A
// Source scans the processes into a reused scan.Table. With a divide.Topology all CPU time is
// divided by CPU package. Scans allocate nothing for idle processes.
package cpu
