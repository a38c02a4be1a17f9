// SPDX-License-Identifier: Apache-2.0

package calibration

import (
	"fmt"
	"math"
	"slices"
)

// Energy returns the power of an energy counter in joules that may be read more often than it
// counts: a value that is the one before is no news. A step back is a restart, and a gap; so is a
// time that is longer than five times the usual one between two news.
func Energy(points []Point) Series {
	var news []Point
	for _, p := range points {
		if n := len(news); n == 0 || p.Value != news[n-1].Value {
			news = append(news, p)
		}
	}
	var s Series
	longest := gapAfter * spacing(news)
	for i := 1; i < len(news); i++ {
		if a, b := news[i-1], news[i]; b.Value > a.Value && b.Time-a.Time <= longest {
			s.add(a.Time, b.Time, (b.Value-a.Value)/(b.Time-a.Time))
		}
	}
	return s
}

// Window is a stretch of time with the mean utilization and the mean power on it.
type Window struct {
	Seconds float64
	Load    float64 // utilization
	Watts   float64
}

// WindowOptions say what makes a window.
type WindowOptions struct {
	Lag      float64 // of the power behind the load, in seconds
	MaxWatts float64 // what the power never exceeds
}

// Windows returns what load and power were together. A window is one pair of times of the load, or
// as many as the power needs for two of its own. impossible is how many were left out because their
// power cannot be.
func Windows(load, power *Series, o WindowOptions) (windows []Window, impossible int) {
	shortest := 0.99 * power.step()
	for first, i := 0, 0; i < len(load.from); i++ {
		if i > first && load.from[i] > load.to[i-1] {
			first = i // a gap
		}
		from, to := load.from[first], load.to[i]
		if to-from < shortest {
			continue
		}
		first = i + 1
		w := Window{Seconds: to - from, Load: load.Mean(from, to), Watts: power.Mean(from+o.Lag, to+o.Lag)}
		switch {
		case math.IsNaN(w.Load) || math.IsNaN(w.Watts):
		case w.Watts > o.MaxWatts:
			impossible++
		default:
			windows = append(windows, w)
		}
	}
	return windows, impossible
}

// The bins of utilization: narrow where the power of a machine rises steeply.
var binEnds = []float64{
	0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1,
}

const (
	// leastInBin is how much time, in seconds, a bin needs to count.
	leastInBin = 30
	// leastBins is how many bins a curve needs.
	leastBins = 4
	// leastTime is how much time, in seconds, a curve needs.
	leastTime = 300
	// blocks is into how many parts of equal time a record is divided to predict each from the others.
	blocks = 10
)

// Learned is a curve that was fitted to windows.
type Learned struct {
	// Curve never falls, and goes from a utilization of 0 to 1.
	Curve Curve
	// Error is the mean absolute error of the power, relative to the mean power, where each tenth
	// of the time is predicted from the others.
	Error float64
	// Seconds is how much time there was.
	Seconds float64
	// Lowest and Highest are the mean utilizations of the outer bins. Beyond, the curve continues its lines.
	Lowest, Highest float64
	// Bins is how many bins had enough time.
	Bins int
}

// Learn fits a curve to the windows: the means of bins of utilization, weighted by time. Neighboring
// bins whose power falls are averaged. leastRange is the minimum range of the utilization.
func Learn(windows []Window, leastRange float64) (*Learned, error) {
	l := &Learned{}
	for i := range windows {
		l.Seconds += windows[i].Seconds
	}
	if l.Seconds < leastTime {
		return nil, fmt.Errorf("%w: %.0f s of %d s", errLittleTime, l.Seconds, leastTime)
	}
	knots := binned(windows)
	if l.Bins = len(knots); l.Bins == 0 {
		return nil, errFewBins
	}
	l.Lowest, l.Highest = knots[0].X, knots[len(knots)-1].X
	switch {
	case l.Highest-l.Lowest < leastRange:
		return nil, fmt.Errorf("%w: from %.0f %% to %.0f %%", errNoVariation, 100*l.Lowest, 100*l.Highest)
	case l.Bins < leastBins:
		return nil, fmt.Errorf("%w: %d, at least %d are needed", errFewBins, l.Bins, leastBins)
	}
	l.Curve = extended(knots)
	l.Error = crossValidated(windows, l.Seconds)
	if !(l.Error < 1) {
		return nil, fmt.Errorf("%w: its error is %.0f %%", errUnrelated, 100*l.Error)
	}
	return l, nil
}

// binned returns the mean utilization and power of the bins that have enough time. Powers that fall are evened out.
func binned(windows []Window) Curve {
	type sums struct{ seconds, load, joules float64 }
	bins := make([]sums, len(binEnds))
	for i := range windows {
		w := &windows[i]
		at, _ := slices.BinarySearch(binEnds, w.Load)
		b := &bins[min(at, len(bins)-1)]
		b.seconds, b.load, b.joules = b.seconds+w.Seconds, b.load+w.Seconds*w.Load, b.joules+w.Seconds*w.Watts
	}
	var knots Curve
	var weights, watts []float64
	for _, b := range bins {
		if b.seconds < leastInBin {
			continue
		}
		knots = append(knots, Knot{X: b.load / b.seconds})
		weights, watts = append(weights, b.seconds), append(watts, b.joules/b.seconds)
	}
	for i, y := range rising(watts, weights) {
		knots[i].Y = y
	}
	return knots
}

// reach is over how much utilization, at least, the slope is taken with which a curve continues beyond its ends.
const reach = 0.1

// extended returns the curve from 0 to 1.
func extended(knots Curve) Curve {
	n := len(knots)
	whole := slices.Clone(knots)
	if first := knots[0]; first.X > 0 {
		whole = slices.Insert(whole, 0, Knot{0, max(0, first.Y-first.X*slope(knots))})
	}
	if last := knots[n-1]; last.X < 1 {
		backwards := make(Curve, n)
		for i, k := range knots {
			backwards[n-1-i] = k
		}
		whole = append(whole, Knot{1, last.Y + (1-last.X)*slope(backwards)})
	}
	return whole
}

// slope returns the slope from the first knot to the first that is far enough from it, or to the last.
func slope(knots Curve) float64 {
	for i := 1; i < len(knots); i++ {
		if far := math.Abs(knots[i].X - knots[0].X); far >= reach || i == len(knots)-1 {
			return (knots[i].Y - knots[0].Y) / (knots[i].X - knots[0].X)
		}
	}
	return 0
}

// crossValidated returns the mean absolute error where each of the blocks is predicted from the
// others, relative to the mean power. A block without which no bin has enough time is left out.
func crossValidated(windows []Window, seconds float64) float64 {
	var off, joules, passed float64
	for first := 0; first < len(windows); {
		last := first
		for end := passed + seconds/blocks; last < len(windows) && (passed < end || last == first); last++ {
			passed += windows[last].Seconds
		}
		knots := binned(slices.Concat(windows[:first], windows[last:]))
		if len(knots) > 0 {
			c := extended(knots)
			for _, w := range windows[first:last] {
				off += w.Seconds * math.Abs(c.At(w.Load)-w.Watts)
				joules += w.Seconds * w.Watts
			}
		}
		first = last
	}
	return off / joules
}
