// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"cmp"
	"math"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh/calibrated"
)

// SmartWattsOptions are the parameters of NewSmartWatts. A zero field selects the default.
type SmartWattsOptions struct {
	// Options are the parameters of the model. MaxStatic is the highest static power of one zone.
	calibrated.Options
	// BaseClock is the difference between the clock rates of adjacent layers, in MHz. The default is
	// 100.
	BaseClock float64
}

// NewSmartWatts weighs CPU time by the power that the model of SmartWatts estimates for it. The model
// is fitted to the measured energy of a zone kind of the node. Until the model is fitted, the
// weight is CPU time.
func NewSmartWatts(o SmartWattsOptions) *ByRate {
	return newByRate(&layers{width: cmp.Or(o.BaseClock, 100) * 1e6, options: o.Options})
}

// layers is the source of NewSmartWatts.
type layers struct {
	sampler
	options calibrated.Options
	width   float64 // difference between the clock rates of adjacent layers, in Hz
	model   calibrated.Model
	fit     *calibrated.Fit // for the interval, or nil
}

// fastest is the clock rate in Hz of the last layer, which no CPU reaches. All higher rates belong to
// this layer, which limits the number of layers and their memory.
const fastest = 10e9

func (m *layers) begin(now time.Time, shares []*Share) {
	s, ok := m.add(now, shares)
	if !ok {
		return
	}
	of := calibrated.Sample{Watts: s.watts}
	if s.cpu > 0 {
		of.Layer = int(math.Round(min(float64(s.events[proc.Cycles])/s.cpu.Seconds(), fastest) / m.width))
	}
	for i, n := range s.events {
		of.Rates[i] = float64(n) / s.seconds
	}
	m.model.Options = m.options
	m.model.MaxStatic *= float64(m.zones)
	if s.trainable {
		m.model.Observe(of)
	}
	m.fit = m.model.At(of.Layer)
}

// rate returns the estimated power of the CPU time, in watts per CPU.
func (m *layers) rate(s *Share) (uint64, bool) {
	if m.fit == nil || !s.Counted || s.CPU == 0 || m.err != nil {
		return 0, false
	}
	var perSecond calibrated.Rates
	for i, n := range s.Events {
		perSecond[i] = float64(n) / s.CPU.Seconds()
	}
	return inUnits(m.fit.Active(&perSecond)), true
}

func (m *layers) name() string {
	return "the power of cycles, instructions and cache misses of each process, by the model of SmartWatts"
}
