// SPDX-License-Identifier: Apache-2.0

// Package emit turns the ledger into OTLP metrics.
//
// The names, units and descriptions of metrics, and the list of enabled metrics, come from
// metadata.yaml through the generated package metadata. The kinds of workloads and their attributes
// come from the table entities of package identity.
//
// The package changes no total, keeps no state between two emissions, and does not decide which
// accounts get a series.
package emit
