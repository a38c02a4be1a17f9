// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/stats"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// window is a time span with its mean load and mean power. Rates are set for training only.
type window struct {
	From, Seconds, Load, Watts float64
	Rates                      model.Rates
}

// add extends the window by another one.
func (w *window) add(other *window) {
	w.Seconds += other.Seconds
	share := other.Seconds / w.Seconds
	w.Load += share * (other.Load - w.Load)
	w.Watts += share * (other.Watts - w.Watts)
	for f, rate := range other.Rates {
		w.Rates[f] += share * (rate - w.Rates[f])
	}
}

// secondsOf returns the time of windows.
func secondsOf(windows []window) (seconds float64) {
	for _, w := range windows {
		seconds += w.Seconds
	}
	return seconds
}

// windowsOn returns the load and the power on stretches of time, without stretches with gaps.
func windowsOn(stretches []span, load, power series) (windows []window) {
	for _, s := range stretches {
		w := window{From: s.from, Seconds: s.to - s.from, Load: load.mean(s.from, s.to), Watts: power.mean(s.from, s.to)}
		if !math.IsNaN(w.Load) && !math.IsNaN(w.Watts) {
			windows = append(windows, w)
		}
	}
	return windows
}

// steady is the maximum distance of the load from its mean on a plateau, as a share of its range.
const steady = 0.03

// plateaus returns the stretches of the load, between two times, on which it stays within 3 % of
// its range, or within three times its noise. settle is the number of seconds that are left out at
// both ends, and shortest the minimum number of seconds of the rest.
func (s series) plateaus(from, to, shortest, settle float64) (found []span) {
	step := max(s.step(), shortest/60)
	values := s.sampled(from, to, step)
	tolerance := tolerance(values)
	add := func(first, last int) {
		p := span{from: from + float64(first)*step + settle, to: from + float64(last)*step - settle}
		if p.to-p.from >= shortest && !math.IsNaN(s.mean(p.from, p.to)) {
			found = append(found, p)
		}
	}
	first, sum := 0, 0.0
	for i, v := range values {
		if i > first && math.Abs(v-sum/float64(i-first)) <= tolerance { // no NaN
			sum += v
			continue
		}
		add(first, i)
		if first, sum = i, v; math.IsNaN(v) {
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
		if !math.IsNaN(v) {
			known = append(known, v)
		}
		if i > 0 && !math.IsNaN(v-values[i-1]) {
			steps = append(steps, math.Abs(v-values[i-1]))
		}
	}
	noise := stats.Median(steps) * 1.05 // the standard deviation of one value: 1.4826 / sqrt(2)
	return max(steady*(stats.Quantile(known, 0.98)-stats.Quantile(known, 0.02)), 3*noise)
}

// drift is the maximum difference of the power between the halves of a plateau, as a share.
const drift = 0.03

// isSteady reports whether a power has no gaps on a plateau, is above 0 and does not drift.
func (s series) isSteady(p span) bool {
	middle := (p.from + p.to) / 2
	mean, change := s.mean(p.from, p.to), s.mean(middle, p.to)-s.mean(p.from, middle)
	return mean > 0 && math.Abs(change) <= drift*mean
}
