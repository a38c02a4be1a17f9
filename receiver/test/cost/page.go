// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"

	"github.com/energyreceiver/energyreceiver/receiver/test/table"
)

// writePage puts the table of scenarios into a page, if the page has their marks:
//
//	<!-- make cost SCENARIOS=start,exits -->
//	<!-- end -->
//
// and the medians of figures into sentences and tables, where the page names the scenario, the
// variant and the figure:
//
//	it uses <!-- idle: default: % of a CPU -->0.05<!-- --> % of one CPU
//
// Figures that were not measured stay.
func writePage(path, scenarios, text string, medians map[string]float64) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	filled, found := table.Fill(string(page), "<!-- make cost SCENARIOS="+scenarios+" -->\n", "<!-- end -->", text)
	filled = inline.ReplaceAllStringFunc(filled, func(mark string) string {
		median, measured := medians[inline.FindStringSubmatch(mark)[1]]
		if !measured {
			return mark
		}
		found = true
		return inline.ReplaceAllString(mark, "<!-- $1 -->"+rounded(median)+"<!-- -->")
	})
	if !found {
		return fmt.Errorf("%s has neither marks of SCENARIOS=%s nor of a figure", path, scenarios)
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
