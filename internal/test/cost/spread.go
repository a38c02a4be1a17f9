// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
)

// spread is the middle of several figures and its quartiles, which a quarter of the figures lie below and above.
type spread struct{ low, median, high float64 }

// spreadOf returns the spread of figures. Between two figures a quartile is interpolated linearly. Without figures all
// three are NaN.
func spreadOf(figures []float64) spread {
	sorted := slices.Sorted(slices.Values(figures))
	return spread{quantile(sorted, 0.25), quantile(sorted, 0.5), quantile(sorted, 0.75)}
}

func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}

// ratios divides the figures of each turn by those of the same turn. Turns that lack either are left out.
func ratios(figures, references []float64) (quotients []float64) {
	for i := range min(len(figures), len(references)) {
		if references[i] > 0 {
			quotients = append(quotients, figures[i]/references[i])
		}
	}
	return quotients
}
