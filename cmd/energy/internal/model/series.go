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

func (s series) add(from, to, mean float64) series {
	if !(to > from) || math.IsNaN(mean) || math.IsInf(mean, 0) {
		return s
	}
	next := span{from: from, to: to, mean: mean}
	if n := len(s); n > 0 {
		last := &s[n-1]
		length := last.to - last.from
		next.sum, next.covered = last.sum+last.mean*length, last.covered+length
	}
	return append(s, next)
}

// gapAfter is the number of median steps above which two points have a gap in between.
const gapAfter = 5

// between returns the series with the means between neighboring points.
func between(points []point, mean func(a, b point) float64) series {
	var steps []float64
	for i := 1; i < len(points); i++ {
		if step := points[i].Time - points[i-1].Time; step > 0 {
			steps = append(steps, step)
		}
	}
	var s series
	longest := gapAfter * stats.Median(steps)
	for i := 1; i < len(points); i++ {
		if a, b := points[i-1], points[i]; b.Time-a.Time <= longest {
			s = s.add(a.Time, b.Time, mean(a, b))
		}
	}
	return s
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

// sumOf returns the sum of series, at times that all of them cover.
func sumOf(all ...series) series {
	if len(all) == 1 {
		return all[0]
	}
	var times []float64
	for _, one := range all {
		for _, p := range one {
			times = append(times, p.from, p.to)
		}
	}
	slices.Sort(times)
	times = slices.Compact(times)
	var s series
	for i := 1; i < len(times); i++ {
		sum := 0.0
		for _, one := range all {
			sum += one.mean(times[i-1], times[i])
		}
		s = s.add(times[i-1], times[i], sum)
	}
	return s
}

// earlier returns the series with all times earlier by seconds.
func (s series) earlier(seconds float64) series {
	moved := slices.Clone(s)
	for i := range moved {
		moved[i].from, moved[i].to = moved[i].from-seconds, moved[i].to-seconds
	}
	return moved
}

// ends returns the first and the last time.
func (s series) ends() (from, to float64) {
	if len(s) == 0 {
		return 0, 0
	}
	return s[0].from, s[len(s)-1].to
}

// step returns the median length of the spans.
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
