// SPDX-License-Identifier: Apache-2.0

package static

import "slices"

// NewMinimum returns a model whose static power is the lowest power of the last week, of samples
// with at most the given utilization, 0 to 1. Kepler up to 0.9 takes the lowest power ever seen.
func NewMinimum(maxUtilization float64) *Model {
	return newModel(func() estimator { return &minimum{maxUtilization: maxUtilization} })
}

// minimum keeps the lowest power of each of the last days that had a sample, today's last.
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

// estimate returns an estimate without a standard error: nothing shows how far the lowest power is
// from the usual power at rest.
func (m *minimum) estimate() estimate {
	e := estimate{standardError: -1}
	for _, w := range m.days {
		if w > 0 && (!e.usable || w < e.watts) {
			e.watts, e.usable, e.trained = w, true, true
		}
	}
	return e
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
