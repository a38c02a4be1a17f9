// SPDX-License-Identifier: Apache-2.0

// Package window joins the readings of meters, the usage of CPU time sources and the identities of
// workloads. The result is an attribution.Interval for each window.
//
// A Collector keeps the ledger's claimants in step with the processes of the node. In each window
// between two measurements, it makes a table. A row is a use of the CPUs by a process, or by
// short-lived processes that only a cgroup's counter, a parent or the kernel shows. Passes over the
// table compute the weights of the rows (cores and Keys) and divide the rows by CPU package
// (divider). The Collector has no pass for a feature that is off. A Sharer computes the shares.
//
// The file ends.go describes the end of a process.
package window
