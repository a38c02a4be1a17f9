// SPDX-License-Identifier: Apache-2.0

package static

import (
	"math"
	"slices"
)

// NewMinimum returns a model whose static power is the lowest power of the last week, at any
// utilization. A lower power takes effect at once. Kepler up to 0.9 uses the lowest power since its
// start.
func NewMinimum() *Model {
	return newModel(func() estimator { return new(minimum) })
}

// minimum has the lowest power of each of the last days that had a sample. The current day is last.
type minimum struct {
	days    [minimumDays]float64 // in watts, 0 for a day without samples
	seconds float64              // time since the current day began
	lowered bool                 // the last sample was the lowest
}

const (
	minimumDays = 7
	day         = 24 * 60 * 60 // s
)

func (m *minimum) observe(s sample) {
	if m.seconds += s.seconds; m.seconds >= day {
		m.seconds = 0
		if m.days[minimumDays-1] > 0 { // a day without samples is not stored
			copy(m.days[:], m.days[1:])
			m.days[minimumDays-1] = 0
		}
	}
	today, lowest := &m.days[minimumDays-1], m.lowest()
	m.lowered = s.watts > 0 && s.watts < lowest
	if s.watts > 0 && (*today == 0 || s.watts < *today) {
		*today = s.watts
	}
}

// lowest returns the lowest power of all days, or infinity without samples.
func (m *minimum) lowest() float64 {
	lowest := math.Inf(1)
	for _, w := range m.days {
		if w > 0 {
			lowest = min(lowest, w)
		}
	}
	return lowest
}

// estimate returns an estimate without a standard error, because the difference between the lowest
// power and the usual idle power cannot be estimated.
func (m *minimum) estimate() estimate {
	watts := m.lowest()
	if math.IsInf(watts, 1) {
		return estimate{standardError: -1}
	}
	return estimate{watts: watts, standardError: -1, usable: true, trained: true, stepped: m.lowered}
}

func (m *minimum) state() []float64 { return append(slices.Clone(m.days[:]), m.seconds) }

func (m *minimum) restore(s []float64) bool {
	if len(s) != minimumDays+1 || !plausible(maxWatts, s[:minimumDays]...) || !plausible(day, s[minimumDays]) {
		return false
	}
	copy(m.days[:], s)
	m.seconds = s[minimumDays]
	return true
}
