// SPDX-License-Identifier: Apache-2.0

package calibration

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A BMC that counts each 30 s is read each 10 s.
func TestEnergyThatIsReadMoreOftenThanItIsCountedIsEven(t *testing.T) {
	var points []Point
	for i := range 13 {
		points = append(points, Point{float64(10 * i), float64(i/3) * 3000})
	}
	s := Energy(points)
	from, to := s.Span()
	assert.Equal(t, [2]float64{0, 120}, [2]float64{from, to})
	assert.InDelta(t, 100, s.Mean(0, 120), 1e-9)
	assert.InDelta(t, 100, s.Mean(5, 17), 1e-9)
}

func TestEnergyHasGapsWhereACounterStepsBackOrIsSilent(t *testing.T) {
	s := Energy([]Point{{0, 0}, {10, 100}, {20, 200}, {30, 50}, {40, 150}, {140, 1150}, {150, 1250}, {160, 1350}})
	assert.InDelta(t, 10, s.Mean(0, 20), 1e-9)
	assert.True(t, math.IsNaN(s.Mean(20, 30)), "a restart")
	assert.InDelta(t, 10, s.Mean(30, 40), 1e-9)
	assert.True(t, math.IsNaN(s.Mean(50, 60)), "silence")
	assert.InDelta(t, 10, s.Mean(140, 160), 1e-9)
}

func TestWindowsAreWhereLoadAndPowerAreKnown(t *testing.T) {
	load := Averages([]Point{{0, 0}, {10, 0.1}, {20, 0.2}, {30, 0.3}, {40, 0.4}, {400, 0.5}, {410, 0.6}})
	watts := Counter([]Point{{5, 0}, {15, 100}, {25, 300}, {35, 50}, {45, 1e9}, {395, 1e9}, {405, 1e9}, {415, 1e9 + 500}})
	windows, impossible := Windows(&load, &watts, WindowOptions{Lag: 5, MaxWatts: 1000})
	assert.Equal(t, 1, impossible)
	assert.Equal(t, []Window{{10, 0.1, 10}, {10, 0.2, 20}, {10, 0.6, 50}}, windows)
}

func TestWindowsAreAsLongAsThePowersOwn(t *testing.T) {
	load := Averages([]Point{{0, 0}, {10, 0.1}, {20, 0.2}, {30, 0.3}, {40, 0.4}, {50, 0.5}, {60, 0.6}})
	watts := Counter([]Point{{0, 0}, {30, 300}, {60, 900}})
	windows, _ := Windows(&load, &watts, WindowOptions{MaxWatts: 1000})
	require.Len(t, windows, 2)
	assert.InDelta(t, 0.2, windows[0].Load, 1e-9)
	assert.InDelta(t, 0.5, windows[1].Load, 1e-9)
	assert.InDelta(t, 20, windows[1].Watts, 1e-9)
}

// loads returns windows of 10 s that pass all loads from one to another, several times.
func loads(from, to float64, watts func(u float64) float64) []Window {
	var windows []Window
	for range 5 {
		for i := range 100 {
			u := from + (to-from)*float64(i)/99
			windows = append(windows, Window{10, u, watts(u)})
		}
	}
	return windows
}

func TestACurveIsLearnedAndContinuedByItsLines(t *testing.T) {
	l, err := Learn(loads(0.2, 0.8, func(u float64) float64 { return 50 + 200*u }), 0.3)
	require.NoError(t, err)
	for _, u := range []float64{0, 0.1, 0.35, 0.7, 0.9, 1} {
		assert.InDelta(t, 50+200*u, l.Curve.At(u), 1e-6, "at %v", u)
	}
	assert.Equal(t, []float64{0, 1}, []float64{l.Curve[0].X, l.Curve[len(l.Curve)-1].X})
	assert.InDelta(t, 0.2, l.Lowest, 0.05)
	assert.InDelta(t, 0.8, l.Highest, 0.05)
	assert.InDelta(t, 0, l.Error, 1e-9)
	assert.InDelta(t, 5000, l.Seconds, 1e-6)
}

func TestACurveThatFallsIsEvenedOut(t *testing.T) {
	l, err := Learn(loads(0, 1, func(u float64) float64 { return 100 + 100*math.Sin(6*u) }), 0.3)
	require.NoError(t, err)
	for i := 1; i < len(l.Curve); i++ {
		assert.GreaterOrEqual(t, l.Curve[i].Y, l.Curve[i-1].Y)
	}
	assert.GreaterOrEqual(t, l.Curve[0].Y, 0.0)
}

func TestAContinuedCurveIsNeverNegative(t *testing.T) {
	l, err := Learn(loads(0.5, 1, func(u float64) float64 { return 400 * (u - 0.45) }), 0.3)
	require.NoError(t, err)
	assert.Zero(t, l.Curve.At(0))
}

// Noise that is independent of its neighbors is predicted as well as can be; a drift from hour to hour is not.
func TestTheErrorIsThatOfOtherTimes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	noisy := loads(0, 1, func(u float64) float64 { return (100 + 200*u) * (1 + 0.1*random.NormFloat64()) })
	l, err := Learn(noisy, 0.3)
	require.NoError(t, err)
	assert.InDelta(t, 0.1*math.Sqrt(2/math.Pi), l.Error, 0.01)
	drifting := loads(0, 1, func(u float64) float64 { return 100 + 200*u })
	for i := range drifting {
		drifting[i].Watts *= 1 + 0.4*float64(i)/float64(len(drifting))
	}
	l, err = Learn(drifting, 0.3)
	require.NoError(t, err)
	assert.Greater(t, l.Error, 0.08)
}

func TestWhyACurveIsNotLearned(t *testing.T) {
	_, err := Learn(nil, 0.3)
	require.ErrorIs(t, err, errLittleTime)
	_, err = Learn(loads(0, 1, func(float64) float64 { return 1 })[:29], 0.3)
	require.ErrorIs(t, err, errLittleTime)
	_, err = Learn(loads(0.4, 0.5, func(float64) float64 { return 1 }), 0.3)
	require.ErrorIs(t, err, errNoVariation)
	thin := make([]Window, 0, 1000) // so that no bin has enough time
	for i := range 1000 {
		thin = append(thin, Window{0.5, float64(i) / 1000, 1})
	}
	_, err = Learn(thin, 0.3)
	require.ErrorIs(t, err, errFewBins)
	random := rand.New(rand.NewPCG(1, 2))
	bursts := loads(0, 1, func(float64) float64 {
		if random.IntN(30) == 0 {
			return 3000
		}
		return 1
	})
	_, err = Learn(bursts, 0.3)
	require.ErrorIs(t, err, errUnrelated)
}
