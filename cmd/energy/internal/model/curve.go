// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// curve is power over a load, linear between its knots. Beyond the ends it continues its lines.
type curve []knot

type knot struct{ Load, Watts float64 }

// at returns the power at a load.
func (c curve) at(load float64) float64 {
	i := 1
	for i < len(c)-1 && load > c[i].Load {
		i++
	}
	return c[i-1].Watts + (load-c[i-1].Load)*slope(c[i-1], c[i])
}

func slope(from, to knot) float64 {
	if from.Load == to.Load {
		return 0
	}
	return (to.Watts - from.Watts) / (to.Load - from.Load)
}

// window is a stretch of time with the mean load and the mean power on it.
type window struct{ Seconds, Load, Watts float64 }

// scale is the unit of a load: its maximum, and the minimum range that a fit needs, as a share of it.
type scale struct{ most, leastRange float64 }

// ofUtilization is the scale of CPU utilization.
var ofUtilization = scale{1, 0.3}

// ofPower returns the scale of a load that is a power.
func ofPower(windows []window) scale {
	s := scale{leastRange: 0.1}
	for _, w := range windows {
		s.most = max(s.most, w.Load)
	}
	return s
}

// binEnds are the bins of a load, narrow at low loads because power rises steeply there.
var binEnds = []float64{
	0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45,
	0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1,
}

// leastInBin is the minimum number of seconds of a bin.
const leastInBin = 30

var (
	errNoVariation = errors.New("the load varied too little")
	errFewLoads    = errors.New("too few different loads")
)

// binned returns the curve through the mean load and power of the bins with enough time. Powers
// that fall are pooled.
func (s scale) binned(windows []window) (c curve) {
	sums := make([]window, len(binEnds)) // load and power times seconds
	for _, w := range windows {
		at, _ := slices.BinarySearch(binEnds, w.Load/s.most)
		b := &sums[min(at, len(sums)-1)]
		b.Seconds, b.Load, b.Watts = b.Seconds+w.Seconds, b.Load+w.Seconds*w.Load, b.Watts+w.Seconds*w.Watts
	}
	var watts, weights []float64
	for _, b := range sums {
		if b.Seconds >= leastInBin {
			c = append(c, knot{Load: b.Load / b.Seconds})
			watts, weights = append(watts, b.Watts/b.Seconds), append(weights, b.Seconds)
		}
	}
	for i, w := range rising(watts, weights) {
		c[i].Watts = w
	}
	return c
}

// check returns an error if the windows have too few bins with enough time, or if these are too
// close to each other.
func (s scale) check(c curve, bins int) error {
	switch n := len(c); {
	case n == 0:
		return errFewLoads
	case c[n-1].Load-c[0].Load < s.leastRange*s.most:
		return fmt.Errorf("%w: from %.0f %% to %.0f %%", errNoVariation, 100*c[0].Load/s.most, 100*c[n-1].Load/s.most)
	case n < bins:
		return fmt.Errorf("%w: %d, at least %d are needed", errFewLoads, n, bins)
	}
	return nil
}

// rising returns the values that are closest to v by weighted squares and never fall, by pooling
// adjacent violators.
func rising(v, weights []float64) (out []float64) {
	type pool struct {
		value, weight float64
		n             int
	}
	var pools []pool
	for i := range v {
		pools = append(pools, pool{v[i], weights[i], 1})
		for n := len(pools); n > 1 && pools[n-1].value < pools[n-2].value; n = len(pools) {
			a, b := pools[n-2], pools[n-1]
			w := a.weight + b.weight
			pools = append(pools[:n-2], pool{(a.value*a.weight + b.value*b.weight) / w, w, a.n + b.n})
		}
	}
	for _, p := range pools {
		out = append(out, slices.Repeat([]float64{p.value}, p.n)...)
	}
	return out
}

// extended returns the curve from a load of 0 to most. It continues with the slopes over the outer
// tenths of the load.
func (c curve) extended(most float64) curve {
	first, last, end := 0, len(c)-1, len(c)-1
	reach := 0.1 * most
	for first < end && c[first].Load-c[0].Load < reach {
		first++
	}
	for last > 0 && c[end].Load-c[last].Load < reach {
		last--
	}
	whole := slices.Clone(c)
	if c[end].Load < most {
		whole = append(whole, knot{most, c[end].Watts + (most-c[end].Load)*slope(c[last], c[end])})
	}
	if c[0].Load > 0 {
		whole = slices.Insert(whole, 0, knot{0, max(0, c[0].Watts-c[0].Load*slope(c[0], c[first]))})
	}
	return whole
}

// simplified returns the curve without knots that change its power by less than 0.15 %.
func (c curve) simplified() curve {
	ends := curve{c[0], c[len(c)-1]}
	worst, at := 0.0015, 0
	for i := 1; i < len(c)-1; i++ {
		if off := math.Abs(ends.at(c[i].Load)/c[i].Watts - 1); off > worst {
			worst, at = off, i
		}
	}
	if at == 0 {
		return ends
	}
	return append(c[:at+1].simplified(), c[at:].simplified()[1:]...)
}

// predictor returns the power over the load that the windows have, nil if no bin has enough time.
func (s scale) predictor(windows []window) func(load float64) float64 {
	if c := s.binned(windows); len(c) > 0 {
		return c.extended(s.most).at
	}
	return nil
}

// line returns the straight line with the smallest squared relative error.
func line(windows []window) (factor, offset float64) {
	var x, y, weights []float64
	for _, w := range windows {
		x, y, weights = append(x, w.Load), append(y, w.Watts), append(weights, w.Seconds/(w.Watts*w.Watts))
	}
	offset, factor = stat.LinearRegression(x, y, weights, false)
	return factor, offset
}

// crossValidated returns the errors of the windows, as shares of the power. Each block of so many
// seconds is predicted by the function that fit returns for the others, which may be nil.
func crossValidated(windows []window, block float64, fit func([]window) func(float64) float64) (errs []float64) {
	for first := 0; first < len(windows); {
		last, passed := first, 0.0
		for last < len(windows) && (passed < block || last == first) {
			passed += windows[last].Seconds
			last++
		}
		predict := fit(slices.Concat(windows[:first], windows[last:]))
		for _, w := range windows[first:last] {
			e := math.NaN()
			if predict != nil {
				e = predict(w.Load)/w.Watts - 1
			}
			errs = append(errs, e)
		}
		first = last
	}
	return errs
}
