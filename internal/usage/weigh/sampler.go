// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"math"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// energyAt is a total of energy at a time.
type energyAt struct {
	total units.Energy
	at    time.Time
}

// sampler adds up the events and CPU time of shares between two readings of a zone kind.
type sampler struct {
	events    // reports whether cycles, the zero Event, are counted
	now, last energyAt
	zones     int     // number of zones in the total
	sum       counted // since last
	base      float64 // of all shares since last
	missing   bool    // events are missing since last
	untrained bool    // an interval since last is not trainable
}

// sample holds the sums between two readings.
type sample struct {
	seconds, base, watts float64
	counted
	trainable bool // all intervals are trainable
}

// Calibrate sets the total energy of the zones of a kind, the number of these zones, the time of the
// measurement, and proc.Counting.Trainable of the interval. It is called before Weigh. A total below
// the previous total belongs to other zones, and the model is not fitted to the difference.
func (s *sampler) Calibrate(total units.Energy, zones int, at time.Time, trainable bool) {
	s.now, s.zones, s.untrained = energyAt{total, at}, zones, s.untrained || !trainable
}

// Forget discards the current sample.
func (s *sampler) Forget() { s.missing = true }

// add adds an interval. ok reports whether a sample is complete and no events are missing.
func (s *sampler) add(now time.Time, shares []*Share) (complete sample, ok bool) {
	s.begin(now, shares)
	sum := countedIn(shares)
	for i, n := range sum.events {
		s.sum.events[i] = units.AddSaturating(s.sum.events[i], n)
	}
	s.sum.cpu, s.sum.all = units.AddSaturating(s.sum.cpu, sum.cpu), units.AddSaturating(s.sum.all, sum.all)
	for _, share := range shares {
		s.base += baseOf(share)
	}
	s.missing = s.missing || float64(sum.cpu) < leastCounted*float64(sum.all)
	if !s.now.at.After(s.last.at) {
		return sample{}, false
	}
	seconds := s.now.at.Sub(s.last.at).Seconds()
	ok = !s.missing && !s.last.at.IsZero() && s.now.total >= s.last.total
	complete = sample{seconds, s.base / seconds, float64(s.now.total-s.last.total) / float64(units.Joule) / seconds, s.sum, !s.untrained}
	s.last, s.sum, s.base, s.missing, s.untrained = s.now, counted{}, 0, false, false
	return complete, ok
}

const (
	// leastCounted is the part of CPU time whose events must be counted in a sample.
	leastCounted = 0.98
	// maxClock, in cycles per ns, is above the clock rate of any CPU. The cycles of a share may be
	// counted before their CPU time.
	maxClock = 10
)

// baseOf returns the basic weight of a share: CPU time in s, times the clock rate squared.
func baseOf(s *Share) float64 {
	if !s.Counted || s.CPU == 0 {
		return 0
	}
	clock := min(float64(s.Events[proc.Cycles])/float64(s.CPU), maxClock)
	return (s.CPU - s.Discount).Seconds() * clock * clock
}

// inUnits returns a rate in units of 1/one.
func inUnits(rate float64) uint64 { return uint64(math.Min(math.Max(rate, 0), 1<<20) * one) }
