// SPDX-License-Identifier: Apache-2.0

// Package ridge estimates the power of parts of a zone from hardware events. The model is linear and
// is fitted to the zone's own meter. It has no negative coefficient. A ridge draws it to a basic
// weight, such as CPU time by clock rate. If the events explain no power beyond the basic weight,
// the model is the basic weight.
package ridge

import "math"

// The constants of a model. The published series that they were chosen with and the errors of other
// values are listed in dev/replay.md.
const (
	// Strength is the strength of the ridge of a Model whose strength is not set.
	Strength = 0.03
	// decayPerSecond is the decay of the weight of a sample each second. Half of the weight is on the
	// last 12 minutes.
	decayPerSecond = 0.999
	// fewest is the number of seconds of samples before the first fit.
	fewest = 60
	// mostPerBase limits the power of a part, divided by its base, to a multiple of the zone's mean, and
	// to a fraction of it. A core that spins at a barrier draws a quarter of the power of a busy core.
	mostPerBase = 4
	// precision and maxPasses end a fit. Coefficients are relative to the center.
	precision = 1e-9
	maxPasses = 2000
)

// events is the number of rates of a sample: the base, instructions and misses.
const events = 3

// Sample describes a zone over an interval.
type Sample struct {
	// Seconds is the length of the interval. A sample without a length is ignored.
	Seconds float64
	// Base is the sum of the basic weights, per second, in any unit.
	Base float64
	// Instructions and Misses are the numbers of events per second.
	Instructions, Misses float64
	// Watts is the mean active power: static power is not caused by events.
	Watts float64
}

// usable reports whether a sample has a length, a base, and no impossible number.
func (s *Sample) usable() bool {
	const most = 1e100 // the products of two rates are finite
	possible := func(v float64) bool { return v >= 0 && v < most }
	return s.Seconds > 0 && s.Base > 0 && possible(s.Seconds) && possible(s.Base) && possible(s.Instructions) && possible(s.Misses) &&
		math.Abs(s.Watts) < most
}

// Model is a power model. The zero Model has the default strength and is ready for use. A Model is
// not safe for concurrent use.
type Model struct {
	strength float64
	// gram and cross are the decayed normal equations: the sums of the products of two rates, and of
	// a rate and the power. seconds is the decayed length of all samples.
	gram    [events][events]float64
	cross   [events]float64
	seconds float64
	fit     Coefficients
	fitted  bool // fit is up to date
}

// New returns a Model with a strength of the ridge, relative to the sum of the squares of a rate.
// A stronger ridge keeps the model closer to the basic weight.
func New(strength float64) *Model { return &Model{strength: strength} }

// Observe adds a sample.
func (m *Model) Observe(s Sample) {
	if !s.usable() {
		return
	}
	x := [events]float64{s.Base, s.Instructions, s.Misses}
	decay := math.Pow(decayPerSecond, s.Seconds)
	m.seconds = decay*m.seconds + s.Seconds
	for i := range x {
		m.cross[i] = decay*m.cross[i] + s.Seconds*x[i]*s.Watts
		for j := range x {
			m.gram[i][j] = decay*m.gram[i][j] + s.Seconds*x[i]*x[j]
		}
	}
	m.fitted = false
}

// Coefficients returns the fitted model. It is false before enough samples, and if the power does
// not grow with the base.
func (m *Model) Coefficients() (Coefficients, bool) {
	if m.seconds < fewest || !(m.cross[0] > 0) {
		return Coefficients{}, false
	}
	if !m.fitted {
		m.fit, m.fitted = m.solve(), true
	}
	return m.fit, true
}

// solve minimizes the squared error plus the ridge by coordinate descent. Rates are divided by the
// square root of their sum of squares, so that the ridge is equally strong for all of them.
func (m *Model) solve() Coefficients {
	strength := m.strength
	if strength == 0 {
		strength = Strength
	}
	var scale, x [events]float64
	for i := range scale {
		scale[i] = math.Sqrt(m.gram[i][i])
	}
	mean := m.cross[0] / m.gram[0][0]
	center := [events]float64{mean * scale[0]}
	x = center
	for range maxPasses {
		change := 0.0
		for i := range x {
			if scale[i] == 0 {
				continue
			}
			rest := m.cross[i] / scale[i]
			for j := range x {
				if j != i && scale[j] > 0 {
					rest -= m.gram[i][j] / (scale[i] * scale[j]) * x[j]
				}
			}
			next := max(0, rest+strength*center[i]) / (1 + strength)
			change = max(change, math.Abs(next-x[i]))
			x[i] = next
		}
		if change <= precision*center[0] {
			break
		}
	}
	for i := range x {
		if scale[i] > 0 {
			x[i] /= scale[i]
		}
	}
	return Coefficients{Base: x[0], Instructions: x[1], Misses: x[2], Mean: mean}
}

// Coefficients are the watts for each unit of a rate. They are never negative.
type Coefficients struct {
	Base, Instructions, Misses float64
	// Mean is the power divided by the base, over all samples.
	Mean float64
}

// Watts returns the estimated power of a part of the zone with these rates.
func (c *Coefficients) Watts(base, instructions, misses float64) float64 {
	watts := c.Base*base + c.Instructions*instructions + c.Misses*misses
	mean := c.Mean * base
	return min(max(watts, mean/mostPerBase), mean*mostPerBase)
}

// State returns the normal equations, for storage.
func (m *Model) State() []float64 {
	state := []float64{m.seconds}
	for i := range m.cross {
		state = append(append(state, m.cross[i]), m.gram[i][i:]...)
	}
	return state
}

// Restore replaces the samples by a result of State. It reports whether the state is possible.
func (m *Model) Restore(state []float64) bool {
	restored := Model{strength: m.strength}
	if len(state) != len(restored.State()) {
		return false
	}
	for _, v := range state {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	restored.seconds, state = state[0], state[1:]
	for i := range restored.cross {
		restored.cross[i], state = state[0], state[1:]
		for j := i; j < events; j++ {
			restored.gram[i][j], restored.gram[j][i] = state[0], state[0]
			state = state[1:]
		}
	}
	if restored.seconds < 0 || !restored.possible() {
		return false
	}
	*m = restored
	return true
}

// possible reports whether rates that are not negative can have these sums of products.
func (m *Model) possible() bool {
	const rounding = 1e-6
	var correlation [events][events]float64
	for i := range m.gram {
		for j := range m.gram {
			product := m.gram[i][j]
			size := math.Sqrt(m.gram[i][i]) * math.Sqrt(m.gram[j][j])
			if product < 0 || product > size*(1+rounding) {
				return false
			}
			if product > 0 {
				correlation[i][j] = product / size
			}
		}
	}
	a, b, c := correlation[0][1], correlation[0][2], correlation[1][2]
	return (m.seconds > 0) == (m.gram[0][0] > 0) && 1+2*a*b*c-a*a-b*b-c*c >= -rounding
}
