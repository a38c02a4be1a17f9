// SPDX-License-Identifier: Apache-2.0

// Package cgroup holds one tree of the host's cgroups: where they are mounted, what their counters show, what memory they
// are charged with and how much CPU time they request.
//
// A Tree has a Node for each cgroup that somebody is interested in. What must never be here: what a path means, energy, a
// type of the collector.
package cgroup
