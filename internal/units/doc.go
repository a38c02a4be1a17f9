// SPDX-License-Identifier: Apache-2.0

// Package units holds the value types that the other packages exchange.
//
// Inside the project energy is in whole microjoules and CPU time in whole nanoseconds, so that sums
// are exact. Only the configuration, messages, metrics and the static power models of package
// static use joules, watts and seconds. The package does no I/O and does not depend on the
// collector.
package units
