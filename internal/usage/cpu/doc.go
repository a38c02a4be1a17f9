// SPDX-License-Identifier: Apache-2.0

// Package cpu reads CPU time: the busy and total time of the node, and the CPU time of each
// process.
//
// A Reader reads both, window by window: the node from a NodeClock, and the processes from a Source
// (BPF, CPU clocks or procfs), which scans them into a reused proc.Table. With a divide.Topology
// all CPU time is divided by CPU package. Scans do not allocate memory for idle processes.
package cpu
