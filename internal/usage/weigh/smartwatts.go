// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"math"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh/calibrated"
)

// NewSmartWatts weighs CPU time by the power that the model of SmartWatts estimates for it. The model
// is fitted to the measured energy of a zone kind of the node. Until the model is fitted, the
// weight is CPU time.
func NewSmartWatts() *ByRate { return newByRate(&layers{}) }

// layers is the source of NewSmartWatts.
type layers struct {
	sampler
	model calibrated.Model
	fit   *calibrated.Fit // of the interval, or nil
}

const (
	// layerWidth is the difference of the clock rates of two layers, in cycles per second.
	layerWidth = 100e6
	// maxLayer is the layer of all higher rates, which no CPU has. It bounds the number of layers,
	// and their memory.
	maxLayer = 100
)

func (m *layers) begin(now time.Time, shares []*Share) {
	s, ok := m.add(now, shares)
	if !ok {
		return
	}
	of := calibrated.Sample{Watts: s.watts}
	if s.cpu > 0 {
		of.Layer = int(math.Round(min(float64(s.events[proc.Cycles])/s.cpu.Seconds()/layerWidth, maxLayer)))
	}
	for i, n := range s.events {
		of.Rates[i] = float64(n) / s.seconds
	}
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
