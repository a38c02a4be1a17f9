// SPDX-License-Identifier: Apache-2.0

package static

import (
	"math"
	"time"
)

// NewBase returns a model whose static power is the mean power of an empty node. The mean is taken
// over samples with at most maxUtilization, from 0 to 1, of the total duration over. KubeWatt
// (Pijnacker, Setz and Andrikopoulos, 2025) uses this method on an empty cluster.
func NewBase(maxUtilization float64, over time.Duration) *Model {
	return newModel(func() estimator { return &base{maxUtilization: maxUtilization, over: over.Seconds()} })
}

// base is a mean over time. After the required time, older samples fade.
type base struct {
	maxUtilization, over float64
	seconds, mean        float64
	square               float64 // mean of the squares of the deviations
}

func (b *base) observe(s sample) {
	if s.utilization > b.maxUtilization {
		return
	}
	b.seconds += s.seconds
	part := s.seconds / min(b.seconds, max(b.over, s.seconds))
	off := s.watts - b.mean
	b.mean += part * off
	b.square += part * (off*(s.watts-b.mean) - b.square)
}

// estimate returns the standard deviation of the power as the standard error. The deviation is
// caused by the small load of an idle node, which also raises the mean.
func (b *base) estimate() estimate {
	ok := b.seconds > 0 && b.seconds >= b.over
	return estimate{watts: b.mean, standardError: b.spread(), usable: ok, trained: ok}
}

func (b *base) spread() float64 { return math.Sqrt(max(b.square, 0)) }

func (b *base) state() []float64 { return []float64{b.seconds, b.mean, max(b.square, 0)} }

func (b *base) restore(s []float64) bool {
	if len(s) != 3 || !plausible(math.MaxFloat64, s[0]) || !plausible(maxWatts, s[1]) || !plausible(maxWatts*maxWatts, s[2]) {
		return false
	}
	b.seconds, b.mean, b.square = s[0], s[1], s[2]
	return true
}
