// SPDX-License-Identifier: Apache-2.0

// Package model records the CPU utilization and the energy of a machine and fits power curves to
// them. A wall meter is used at times of steady load, and the meters of the machine at all times.
//
// Times are seconds since the epoch, powers watts, utilizations shares from 0 to 1.
package model

import (
	"cmp"
	"math"
	"slices"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/stats"
)

// point is a value at a time.
type point struct{ Time, Value float64 }

// series is a quantity over time: its means over spans, ascending and without overlaps. Time
// outside of the spans is a gap.
type series []span

// span is a stretch of time with the mean of the quantity. sum and covered are the integral of the
// quantity and the time of all spans before it.
type span struct{ from, to, mean, sum, covered float64 }

// gapAfter is the number of median lengths above which a span is a gap.
const gapAfter = 5

// seriesOf returns the series of spans. A span without length or without a finite mean is a gap.
func seriesOf(spans []span) series {
	s := slices.DeleteFunc(series(spans), func(p span) bool { return !(p.to > p.from) || math.IsNaN(p.mean) || math.IsInf(p.mean, 0) })
	longest := gapAfter * s.step()
	s = slices.DeleteFunc(s, func(p span) bool { return p.to-p.from > longest })
	var sum, covered float64
	for i, p := range s {
		s[i].sum, s[i].covered = sum, covered
		length := p.to - p.from
		sum, covered = sum+p.mean*length, covered+length
	}
	return s
}

// between returns the series with the means between neighboring points.
func between(points []point, mean func(a, b point) float64) series {
	var spans []span
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		spans = append(spans, span{from: a.Time, to: b.Time, mean: mean(a, b)})
	}
	return seriesOf(spans)
}

// samples returns the series of a power that was read at the times of the points and changes evenly
// in between. A value that is not a number is a gap.
func samples(points []point) series {
	return between(points, func(a, b point) float64 { return (a.Value + b.Value) / 2 })
}

// averages returns the series whose points are means since the previous point.
func averages(points []point) series {
	return between(points, func(_, b point) float64 { return b.Value })
}

// powerOf returns the power of an energy counter in joules, which has a point for each change. A step
// back is a gap.
func powerOf(points []point) series {
	return between(points, func(a, b point) float64 {
		if b.Value < a.Value {
			return math.NaN()
		}
		return (b.Value - a.Value) / (b.Time - a.Time)
	})
}

// coarsest returns the series with the longest spans.
func coarsest(all ...series) series {
	return slices.MaxFunc(all, func(a, b series) int { return cmp.Compare(a.step(), b.step()) })
}

// sumOf returns the sum of series over the spans of the coarsest one, at times that all of them cover.
func sumOf(all ...series) series {
	spans := slices.Clone(coarsest(all...))
	for i, p := range spans {
		spans[i].mean = 0
		for _, one := range all {
			spans[i].mean += one.mean(p.from, p.to)
		}
	}
	return seriesOf(spans)
}

// earlier returns the series with all times earlier by seconds.
func (s series) earlier(seconds float64) series {
	moved := slices.Clone(s)
	for i := range moved {
		moved[i].from, moved[i].to = moved[i].from-seconds, moved[i].to-seconds
	}
	return moved
}

// step returns the median length of the spans, NaN without spans.
func (s series) step() float64 {
	lengths := make([]float64, len(s))
	for i, p := range s {
		lengths[i] = p.to - p.from
	}
	return stats.Median(lengths)
}

// leastCovered is the share of a stretch of time that a series must cover for a mean over it.
const leastCovered = 0.95

// mean returns the mean from one time to another, NaN if gaps are too large a share of that time.
func (s series) mean(from, to float64) float64 {
	sumTo, coveredTo := s.until(to)
	sumFrom, coveredFrom := s.until(from)
	covered := coveredTo - coveredFrom
	if covered < leastCovered*(to-from) || covered <= 0 {
		return math.NaN()
	}
	return (sumTo - sumFrom) / covered
}

// until returns the integral of the series before a time, and the time that the series covers.
func (s series) until(t float64) (sum, covered float64) {
	i, _ := slices.BinarySearchFunc(s, t, func(p span, t float64) int { return cmp.Compare(p.from, t) })
	if i == 0 {
		return 0, 0
	}
	p := &s[i-1]
	length := min(t, p.to) - p.from
	return p.sum + p.mean*length, p.covered + length
}
