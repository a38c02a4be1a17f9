// SPDX-License-Identifier: Apache-2.0

// Package cgroup holds one tree of the host's cgroups: their mount points, their counters, the CPU
// packages of their memory, and the CPU time that they request.
//
// A Tree has a Node for each requested cgroup, and reads its CPU counter once a window for all
// callers: the ledger, and CPU clocks, which leave out the processes of cgroups that did not run.
// Package workload interprets the paths.
package cgroup
