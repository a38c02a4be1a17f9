// SPDX-License-Identifier: Apache-2.0

// Package calibration compares power meters on stretches of steady load, and fits lines to what they show.
//
// Times are seconds since the epoch, powers watts, utilizations shares from 0 to 1.
package calibration

import (
	"cmp"
	"math"
	"slices"
)

// Series is a quantity over time: what it was on average between pairs of times. Time that no pair covers is a gap.
//
// The zero Series has no time. Use Averages, Samples or Counter to make one.
type Series struct {
	from, to []float64 // ascending, without overlaps
	mean     []float64
	sum      []float64 // of mean times length, before each
	known    []float64 // sum of the lengths before each
}

func (s *Series) add(from, to, mean float64) {
	if !(to > from) || math.IsNaN(mean) || math.IsInf(mean, 0) {
		return
	}
	sum, known := 0.0, 0.0
	if n := len(s.to); n > 0 {
		length := s.to[n-1] - s.from[n-1]
		sum, known = s.sum[n-1]+s.mean[n-1]*length, s.known[n-1]+length
	}
	s.from, s.to, s.mean = append(s.from, from), append(s.to, to), append(s.mean, mean)
	s.sum, s.known = append(s.sum, sum), append(s.known, known)
}

// Point is a value at a time.
type Point struct{ Time, Value float64 }

// spacing returns the median time between two points, 0 where there are fewer than two.
func spacing(points []Point) float64 {
	var steps []float64
	for i := 1; i < len(points); i++ {
		if step := points[i].Time - points[i-1].Time; step > 0 {
			steps = append(steps, step)
		}
	}
	return median(steps)
}

// gapAfter is how many median steps apart two points are with a gap in between.
const gapAfter = 5

// Samples returns the series of a power that was read at the times of the points. Between two
// points it is taken to change evenly. A value that is not a number is a gap.
func Samples(points []Point) Series {
	var s Series
	longest := gapAfter * spacing(points)
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		if b.Time-a.Time <= longest {
			s.add(a.Time, b.Time, (a.Value+b.Value)/2)
		}
	}
	return s
}

// Averages returns the series whose points are averages since the point before.
func Averages(points []Point) Series {
	var s Series
	longest := gapAfter * spacing(points)
	for i := 1; i < len(points); i++ {
		if a, b := points[i-1], points[i]; b.Time-a.Time <= longest {
			s.add(a.Time, b.Time, b.Value)
		}
	}
	return s
}

// Counter returns the power of an energy counter in joules. A step back is a restart, and a gap.
func Counter(points []Point) Series {
	var s Series
	for i := 1; i < len(points); i++ {
		if a, b := points[i-1], points[i]; b.Value >= a.Value {
			s.add(a.Time, b.Time, (b.Value-a.Value)/(b.Time-a.Time))
		}
	}
	return s
}

// Sum returns the sum of series, where all of them are known.
func Sum(all ...Series) Series {
	if len(all) == 1 {
		return all[0]
	}
	var times []float64
	for i := range all {
		times = append(append(times, all[i].from...), all[i].to...)
	}
	slices.Sort(times)
	times = slices.Compact(times)
	var s Series
	for i := 1; i < len(times); i++ {
		sum := 0.0
		for j := range all {
			sum += all[j].Mean(times[i-1], times[i])
		}
		s.add(times[i-1], times[i], sum)
	}
	return s
}

// Empty reports whether the series has no time.
func (s *Series) Empty() bool { return len(s.from) == 0 }

// Span returns the first and the last time.
func (s *Series) Span() (from, to float64) {
	if s.Empty() {
		return 0, 0
	}
	return s.from[0], s.to[len(s.to)-1]
}

// step returns the median length of the pairs of times.
func (s *Series) step() float64 {
	lengths := make([]float64, len(s.from))
	for i := range lengths {
		lengths[i] = s.to[i] - s.from[i]
	}
	return median(lengths)
}

// covered is how much of a stretch must be known for its mean to be known.
const covered = 0.95

// Mean returns the average from one time to another, NaN where too little of that is known.
func (s *Series) Mean(from, to float64) float64 {
	sumTo, knownTo := s.until(to)
	sumFrom, knownFrom := s.until(from)
	known := knownTo - knownFrom
	if known < covered*(to-from) || known <= 0 {
		return math.NaN()
	}
	return (sumTo - sumFrom) / known
}

// until returns the integral from the beginning to a time, and how much of that time is known.
func (s *Series) until(t float64) (sum, known float64) {
	i, _ := slices.BinarySearchFunc(s.from, t, cmp.Compare[float64])
	if i == 0 {
		return 0, 0
	}
	i--
	end := min(t, s.to[i])
	return s.sum[i] + s.mean[i]*(end-s.from[i]), s.known[i] + end - s.from[i]
}

func median(v []float64) float64 { return quantile(v, 0.5) }

// quantile returns the value below which a share of the values lies, interpolated; 0 where there is none.
func quantile(v []float64, share float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	at := share * float64(len(v)-1)
	i := int(at)
	if i+1 == len(v) {
		return v[i]
	}
	return v[i] + (at-float64(i))*(v[i+1]-v[i])
}
