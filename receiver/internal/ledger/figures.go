// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// DeferredEnergy returns the deferred energy of each zone kind.
func (l *Ledger) DeferredEnergy() map[power.Kind]units.Energy {
	deferred := map[power.Kind]units.Energy{}
	if l.Begun() {
		for i, kind := range l.Kinds {
			if l.Engine.Kinds[i].Present || kind.Zone != power.GPU && slices.Contains(l.Options.Config.Zones, kind.Zone) {
				deferred[kind.Zone] += l.Engine.Kinds[i].Deferred
			}
		}
	}
	return deferred
}

// StaticPowerStates returns the state of the static power model of each kind that has one.
func (l *Ledger) StaticPowerStates() map[power.Class]attribution.ModelState {
	states := map[power.Class]attribution.ModelState{}
	if !l.Begun() {
		return states
	}
	kinds := &l.Engine.Kinds
	for i, kind := range l.Kinds {
		if k := &kinds[i]; k.Present && !k.Ended() && k.Model != attribution.NoModel {
			states[kind] = k.Model
		}
	}
	return states
}

// Trained reports for each kind that has a static power model whether the model is trained.
func (l *Ledger) Trained() map[power.Class]bool {
	trained := map[power.Class]bool{}
	for kind, state := range l.StaticPowerStates() {
		trained[kind] = state == attribution.Trained
	}
	return trained
}

// DroppedSeries returns the number of series that were dropped undelivered.
func (l *Ledger) DroppedSeries() int64 {
	if !l.Begun() {
		return 0
	}
	return int64(l.Engine.Dropped)
}

// CountSeries returns the number of series by entity, without overflow series.
func (l *Ledger) CountSeries() map[identity.Entity]int64 {
	series := map[identity.Entity]int64{}
	if !l.Begun() {
		return series
	}
	for a := range l.Engine.Accounts {
		if !a.Other {
			series[a.Entity]++
		}
	}
	return series
}
