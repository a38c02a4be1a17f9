// SPDX-License-Identifier: Apache-2.0

package calibration

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stairs returns a load that takes another value each minute, read each second from a time on.
func stairs(from, minutes int) []Point {
	var points []Point
	for second := range minutes * 60 {
		points = append(points, Point{float64(from + second), float64(second / 60 * 7 % 10)})
	}
	return points
}

func TestTheLagIsThatOfTheBestCorrelation(t *testing.T) {
	load := Averages(stairs(newYear, 20))
	for _, lag := range []float64{-40, -0.7, 0, 3.3, 90} {
		var late []Point
		for _, p := range stairs(newYear, 20) {
			late = append(late, Point{p.Time + lag, 100 + 3*p.Value})
		}
		series := Averages(late)
		got, correlation, err := Align(&load, &series, 120)
		require.NoError(t, err)
		assert.InDelta(t, lag, got, 0.06)
		assert.Greater(t, correlation, 0.999)
	}
	far := Averages(stairs(newYear+125, 20))
	_, _, err := Align(&load, &far, 30)
	require.Error(t, err)
}

func TestATimeThatIsYearsOffIsAnError(t *testing.T) {
	load := Averages([]Point{{newYear, 1}, {newYear + 1e8, 2}})
	_, _, err := Align(&load, &load, 120)
	require.ErrorIs(t, err, errTooLong)
}

func TestTheMeanOfAStretchThatIsHardlyKnownIsUnknown(t *testing.T) {
	s := Samples([]Point{{0, 10}, {1, 20}, {2, 30}, {100, 40}, {101, 50}})
	assert.InDelta(t, 20, s.Mean(0, 2), 1e-9)
	assert.InDelta(t, 15, s.Mean(0.5, 1), 1e-9)
	assert.True(t, math.IsNaN(s.Mean(0, 10)), "98 s without a reading are a gap")
	sum := Sum(s, s)
	assert.InDelta(t, 40, sum.Mean(0, 2), 1e-9)
}
