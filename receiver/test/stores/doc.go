// SPDX-License-Identifier: Apache-2.0

// Package stores tests what databases make of the receiver's metrics. An hour of a node on which workloads come and go,
// with restarts of the collector, is sent into each database, and the answers to Queries are compared with series.Truth.
//
// The hour is that of the receiver itself, on a simulated machine and a simulated clock, so it takes seconds. The
// databases are real. `make stores` runs all that are there and prints the table of dev/backends.md.
package stores
