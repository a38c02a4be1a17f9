// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/csv"
	"io"
	"math"
	"strconv"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
)

// csvHead returns the names of the columns of the CSV. Columns may be added at the end.
func csvHead() []string {
	return append(append([]string{"command", "run"}, names[:]...), append([]string{"added"}, quantities[:]...)...)
}

// statistics are the names of the statistics of several runs. Ratios have the first three.
var statistics = [...]string{"mean", "ci95_low", "ci95_high", "stddev", "min", "max", "median", "margin"}

// WriteCSV writes the report as CSV (RFC 4180). It has the figures of each run, the statistics of
// several runs, and the ratios of two commands.
func (r *Report) WriteCSV(w io.Writer) error {
	records := [][]string{csvHead()}
	add := func(command int, label, run string, value func(row *Row, q Quantity) float64) {
		for _, row := range r.of(command) {
			if row.Name != "" && r.By != measure.ByProgram && r.By != measure.ByContainer {
				continue
			}
			added := ""
			if row.Zone != "" {
				added = strconv.FormatBool(row.Besides == "")
			}
			texts := row.names()
			record := append(append([]string{label, run}, texts[:]...), added)
			for q := range numQuantities {
				record = append(record, decimal(value(row, q)))
			}
			records = append(records, record)
		}
	}
	for i, c := range r.Commands {
		for run := range c.Runs {
			add(i, c.Label, strconv.Itoa(run+1), func(row *Row, q Quantity) float64 { return row.Values[q][run] })
		}
		for n, name := range statistics {
			if len(c.Runs) > 1 {
				add(i, c.Label, name, func(row *Row, q Quantity) float64 { return row.statistics(q)[n] })
			}
		}
	}
	if len(r.Commands) > 1 {
		for n, name := range statistics[:3] {
			add(0, r.Commands[0].Label+"/"+r.Commands[1].Label, name, func(row *Row, q Quantity) float64 { return row.ratios(q)[n] })
		}
	}
	return csv.NewWriter(w).WriteAll(records)
}

// statistics returns the statistics of a quantity. Unavailable ones are NaN. The expected error of
// a model is relative to the mean energy, and has no spread.
func (row *Row) statistics(q Quantity) (of [len(statistics)]float64) {
	s := row.summary(q)
	of = [...]float64{s.Mean, s.Low, s.High, s.StdDev, s.Min, s.Max, s.Median, row.margin(q)}
	for i := range of {
		if s.Runs == 0 || q == Uncertainty || !s.Spread() && i >= 1 && i <= 3 {
			of[i] = math.NaN()
		}
	}
	if q == Uncertainty {
		of[0] = row.relative()
	}
	return of
}

// ratios returns a ratio and its interval.
func (row *Row) ratios(q Quantity) [3]float64 {
	r, of := row.Ratios[q], [3]float64{math.NaN(), math.NaN(), math.NaN()}
	if r.Pairs > 0 {
		of[0] = r.Mean
	}
	if r.Spread() {
		of[1], of[2] = r.Low, r.High
	}
	return of
}

// decimal returns a number with as many digits as it needs, and an empty text for NaN.
func decimal(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}
