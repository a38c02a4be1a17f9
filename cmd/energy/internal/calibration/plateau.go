// SPDX-License-Identifier: Apache-2.0

package calibration

import (
	"errors"
	"fmt"
	"math"
)

// Plateau is a stretch of steady load.
type Plateau struct {
	From, To float64 // of the load's clock
	Load     float64
}

// PlateauOptions say what a plateau is.
type PlateauOptions struct {
	Shortest float64 // seconds, without what settles
	Settle   float64 // seconds that are left out at the beginning and at the end
}

// steady is how far the load may be from its mean on a plateau, as a share of its range in the record.
const steady = 0.03

// Plateaus returns the stretches of the load, between two times, on which it stays within 3 % of
// its range, or within three times its noise.
func Plateaus(load *Series, from, to float64, o PlateauOptions) []Plateau {
	step := max(load.step(), o.Shortest/60)
	values := sampled(load, from, to, step, 0)
	tolerance := tolerance(values)
	var found []Plateau
	add := func(first, last int) {
		a, b := from+float64(first)*step+o.Settle, from+float64(last)*step-o.Settle
		if mean := load.Mean(a, b); b-a >= o.Shortest && !math.IsNaN(mean) {
			found = append(found, Plateau{a, b, mean})
		}
	}
	first, sum := 0, 0.0
	for i, v := range values {
		mean := sum / float64(max(i-first, 1))
		if i > first && !math.IsNaN(v) && math.Abs(v-mean) <= tolerance {
			sum += v
			continue
		}
		add(first, i)
		first, sum = i, v
		if math.IsNaN(v) {
			first, sum = i+1, 0
		}
	}
	add(first, len(values))
	return found
}

// tolerance returns how far a value may be from the mean of its plateau.
func tolerance(values []float64) float64 {
	var known, steps []float64
	for i, v := range values {
		if math.IsNaN(v) {
			continue
		}
		known = append(known, v)
		if i > 0 && !math.IsNaN(values[i-1]) {
			steps = append(steps, math.Abs(v-values[i-1]))
		}
	}
	noise := median(steps) * 1.05 // the standard deviation of one value: 1.4826 / sqrt(2)
	return max(steady*(quantile(known, 0.98)-quantile(known, 0.02)), 3*noise)
}

// Level is a plateau with what two quantities were on it.
type Level struct {
	Plateau
	X, Y float64
}

// LevelOptions say what makes a level of a plateau.
type LevelOptions struct {
	XLag, YLag float64 // seconds behind the load
	// LeastRange is how far X must reach.
	LeastRange float64
}

// The reasons for which Levels and Learn give up.
var (
	errNoPlateau   = errors.New("the load was never steady for long enough")
	errFewLevels   = errors.New("fewer than three different levels of load")
	errNoVariation = errors.New("the load varied too little")
	errLittleTime  = errors.New("too little time")
	errFewBins     = errors.New("too few different loads")
)

const (
	leastLevels = 3
	// drift is how far the halves of a plateau may be apart.
	drift = 0.03
)

// Levels returns what x and y were on the plateaus, and how many plateaus were left out because y
// was not steady or one of both was not known.
func Levels(plateaus []Plateau, x, y *Series, o LevelOptions) (levels []Level, left int, err error) {
	for _, p := range plateaus {
		l := Level{p, x.Mean(p.From+o.XLag, p.To+o.XLag), y.Mean(p.From+o.YLag, p.To+o.YLag)}
		middle := (p.From + p.To) / 2
		early, late := y.Mean(p.From+o.YLag, middle+o.YLag), y.Mean(middle+o.YLag, p.To+o.YLag)
		if math.IsNaN(l.X) || !(l.Y > 0) || !(math.Abs(late-early) <= drift*l.Y) {
			left++
			continue
		}
		levels = append(levels, l)
	}
	return levels, left, check(plateaus, levels, left, o.LeastRange)
}

func check(plateaus []Plateau, levels []Level, left int, least float64) error {
	if len(plateaus) == 0 {
		return errNoPlateau
	}
	if len(levels) == 0 {
		return fmt.Errorf("%w: %d plateaus, all left out because of gaps, or because the power was not steady on them", errNoPlateau, left)
	}
	lowest, highest := math.Inf(1), math.Inf(-1)
	for _, l := range levels {
		lowest, highest = min(lowest, l.X), max(highest, l.X)
	}
	if highest-lowest < least {
		return fmt.Errorf("%w: from %.3g to %.3g", errNoVariation, lowest, highest)
	}
	if n := len(distinct(levels)); n < leastLevels {
		return fmt.Errorf("%w: %d", errFewLevels, n)
	}
	return nil
}
