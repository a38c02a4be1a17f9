// SPDX-License-Identifier: Apache-2.0

// Package cgroup reads the tree of the host's cgroups: mount points, counters, the NUMA nodes of
// their memory, and the CPU time that they request.
//
// A Tree has a Node for each cgroup that callers request, and reads its CPU counter once per window
// for all callers. The callers attribute the CPU time of short-lived processes, and skip the
// processes of cgroups whose counter did not change. Package workload interprets the paths.
package cgroup
