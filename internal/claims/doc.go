// SPDX-License-Identifier: Apache-2.0

// Package claims joins the readings of meters, the usage of CPU time sources and the identities of
// workloads into the attribution.Interval that the engine attributes.
//
// A Builder keeps the engine's claimants in step with the processes of the node and lists the usage
// of each process, and of short-lived processes that only a cgroup's counter, a parent or the
// kernel shows. The file ends.go describes the end of a process. Keys weighs these claims under the
// allocation keys other than CPU time. The engine computes the shares.
package claims
