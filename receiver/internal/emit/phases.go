// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Phase is what a phase has of the ledger.
type Phase struct {
	Name string
	// Start is when the phase began for the first time.
	Start time.Time
	// Time is how long it lasted so far.
	Time time.Duration
	// Energy is by the ledger's kinds. It may be shorter: the rest is 0.
	Energy []PhaseEnergy
}

// PhaseEnergy is what a phase has of a kind.
type PhaseEnergy struct{ Active, Idle units.Energy }

// emitPhases emits how long each phase lasted, and its energy of all kinds that are present.
func (m *emission) emitPhases(into pmetric.MetricSlice) {
	n := len(m.phases)
	energy := writer{metric: m.node.phaseEnergy, into: into, most: 2 * n * len(m.kinds)}
	lasted := writer{metric: m.node.phaseTime, into: into, most: n}
	for i := range m.phases {
		p := &m.phases[i]
		name := label{key: attrEnergyPhase, text: p.Name}
		lasted.zero = m.zeroPoint(!p.Start.After(m.ledger.Settled), p.Start)
		lasted.write([]label{name}, pcommon.NewTimestampFromTime(p.Start), m.at, p.Time.Seconds())
		for kind := range m.kinds {
			k, of := &m.ledger.Kinds[kind], &m.kinds[kind]
			if !k.Present {
				continue
			}
			var e PhaseEnergy
			if kind < len(p.Energy) {
				e = p.Energy[kind]
			}
			began := k.Start
			if p.Start.After(began) {
				began = p.Start
			}
			start := pcommon.NewTimestampFromTime(began)
			energy.zero = m.zeroPoint(!began.After(m.ledger.Settled), began)
			energy.write(append(slices.Clip(of.active), name), start, m.at, e.Active.Joules())
			energy.write(append(slices.Clip(of.idle), name), start, m.at, e.Idle.Joules())
		}
	}
}
