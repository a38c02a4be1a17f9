// SPDX-License-Identifier: Apache-2.0

// Package emit turns the ledger into OTLP metrics.
//
// It is the one room that knows pdata, joules and watts. Names, units and descriptions are those of
// metadata.yaml; a test of the receiver holds the two together. What must never be here: arithmetic that
// changes a total, state between two emissions, a decision about who gets a series.
package emit
