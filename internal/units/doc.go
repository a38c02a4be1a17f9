// SPDX-License-Identifier: Apache-2.0

// Package units holds the value types that the other packages exchange.
//
// Inside the project energy is in whole microjoules and CPU time in whole nanoseconds, so that sums
// are exact. Joules, watts and seconds appear in the configuration, in
// messages and metrics, and in the static power models of package static. The package does no I/O and
// imports nothing of the collector.
package units
