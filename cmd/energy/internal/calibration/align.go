// SPDX-License-Identifier: Apache-2.0

package calibration

import (
	"errors"
	"fmt"
	"math"
)

// The reasons for which Align gives up.
var (
	errNoOverlap  = errors.New("the records have no time in common")
	errUnrelated  = errors.New("does not follow the load")
	errLagAtBound = errors.New("the lag may be longer than was looked for")
	errTooLong    = errors.New("the records have too much time in common, so that a time in them may be wrong")
)

const (
	// leastCorrelation is the minimum correlation of two records of the same machine.
	leastCorrelation = 0.7
	// leastSteps is the minimum number of steps of the coarser record for an alignment.
	leastSteps = 30
	// longest is how much time, in seconds, two records have in common at most.
	longest = 30 * 86_400
)

// Align returns how many seconds the series lags behind the load: what happens at t is in the
// series at t + lag. It is the lag with the highest correlation, up to most seconds to either side.
func Align(load, series *Series, most float64) (lag, correlation float64, err error) {
	from, to, err := common(load, series)
	if err != nil {
		return 0, 0, err
	}
	step := max(load.step(), series.step(), (to-from)/5000, most/500) // the last two bound the work
	if to-from < leastSteps*step {
		return 0, 0, fmt.Errorf("%w: only %.0f s, at a step of %.1f s", errNoOverlap, to-from, step)
	}
	reference := sampled(load, from, to, step, 0)
	at := func(lag float64) float64 { return pearson(reference, sampled(series, from, to, step, lag)) }
	best := math.Inf(-1)
	for _, search := range []struct{ reach, step float64 }{{most, step / 2}, {step / 2, step / 40}} {
		center := lag
		for offset := -search.reach; offset <= search.reach; offset += search.step {
			if c := at(center + offset); c > best {
				best, lag = c, center+offset
			}
		}
	}
	switch {
	case best < leastCorrelation:
		return 0, best, fmt.Errorf("%w: correlation %.2f at best", errUnrelated, best)
	case math.Abs(lag) >= most:
		return 0, best, fmt.Errorf("%w: %.0f s", errLagAtBound, most)
	}
	return lag, best, nil
}

// common returns the time that both series cover.
func common(a, b *Series) (from, to float64, err error) {
	if a.Empty() || b.Empty() {
		return 0, 0, errNoOverlap
	}
	aFrom, aTo := a.Span()
	bFrom, bTo := b.Span()
	if from, to = max(aFrom, bFrom), min(aTo, bTo); from >= to {
		apart := from - to
		return 0, 0, fmt.Errorf("%w: they are %.0f s apart, which may be a wrong clock or time zone", errNoOverlap, apart)
	}
	if to-from > longest {
		return 0, 0, fmt.Errorf("%w: %.0f days", errTooLong, (to-from)/86_400)
	}
	return from, to, nil
}

// sampled returns the means of a series over steps, each later by the lag.
func sampled(s *Series, from, to, step, lag float64) []float64 {
	n := int((to - from) / step)
	v := make([]float64, n)
	for i := range v {
		at := from + float64(i)*step + lag
		v[i] = s.Mean(at, at+step)
	}
	return v
}

// pearson returns the correlation of two lists where both are known, -1 where that is less than half of them.
func pearson(a, b []float64) float64 {
	var n, sa, sb, saa, sbb, sab float64
	for i := range a {
		if x, y := a[i], b[i]; !math.IsNaN(x) && !math.IsNaN(y) {
			n, sa, sb, saa, sbb, sab = n+1, sa+x, sb+y, saa+x*x, sbb+y*y, sab+x*y
		}
	}
	va, vb := saa-sa*sa/n, sbb-sb*sb/n
	if n < float64(len(a))/2 || va <= 0 || vb <= 0 {
		return -1
	}
	return (sab - sa*sb/n) / math.Sqrt(va*vb)
}
