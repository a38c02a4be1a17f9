// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"math"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/stats"
)

// plateau is a stretch of steady load.
type plateau struct{ From, To float64 }

// steady is the maximum distance of the load from its mean on a plateau, as a share of its range.
const steady = 0.03

// steadyLoad returns the stretches of the load, between two times, on which it stays within 3 % of
// its range, or within three times its noise. settle is the number of seconds that are left out at
// both ends, and shortest the minimum number of seconds of the rest.
func steadyLoad(load series, from, to, shortest, settle float64) []plateau {
	step := max(load.step(), shortest/60)
	values := load.sampled(from, to, step)
	tolerance := tolerance(values)
	var found []plateau
	add := func(first, last int) {
		p := plateau{from + float64(first)*step + settle, from + float64(last)*step - settle}
		if p.To-p.From >= shortest && !math.IsNaN(load.mean(p.From, p.To)) {
			found = append(found, p)
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

// tolerance returns the maximum distance of a value from the mean of its plateau.
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
	noise := stats.Median(steps) * 1.05 // the standard deviation of one value: 1.4826 / sqrt(2)
	return max(steady*(stats.Quantile(known, 0.98)-stats.Quantile(known, 0.02)), 3*noise)
}

var errNoPlateau = errors.New("the load was never steady for long enough")

// drift is the maximum difference of the power between the halves of a plateau, as a share.
const drift = 0.03

// windowsOn returns the load x and the power y on the plateaus, and the number of plateaus that are
// left out because of gaps, or because y was not steady.
func windowsOn(plateaus []plateau, x, y series) (windows []window, left int, err error) {
	for _, p := range plateaus {
		w := window{p.To - p.From, x.mean(p.From, p.To), y.mean(p.From, p.To)}
		middle := (p.From + p.To) / 2
		change := math.Abs(y.mean(middle, p.To) - y.mean(p.From, middle))
		if math.IsNaN(w.Load) || !(w.Watts > 0) || !(change <= drift*w.Watts) {
			left++
			continue
		}
		windows = append(windows, w)
	}
	switch {
	case len(plateaus) == 0:
		err = errNoPlateau
	case len(windows) == 0:
		err = fmt.Errorf("%w: %d plateaus, all left out: gaps, or a power that was not steady", errNoPlateau, left)
	}
	return windows, left, err
}
