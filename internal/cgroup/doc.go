// SPDX-License-Identifier: Apache-2.0

// Package cgroup holds one tree of the host's cgroups: where they are mounted, what their counters
// show, on which package their memory is and how much CPU time they request.
//
// A Tree has a Node for each cgroup that a caller has asked for. Package workload interprets the
// paths.
package cgroup
