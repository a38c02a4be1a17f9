// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
)

// spread is the minimum, the median and the maximum of figures.
type spread struct{ least, median, most float64 }

// spreadOf returns the spread of figures. The median of an even number is halfway between the two
// in the middle. Without figures all three are NaN.
func spreadOf(figures []float64) spread {
	if len(figures) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(figures))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + median) / 2
	}
	return spread{sorted[0], median, sorted[len(sorted)-1]}
}

// format writes the median, with the minimum and the maximum in brackets.
func (s spread) format(decimals int) string {
	return fmt.Sprintf("%.*f [%.*f, %.*f]", decimals, s.median, decimals, s.least, decimals, s.most)
}

// ratios divides figures by references, turn by turn. It leaves out turns without either.
func ratios(figures, references []float64) (quotients []float64) {
	for i := range min(len(figures), len(references)) {
		if references[i] > 0 {
			quotients = append(quotients, figures[i]/references[i])
		}
	}
	return quotients
}
