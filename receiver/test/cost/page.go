// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/energyreceiver/energyreceiver/receiver/test/table"
)

// measured holds the figures of scenarios.
type measured struct {
	medians map[string]float64 // by markOf
	rows    *table.Table       // identified by the first rowKeys columns
	machine string             // host of the measurements
}

// rowKeys is the number of columns that identify a figure.
const rowKeys = 3

func newMeasured(machine string) *measured {
	return &measured{medians: map[string]float64{}, machine: machine, rows: table.New("scenario", "program", "figure",
		"at most", "median", "least", "most", "times others", "machine")}
}

// write writes the figures to a CSV file or to a page. Other figures in the file are unchanged.
//
// A page names the scenario, the variant and the figure of a median:
//
//	it uses <!-- idle: default: % of a CPU -->0.05<!-- --> % of one CPU
func (m *measured) write(path string) error {
	if filepath.Ext(path) == ".csv" {
		return m.rows.Update(path, rowKeys)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	found := false
	filled := inline.ReplaceAllStringFunc(string(page), func(mark string) string {
		median, ok := m.medians[inline.FindStringSubmatch(mark)[1]]
		if !ok {
			return mark
		}
		found = true
		return inline.ReplaceAllString(mark, "<!-- $1 -->"+rounded(median)+"<!-- -->")
	})
	if !found {
		return fmt.Errorf("%s has no mark of a measured figure", path)
	}
	return os.WriteFile(path, []byte(filled), 0o644) //nolint:gosec // as other pages
}

// inline matches a marked figure.
var inline = regexp.MustCompile(`<!-- ([^>]+: [^>]+: [^>]+) -->[^<]*<!-- -->`)

// markOf returns the name of a figure on a page.
func markOf(scenario, variant, figure string) string {
	return scenario + ": " + variant + ": " + figure
}

// rounded formats a figure with about two digits.
func rounded(figure float64) string {
	decimals := 0
	switch {
	case figure < 1:
		decimals = 2
	case figure < 10:
		decimals = 1
	}
	return strconv.FormatFloat(figure, 'f', decimals, 64)
}
