// SPDX-License-Identifier: Apache-2.0

// Package cgroup holds one tree of the host's cgroups: where they are mounted, what their counters
// show, on which package their memory is and how much CPU time they request.
//
// A Tree has a Node for each cgroup that a caller has asked for, and reads its CPU counter once a
// window for all callers: the ledger, and CPU clocks, which leave out the processes of cgroups that
// did not run. Package workload interprets the paths.
package cgroup
