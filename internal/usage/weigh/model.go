// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power/model/ridge"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// NewModel weighs CPU time by the power that a ridge model of hardware events estimates for it. The
// model is fitted to the measured energy of a zone kind of the node. Until the model is fitted, the
// weight is CPU time multiplied by the square of the clock rate.
func NewModel(model *ridge.Model) *ByRate {
	return newByRate(&modelSource{model: model})
}

// modelSource is the source of NewModel.
type modelSource struct {
	sampler
	model  *ridge.Model
	fit    ridge.Coefficients
	fitted bool
}

func (m *modelSource) begin(now time.Time, shares []*Share) {
	s, ok := m.add(now, shares)
	if ok && s.trainable {
		m.model.Observe(ridge.Sample{
			Seconds: s.seconds, Base: s.base, Watts: s.watts,
			Instructions: float64(s.events[proc.Instructions]) / s.seconds, Misses: float64(s.events[proc.CacheMisses]) / s.seconds,
		})
	}
	m.fit, m.fitted = m.model.Coefficients()
}

// rate returns the estimated power of the CPU time, divided by the mean power of a basic weight of
// 1. Rates before and after a fit then have one scale.
func (m *modelSource) rate(s *Share) (uint64, bool) {
	if !s.Counted || s.CPU == 0 || m.err != nil {
		return 0, false
	}
	seconds := s.CPU.Seconds()
	base := baseOf(s) / seconds
	if !m.fitted {
		return inUnits(base), true
	}
	watts := m.fit.Watts(base, float64(s.Events[proc.Instructions])/seconds, float64(s.Events[proc.CacheMisses])/seconds)
	return inUnits(watts / m.fit.Mean), true
}

func (m *modelSource) name() string {
	return "the power of clock rate, instructions and cache misses of each process, counted at context switches"
}
