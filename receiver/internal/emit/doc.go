// SPDX-License-Identifier: Apache-2.0

// Package emit turns the ledger into OTLP metrics.
//
// It is the one package that knows pdata, joules and watts. Names, units, descriptions and what is
// enabled come from the generated package metadata. What workloads there are, and their attributes,
// come from the table entities of package units.
//
// The package changes no total, keeps no state between two emissions, and does not decide which accounts get a series.
package emit
