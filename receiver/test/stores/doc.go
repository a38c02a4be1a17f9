// SPDX-License-Identifier: Apache-2.0

// Package stores tests what databases make of the receiver's metrics. An hour of a node on which
// workloads start and exit, with restarts of the collector, is sent into each database, and the
// answers to Queries are compared with series.Truth.
//
// The receiver runs on a simulated machine and a simulated clock, so the hour takes seconds. The
// databases are real. `make stores` runs all available databases and prints the table of
// dev/backends.md.
package stores
