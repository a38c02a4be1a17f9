// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"math"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// FixedSplit calls active what a kind's zones used beyond a stated power in microwatts, by kind, without the part of it
// that is the excluded's by CPU time: a stated power does not hold what they cause, as a learned one does.
func FixedSplit(static [MaxKinds]units.Energy) Split {
	return func(p Portion) units.Energy {
		if p.Elapsed <= 0 || p.OfAll == 0 {
			return 0
		}
		nanoseconds := units.MulDiv(uint64(p.Elapsed), uint64(p.Zones), uint64(p.OfAll))
		idle := units.MulDiv(uint64(static[p.Kind]), nanoseconds, uint64(time.Second))
		active := units.Advance(units.Energy(idle), p.Energy)
		if p.Excluded == 0 {
			return active
		}
		return units.Energy(units.MulDiv(uint64(active), uint64(p.Busy), uint64(p.Busy+p.Excluded)))
	}
}

// NewMinimumSplit takes the lowest power of the last week for static, of samples in which the node's utilization was
// at most this, 0 to 1. Kepler up to 0.9 did so with the lowest power ever seen.
func NewMinimumSplit(maxUtilization float64) *StaticSplit {
	return newStaticSplit(func() estimator { return &minimum{maxUtilization: maxUtilization} })
}

// minimum keeps the lowest power of each of the last days in which there was one, today's last.
type minimum struct {
	maxUtilization float64
	days           [minimumDays]float64 // 0: none
	seconds        float64              // of today
}

const (
	minimumDays = 7
	day         = 24 * 60 * 60 // s
)

func (m *minimum) observe(s sample) {
	if m.seconds += s.seconds; m.seconds >= day {
		m.seconds = 0
		if m.days[minimumDays-1] > 0 { // a day without any changes nothing
			copy(m.days[:], m.days[1:])
			m.days[minimumDays-1] = 0
		}
	}
	today := &m.days[minimumDays-1]
	if s.utilization <= m.maxUtilization && s.watts > 0 && (*today == 0 || s.watts < *today) {
		*today = s.watts
	}
}

func (m *minimum) estimate() (watts float64, ok bool) {
	for _, w := range m.days {
		if w > 0 && (!ok || w < watts) {
			watts, ok = w, true
		}
	}
	return watts, ok
}

func (*minimum) spread() float64 { return -1 }

func (m *minimum) state() []float64 { return append(slices.Clone(m.days[:]), m.seconds) }

func (m *minimum) restore(s []float64) bool {
	if len(s) != minimumDays+1 || !plausible(maxWatts, s[:minimumDays]...) || !plausible(day, s[minimumDays]) {
		return false
	}
	copy(m.days[:], s)
	m.seconds = s[minimumDays]
	return true
}

// NewRestingSplit takes the median less 1.5 interquartile ranges of the power at rest for static: of the last samples
// in which the node's utilization was at most this, 0 to 1. SmartWatts (Fieni et al., CCGRID 2020) does so with all
// samples, which under load has little to do with rest.
func NewRestingSplit(maxUtilization float64) *StaticSplit {
	return newStaticSplit(func() estimator { return &resting{maxUtilization: maxUtilization} })
}

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

func (r *resting) estimate() (watts float64, ok bool) {
	if r.n < fewestResting {
		return 0, false
	}
	return max(r.quantile(0.5)-1.5*(r.quantile(0.75)-r.quantile(0.25)), 0), true
}

// quantile is that of the samples at rest, interpolated between the two that are nearest to it.
func (r *resting) quantile(q float64) float64 {
	at := q * float64(r.n-1)
	below := int(at)
	above := min(below+1, r.n-1)
	return r.sorted[below] + (at-float64(below))*(r.sorted[above]-r.sorted[below])
}

// spread is the standard deviation that a normal distribution with this interquartile range has.
func (r *resting) spread() float64 {
	if r.n < fewestResting {
		return -1
	}
	return (r.quantile(0.75) - r.quantile(0.25)) / 1.349
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

// NewBaseSplit takes the mean power of an empty node for static: of so much time in which its utilization was at most
// this, 0 to 1. KubeWatt (Pijnacker, Setz and Andrikopoulos, 2025) learns so on an empty cluster.
func NewBaseSplit(maxUtilization float64, over time.Duration) *StaticSplit {
	return newStaticSplit(func() estimator { return &base{maxUtilization: maxUtilization, over: over.Seconds()} })
}

// base is a mean over time; once there is enough of that, the oldest fades.
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

func (b *base) estimate() (watts float64, ok bool) {
	return b.mean, b.seconds > 0 && b.seconds >= b.over
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
