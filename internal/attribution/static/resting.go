// SPDX-License-Identifier: Apache-2.0

package static

import "slices"

// NewResting returns a model whose static power is the median of the idle power minus 1.5
// interquartile ranges. It uses the most recent samples with at most maxUtilization, from 0 to 1.
// SmartWatts (Fieni et al., CCGRID 2020) uses samples at any load, which do not show the idle
// power.
func NewResting(maxUtilization float64) *Model {
	return newModel(func() estimator { return &resting{maxUtilization: maxUtilization} })
}

// resting has the power of the most recent idle samples.
type resting struct {
	maxUtilization float64
	watts          [restingMemory]float64
	next, n        int
	sorted         [restingMemory]float64
}

const (
	restingMemory = 120 // samples
	fewestResting = 10
)

func (r *resting) observe(s sample) {
	if s.utilization > r.maxUtilization {
		return
	}
	r.watts[r.next] = s.watts
	r.next = (r.next + 1) % restingMemory
	r.n = min(r.n+1, restingMemory)
	copy(r.sorted[:r.n], r.watts[:r.n])
	slices.Sort(r.sorted[:r.n])
}

// estimate returns the difference from the median as the standard error, because the median would
// be the static power if the spread were only noise.
func (r *resting) estimate() estimate {
	if r.n < fewestResting {
		return estimate{standardError: -1}
	}
	median, off := r.quantile(0.5), 1.5*(r.quantile(0.75)-r.quantile(0.25))
	return estimate{watts: max(median-off, 0), standardError: off, usable: true, trained: true}
}

// quantile returns a quantile of the samples, interpolated between the two nearest to it.
func (r *resting) quantile(q float64) float64 {
	at := q * float64(r.n-1)
	below := int(at)
	above := min(below+1, r.n-1)
	return r.sorted[below] + (at-float64(below))*(r.sorted[above]-r.sorted[below])
}

func (r *resting) state() []float64 {
	s := make([]float64, 0, restingMemory) // the oldest first
	for i := range r.n {
		s = append(s, r.watts[(r.next-r.n+i+restingMemory)%restingMemory])
	}
	return s
}

func (r *resting) restore(s []float64) bool {
	if len(s) > restingMemory || !plausible(maxWatts, s...) {
		return false
	}
	for _, watts := range s {
		r.observe(sample{watts: watts})
	}
	return true
}
