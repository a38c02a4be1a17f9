// SPDX-License-Identifier: Apache-2.0

// Package emit turns the ledger into OTLP metrics.
//
// Names, units, descriptions and which metrics are
// enabled come from metadata.yaml through the generated package metadata. The kinds of workloads
// and their attributes come from the table entities of package identity.
//
// The package changes no total, keeps no state between two emissions, and does not decide which
// accounts get a series.
package emit
