// SPDX-License-Identifier: Apache-2.0

// Package ridge estimates the power of parts of a zone from hardware events. The model is linear,
// has no negative coefficient, and is fitted to the zone's own meter. A ridge penalty keeps it
// close to a basic weight, such as CPU time multiplied by a clock rate. If the events explain no
// power beyond the basic weight, the model is the basic weight.
//
// The model has a constant, so it can be fitted to measured power that includes static power.
// Neither static power nor the power of shared parts, such as the uncore, is attributed to an
// event.
package ridge

import "math"

// The constants of a model. dev/replay.md lists the published series that they were chosen with and
// the errors of other values.
const (
	// Strength is the default strength of the ridge.
	Strength = 0.03
	// constantPart is the strength for the constant, relative to the strength for the rates.
	constantPart = 0.1
	// decayPerSecond is the decay of the weight of a sample each second. Half of the weight is on
	// the last 12 minutes.
	decayPerSecond = 0.999
	// fewest is the number of seconds of samples before the first fit.
	fewest = 60
	// mostPerBase limits the power of a part, divided by its base, to between 1/mostPerBase and
	// mostPerBase times the zone's mean. A core that spins at a barrier draws a quarter of the
	// power of a busy core.
	mostPerBase = 4
	// A fit ends when no term changes by more than precision times the mean power, or after
	// maxPasses.
	precision = 1e-7
	maxPasses = 1000
)

// The terms of a model. The first two are fitted first.
const (
	constant = iota
	base
	instructions
	misses
	terms
)

// Sample describes a zone over an interval.
type Sample struct {
	// Seconds is the length of the interval. A sample without a length is ignored.
	Seconds float64
	// Base is the sum of the basic weights, per second, in any unit.
	Base float64
	// Instructions and Misses are the numbers of events per second.
	Instructions, Misses float64
	// Watts is the mean power, with or without static power.
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
	// gram and cross are the decayed normal equations: the sums of the products of two terms, and
	// of a term and the power.
	gram  [terms][terms]float64
	cross [terms]float64
	fit   Coefficients
	// fitted reports whether fit includes all samples.
	fitted bool
}

// New returns a Model with a strength of the ridge, relative to the sum of the squares of a rate.
// A stronger ridge keeps the model closer to the basic weight.
func New(strength float64) *Model { return &Model{strength: strength} }

// Observe adds a sample.
func (m *Model) Observe(s Sample) {
	if !s.usable() {
		return
	}
	decay := math.Pow(decayPerSecond, s.Seconds)
	x := [terms]float64{1, s.Base, s.Instructions, s.Misses}
	for i := range x {
		m.cross[i] = decay*m.cross[i] + s.Seconds*x[i]*s.Watts
		for j := range x {
			m.gram[i][j] = decay*m.gram[i][j] + s.Seconds*x[i]*x[j]
		}
	}
	m.fitted = false
}

// Coefficients returns the fitted model. It returns false before there are enough samples, and if
// the power does not grow with the base.
func (m *Model) Coefficients() (Coefficients, bool) {
	if m.gram[constant][constant] < fewest {
		return Coefficients{}, false
	}
	if !m.fitted {
		m.fit, m.fitted = m.solve(), true
	}
	return m.fit, m.fit.Mean > 0 && !math.IsInf(m.fit.Mean, 0)
}

// solve fits the constant and the base, and then all terms. The first fit is the center of the
// second.
func (m *Model) solve() (c Coefficients) {
	e := m.normalize()
	first := e
	first.ridge[base] = 0
	var none [terms]float64
	center := first.descend(none, none, base+1)
	x := e.descend(center, center, terms)
	for i := range x {
		if e.scale[i] > 0 {
			x[i] /= e.scale[i]
		}
		if i != constant {
			c.Mean += x[i] * m.gram[i][constant] / m.gram[base][constant]
		}
	}
	c.Base, c.Instructions, c.Misses = x[base], x[instructions], x[misses]
	return c
}

// equations are normal equations whose terms are divided by their scale, so that the ridge is
// equally strong for all of them.
type equations struct {
	gram                [terms][terms]float64
	cross, scale, ridge [terms]float64
}

func (m *Model) normalize() (e equations) {
	strength := m.strength
	if strength == 0 {
		strength = Strength
	}
	for i := range e.scale {
		e.scale[i] = math.Sqrt(m.gram[i][i])
		e.ridge[i] = strength
	}
	e.ridge[constant] *= constantPart
	for i := range e.scale {
		for j := range e.scale {
			if size := e.scale[i] * e.scale[j]; size > 0 {
				e.gram[i][j] = m.gram[i][j] / size
			}
		}
		if e.scale[i] > 0 {
			e.cross[i] = m.cross[i] / e.scale[i]
		}
	}
	return e
}

// descend minimizes the squared error plus the ridge around the center by coordinate descent from
// x, with the first n terms.
func (e *equations) descend(center, x [terms]float64, n int) [terms]float64 {
	least := precision * math.Abs(e.cross[constant])
	for range maxPasses {
		change := 0.0
		for i := range n {
			rest := e.cross[i] + e.ridge[i]*center[i]
			for j := range n {
				if j != i {
					rest -= e.gram[i][j] * x[j]
				}
			}
			next := max(0, rest) / (1 + e.ridge[i])
			change = max(change, math.Abs(next-x[i]))
			x[i] = next
		}
		if change <= least {
			break
		}
	}
	return x
}

// Coefficients are the watts for each unit of a rate. They are never negative.
type Coefficients struct {
	Base, Instructions, Misses float64
	// Mean is the power that the rates explain, divided by the base, over all samples.
	Mean float64
}

// Watts returns the estimated power that a part of the zone with these rates causes.
func (c *Coefficients) Watts(base, instructions, misses float64) float64 {
	watts := c.Base*base + c.Instructions*instructions + c.Misses*misses
	mean := c.Mean * base
	return min(max(watts, mean/mostPerBase), mean*mostPerBase)
}

// State returns the normal equations, for storage.
func (m *Model) State() (state []float64) {
	for i := range m.cross {
		state = append(append(state, m.cross[i]), m.gram[i][i:]...)
	}
	return state
}

// Restore replaces the samples by a result of State. It reports whether the state is possible.
func (m *Model) Restore(state []float64) bool {
	restored := Model{strength: m.strength}
	if len(state) != terms+terms*(terms+1)/2 {
		return false
	}
	for i := range restored.cross {
		restored.cross[i], state = state[0], state[1:]
		for j := i; j < terms; j++ {
			restored.gram[i][j], restored.gram[j][i] = state[0], state[0]
			state = state[1:]
		}
	}
	if !restored.possible() {
		return false
	}
	*m = restored
	return true
}

// possible reports whether rates that are not negative can have these sums of products.
func (m *Model) possible() bool {
	const rounding = 1e-6
	for i := range m.gram {
		if math.IsNaN(m.cross[i]) || math.IsInf(m.cross[i], 0) {
			return false
		}
		for j := range m.gram {
			most := math.Sqrt(m.gram[i][i]) * math.Sqrt(m.gram[j][j]) * (1 + rounding)
			if product := m.gram[i][j]; math.IsInf(product, 0) || !(product >= 0 && product <= most) {
				return false
			}
		}
	}
	return true
}
