// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTheMedianIsInTheMiddleOfTheFigures(t *testing.T) {
	for _, c := range []struct {
		figures []float64
		want    spread
	}{
		{[]float64{7}, spread{7, 7, 7}},
		{[]float64{1, 2}, spread{1, 1.5, 2}},
		{[]float64{5, 1, 4, 2, 3}, spread{1, 3, 5}},
		{[]float64{4, 3, 2, 1}, spread{1, 2.5, 4}},
		{[]float64{1, 1, 1, 1, 1000}, spread{1, 1, 1000}},
	} {
		assert.Equal(t, c.want, spreadOf(c.figures), "%v", c.figures)
	}
	assert.Equal(t, "2.35 [1.00, 3.00]", spread{1, 2.345001, 3}.format(2))
}

func TestTheOrderOfFiguresStays(t *testing.T) {
	figures := []float64{3, 1, 2}
	spreadOf(figures)
	assert.Equal(t, []float64{3, 1, 2}, figures)
}

func TestNoFiguresHaveNoMedian(t *testing.T) {
	assert.True(t, math.IsNaN(spreadOf(nil).median))
}

func TestRatiosAreOfTheSameTurn(t *testing.T) {
	assert.Equal(t, []float64{2, 0.5, 10}, ratios([]float64{2, 1, 100}, []float64{1, 2, 10}))
	assert.Equal(t, []float64{3}, ratios([]float64{1, 3}, []float64{0, 1}), "a turn without a reference has no ratio")
	assert.Equal(t, []float64{2}, ratios([]float64{2, 4}, []float64{1}), "an unfinished turn has no ratio")
}
