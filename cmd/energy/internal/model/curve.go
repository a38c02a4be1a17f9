// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// binEnds are the bins of a load from 0 to 1, narrow at low loads because power rises steeply
// there. They end between round percentages, which are usual levels of a steady load.
var binEnds = []float64{
	0.01, 0.025, 0.075, 0.125, 0.175, 0.225, 0.275, 0.325, 0.375, 0.425, 0.475,
	0.525, 0.575, 0.625, 0.675, 0.725, 0.775, 0.825, 0.875, 0.925, 0.975, 1,
}

// leastInBin is the minimum number of seconds of a bin.
const leastInBin = 30

// binned returns the curve through the mean load and power of the bins with enough time.
func binned(windows []window) (c model.Curve) {
	sums := make([]window, len(binEnds)) // load and power times seconds
	for _, w := range windows {
		at, _ := slices.BinarySearch(binEnds, w.Load)
		b := &sums[min(at, len(sums)-1)]
		b.Seconds, b.Load, b.Watts = b.Seconds+w.Seconds, b.Load+w.Seconds*w.Load, b.Watts+w.Seconds*w.Watts
	}
	var watts, weights []float64
	for _, b := range sums {
		if b.Seconds >= leastInBin {
			c = append(c, model.Point{Utilization: b.Load / b.Seconds})
			watts, weights = append(watts, b.Watts/b.Seconds), append(weights, b.Seconds)
		}
	}
	for i, w := range rising(watts, weights) {
		c[i].Watts = w
	}
	return c
}

// rising returns the values that are closest to v by weighted squares and never fall. Each is the
// highest of the means that begin at or before it, of the lowest of their ends at or after it.
func rising(v, weights []float64) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = math.Inf(-1)
		for from := range i + 1 {
			lowest := math.Inf(1)
			for to := i + 1; to <= len(v); to++ {
				lowest = min(lowest, stat.Mean(v[from:to], weights[from:to]))
			}
			out[i] = max(out[i], lowest)
		}
	}
	return out
}

var errFewLoads = errors.New("too few different loads")

// leastRange is the minimum range of the utilization.
const leastRange = 0.3

// check returns an error if the curve over utilization has too few bins, or if these are too close to
// each other.
func check(c model.Curve, bins int) error {
	if len(c) == 0 {
		return errFewLoads
	}
	first, last := c[0].Utilization, c[len(c)-1].Utilization
	switch {
	case last-first < leastRange:
		return fmt.Errorf("the load varied too little: from %.0f %% to %.0f %%", 100*first, 100*last)
	case len(c) < bins:
		return fmt.Errorf("%w: %d, at least %d are needed", errFewLoads, len(c), bins)
	}
	return nil
}

// extended returns the curve from 0 to 1. It continues with the slopes over the outer tenths.
func extended(c model.Curve) model.Curve {
	first, last := c[0], c[len(c)-1]
	reach := max(1e-9, min(0.1, last.Utilization-first.Utilization))
	if low := first.Utilization; low > 0 {
		fall := (c.Watts(low+reach) - first.Watts) / reach
		c = slices.Insert(slices.Clone(c), 0, model.Point{Watts: max(0, first.Watts-fall*low)})
	}
	if high := last.Utilization; high < 1 {
		rise := (last.Watts - c.Watts(high-reach)) / reach
		c = append(slices.Clip(c), model.Point{Utilization: 1, Watts: last.Watts + rise*(1-high)})
	}
	return c
}

// simplified returns the curve without points that change its power by less than 0.15 %.
func simplified(c model.Curve) model.Curve {
	ends := model.Curve{c[0], c[len(c)-1]}
	worst, at := 0.0015, 0
	for i := 1; i < len(c)-1; i++ {
		if off := math.Abs(ends.Watts(c[i].Utilization)/c[i].Watts - 1); off > worst {
			worst, at = off, i
		}
	}
	if at == 0 {
		return ends
	}
	return append(simplified(c[:at+1]), simplified(c[at:])[1:]...)
}

// predictor returns the power over the load that windows have, NaN if no bin has enough time.
func predictor(windows []window) func(*window) float64 {
	if c := binned(windows); len(c) > 0 {
		c = extended(c)
		return func(w *window) float64 { return c.Watts(w.Load) }
	}
	return unpredictable
}

func unpredictable(*window) float64 { return math.NaN() }

// line returns the straight line with the smallest squared relative error.
func line(windows []window) (factor, offset float64) {
	var x, y, weights []float64
	for _, w := range windows {
		x, y, weights = append(x, w.Load), append(y, w.Watts), append(weights, w.Seconds/(w.Watts*w.Watts))
	}
	offset, factor = stat.LinearRegression(x, y, weights, false)
	return factor, offset
}

// crossValidated returns the powers that are predicted for windows. Each block of the given
// length in seconds is predicted by the function that fit returns for the other blocks.
func crossValidated(windows []window, block float64, fit func([]window) func(*window) float64) (watts []float64) {
	for first := 0; first < len(windows); {
		last, passed := first, 0.0
		for last < len(windows) && (passed < block || last == first) {
			passed += windows[last].Seconds
			last++
		}
		predict := fit(slices.Concat(windows[:first], windows[last:]))
		for i := first; i < last; i++ {
			watts = append(watts, predict(&windows[i]))
		}
		first = last
	}
	return watts
}

// relativeErrors returns the errors of predicted powers, relative to the measured powers.
func relativeErrors(windows []window, predicted []float64) (errs []float64) {
	for i, w := range windows {
		errs = append(errs, predicted[i]/w.Watts-1)
	}
	return errs
}

// meanError returns the mean absolute error of predicted powers above the idle power, relative to the
// mean power above the idle power. It is NaN without power above the idle power.
func meanError(windows []window, predicted []float64, idle float64) float64 {
	var off, joules float64
	for i, w := range windows {
		if !math.IsNaN(predicted[i]) {
			watts := max(w.Watts-idle, 0)
			off, joules = off+w.Seconds*math.Abs(max(predicted[i]-idle, 0)-watts), joules+w.Seconds*watts
		}
	}
	if joules == 0 {
		return math.NaN()
	}
	return off / joules
}
