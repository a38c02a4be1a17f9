// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"math"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Standing is how far a split has come.
type Standing uint8

// The standings.
const (
	// NothingToLearn is the standing of a split that has nothing to learn.
	NothingToLearn Standing = iota
	// Learning says that the split by utilization stands in.
	Learning
	// Learned says that what was learned is applied.
	Learned
)

// StaticSplit calls active what a kind's zones used beyond a static power, which it learns from the portions
// that it splits: active = max(0, energy - static power * time). Until it has learned, it splits by utilization.
type StaticSplit struct {
	learn func() estimator
	kinds [MaxKinds]learningKind
}

// estimator learns the static power of the zones of one kind.
type estimator interface {
	// observe adds a sample.
	observe(sample)
	// estimate returns the static power in watts, and whether it is known.
	estimate() (watts float64, ok bool)
	// spread returns how far power typically is from what the estimator expects, in watts, below
	// 0 where it expects nothing.
	spread() float64
	// state returns what was learned as finite numbers, and restore takes it back. restore says whether it is of this
	// kind of estimator and possible; if not, the estimator is of no use any more.
	state() []float64
	restore([]float64) bool
}

// sample is the power of all zones of a kind over some time.
type sample struct {
	utilization float64 // 0 to 1
	watts       float64
	seconds     float64
}

// learningKind is what is known of one kind.
type learningKind struct {
	estimator estimator // nil before the first sample
	zones     int       // of the kind, when it was learned
	gathered  gathering
	applied   float64 // static power in use in watts, once there is one
	learned   bool
}

// gathering is a sample to be.
type gathering struct {
	energy      units.Energy
	busy, total units.CPUTime
	elapsed     time.Duration
}

const (
	// sampleLength is the length of a sample of windows shorter than that. A sample ends with the window whose end is
	// nearest to it, as windows of a second are in truth of 0.9998 s, and so covers two thirds of it at least.
	sampleLength = time.Second
	// maxSampleLength is how long one may be: of a longer gap its average says too little.
	maxSampleLength = 5 * time.Minute
	// adoption is the time constant with which the static power in use follows the estimate.
	adoption = 10 * time.Minute
)

func newStaticSplit(learn func() estimator) *StaticSplit { return &StaticSplit{learn: learn} }

// Active is the Split.
func (s *StaticSplit) Active(p Portion) units.Energy {
	k := &s.kinds[p.Kind]
	s.gather(k, p)
	if !k.learned || p.Of == 0 {
		return ByUtilization(p)
	}
	static := k.applied * float64(p.Zones) / float64(max(p.Of, k.zones)) * p.Elapsed.Seconds() * float64(units.Joule)
	if static >= float64(p.Energy) {
		return 0
	}
	return p.Energy - units.Energy(math.Round(static))
}

// gather learns from a portion that covers all zones of its kind, those too that have not been read yet since a
// restart.
func (s *StaticSplit) gather(k *learningKind, p Portion) {
	if p.Partial || p.Zones != p.Of || p.Of < k.zones || p.Elapsed <= 0 || p.Elapsed > maxSampleLength {
		return
	}
	if k.zones != p.Of {
		*k = learningKind{zones: p.Of} // what is known is not of these zones
	}
	if k.estimator == nil {
		k.estimator = s.learn()
	}
	g := &k.gathered
	g.energy += p.Energy
	g.busy += min(p.Busy, p.Total)
	g.total += p.Total
	g.elapsed += p.Elapsed
	if g.elapsed+p.Elapsed/2 < sampleLength {
		return
	}
	seconds := g.elapsed.Seconds()
	k.estimator.observe(sample{
		utilization: float64(g.busy) / float64(g.total),
		watts:       g.energy.Joules() / seconds,
		seconds:     seconds,
	})
	*g = gathering{}
	k.follow(seconds)
}

// follow moves the static power in use towards the estimate; the first one is taken as it is.
func (k *learningKind) follow(seconds float64) {
	watts, ok := k.estimator.estimate()
	switch {
	case !ok:
	case !k.learned:
		k.learned, k.applied = true, watts
	default:
		k.applied += (watts - k.applied) * -math.Expm1(-seconds/adoption.Seconds())
	}
}

// Standing says how far a kind has come.
func (s *StaticSplit) Standing(kind int) Standing {
	if s.kinds[kind].learned {
		return Learned
	}
	return Learning
}

// StaticPower returns the static power in use in watts, 0 before there is one.
func (s *StaticSplit) StaticPower(kind int) float64 { return s.kinds[kind].applied }

// Spread returns how far the power of a kind's zones typically is from what was learned, as a standard deviation in
// watts; below 0 where the rule does not tell.
func (s *StaticSplit) Spread(kind int) float64 {
	if k := &s.kinds[kind]; k.learned {
		return k.estimator.spread()
	}
	return -1
}

// LearnedKind is what a StaticSplit knows of one kind, to be kept.
type LearnedKind struct {
	// Zones is how many zones of the kind there were.
	Zones int
	// Static is the static power in use in watts, if Learned.
	Static  float64
	Learned bool
	// Estimator is the learning itself.
	Estimator []float64
}

// State returns what is known of a kind; ok is false where that is nothing.
func (s *StaticSplit) State(kind int) (state LearnedKind, ok bool) {
	k := &s.kinds[kind]
	if k.estimator == nil {
		return LearnedKind{}, false
	}
	return LearnedKind{Zones: k.zones, Static: k.applied, Learned: k.learned, Estimator: k.estimator.state()}, true
}

// Restore takes back what State returned, and says whether it could be: it must be of the same rule, and possible.
func (s *StaticSplit) Restore(kind int, state LearnedKind) bool {
	e := s.learn()
	if state.Zones <= 0 || !plausible(maxWatts, state.Static) || !e.restore(state.Estimator) {
		return false
	}
	s.kinds[kind] = learningKind{estimator: e, zones: state.Zones, applied: state.Static, learned: state.Learned}
	return true
}

// maxWatts is more than any machine draws.
const maxWatts = 1e6

// plausible says that numbers are from 0 to most.
func plausible(most float64, numbers ...float64) bool {
	for _, n := range numbers {
		if !(n >= 0 && n <= most) { // nor is it no number
			return false
		}
	}
	return true
}
