// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"
)

var (
	errNoOverlap = errors.New("the records have no time in common")
	errUnrelated = errors.New("the power does not follow the load")
)

const (
	// leastCorrelation is the minimum correlation of two series of the same machine.
	leastCorrelation = 0.7
	// leastSteps is the minimum number of steps of the coarser series for an alignment.
	leastSteps = 30
	// longest is the maximum time that two series have in common, in seconds.
	longest = 30 * 86_400
)

// align returns the power at the time of its load, and its lag in seconds. That is the lag with the
// highest correlation, up to most seconds to either side.
func align(load, power series, most float64) (aligned series, lag, correlation float64, err error) {
	from, to, err := common(load, power)
	if err != nil {
		return nil, 0, 0, err
	}
	step := max(load.step(), power.step(), (to-from)/5000, most/500) // the last two bound the work
	if to-from < leastSteps*step {
		return nil, 0, 0, fmt.Errorf("%w: only %.0f s, at a step of %.1f s", errNoOverlap, to-from, step)
	}
	reference, best := load.sampled(from, to, step), math.Inf(-1)
	for _, search := range []struct{ reach, step float64 }{{most, step / 2}, {step / 2, step / 40}} {
		center := lag
		for offset := -search.reach; offset <= search.reach; offset += search.step {
			at := center + offset
			if c := correlated(reference, power.sampled(from+at, to+at, step)); c > best {
				best, lag = c, at
			}
		}
	}
	switch {
	case best < leastCorrelation:
		return nil, 0, best, fmt.Errorf("%w: correlation %.2f at best", errUnrelated, best)
	case math.Abs(lag) >= most:
		return nil, 0, best, fmt.Errorf("the lag may be longer than --max-lag: %.0f s", most)
	}
	return power.earlier(lag), lag, best, nil
}

// common returns the time that both series cover.
func common(a, b series) (from, to float64, err error) {
	if len(a) == 0 || len(b) == 0 {
		return 0, 0, errNoOverlap
	}
	from, to = max(a[0].from, b[0].from), min(a[len(a)-1].to, b[len(b)-1].to)
	switch {
	case from >= to:
		return 0, 0, fmt.Errorf("%w: they are %.0f s apart, which may be a wrong clock or time zone", errNoOverlap, from-to)
	case to-from > longest:
		return 0, 0, fmt.Errorf("the records have %.0f days in common: a time may be wrong", (to-from)/86_400)
	}
	return from, to, nil
}

// sampled returns the means of a series over steps of equal length.
func (s series) sampled(from, to, step float64) []float64 {
	v := make([]float64, int((to-from)/step))
	for i := range v {
		at := from + float64(i)*step
		v[i] = s.mean(at, at+step)
	}
	return v
}

// correlated returns the correlation of two lists of the same length without the pairs with a NaN. It
// is -1 if these are more than half of all pairs, or if a list is constant.
func correlated(a, b []float64) float64 {
	var x, y []float64
	for i := range min(len(a), len(b)) {
		if !math.IsNaN(a[i]) && !math.IsNaN(b[i]) {
			x, y = append(x, a[i]), append(y, b[i])
		}
	}
	c := stat.Correlation(x, y, nil)
	if 2*len(x) < len(a) || math.IsNaN(c) {
		return -1
	}
	return c
}
