// SPDX-License-Identifier: Apache-2.0

// Package claims joins what meters, CPU time sources and workloads tell of an interval into the
// attribution.Interval that the engine attributes.
//
// A Builder keeps the engine's claimants in step with the processes of the node and lists what each of them used,
// together with short-lived processes that only a cgroup's counter, a parent or the kernel shows. Keys weighs these
// claims by what energy is shared by instead of CPU time. What must never be here: the collector's types, logging, the
// arithmetic of shares.
package claims
