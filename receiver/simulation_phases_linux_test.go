// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/phase"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit"
)

// mark begins or ends a phase after some intervals. The fourth name is one too many.
func (sim *simulation) mark(e hostsim.Event) {
	if sim.s.phases.config == nil || e.A/16%3 == 0 {
		return
	}
	name := [...]string{"build", "test", phase.None, "ship", "lint"}[e.B/8%5]
	known := sim.s.phases.admits(name)
	if err := sim.s.mark(phase.Mark{Phase: name}); (err == nil) != known {
		sim.fail("phase %s: %w", name, err)
	}
	sim.checkPhases()
}

// checkPhases checks that the phases have what the node has, and lasted since the baseline.
func (sim *simulation) checkPhases() {
	p := &sim.s.phases
	if p.config == nil || sim.s.ledger == nil {
		return
	}
	ledger := sim.s.ledger.Engine.Ledger()
	var sums [attribution.MaxKinds]emit.PhaseEnergy
	var lasted time.Duration
	for i := range p.list {
		lasted += p.list[i].Time
		for kind, energy := range p.list[i].Energy {
			sums[kind].Active += energy.Active
			sums[kind].Idle += energy.Idle
		}
	}
	for kind := range ledger.Kinds {
		if k, of := &ledger.Kinds[kind], sums[kind]; of.Active != k.Active || of.Idle != k.Idle {
			sim.fail("phases have %v of kind %d, the node %d and %d", of, kind, k.Active, k.Idle)
		}
	}
	if sim.phasesSince.IsZero() {
		sim.phasesSince = p.read.Add(-lasted)
	}
	if since := p.read.Sub(sim.phasesSince); lasted != since {
		sim.fail("phases lasted %v of %v", lasted, since)
	}
}
