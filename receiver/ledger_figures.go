// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// pendingEnergy returns the deferred energy of each zone kind.
func (l *ledger) pendingEnergy() map[power.Kind]units.Energy {
	pending := map[power.Kind]units.Energy{}
	if l.begun() {
		for i, kind := range l.kinds {
			if l.Engine.Ledger().Kinds[i].Present || kind.Zone != power.GPU && slices.Contains(l.Options.Config.Zones, kind.Zone) {
				pending[kind.Zone] += l.Engine.Ledger().Pending(i)
			}
		}
	}
	return pending
}

// staticPowerStates returns the state of the static power model of each kind that has one.
func (l *ledger) staticPowerStates() map[claims.Kind]attribution.ModelState {
	states := map[claims.Kind]attribution.ModelState{}
	if !l.begun() {
		return states
	}
	kinds := &l.Engine.Ledger().Kinds
	for i, kind := range l.kinds {
		if k := &kinds[i]; k.Present && !k.Ended && k.Model != attribution.NoModel {
			states[kind] = k.Model
		}
	}
	return states
}

// droppedSeries returns the number of series that were dropped undelivered.
func (l *ledger) droppedSeries() int64 {
	if !l.begun() {
		return 0
	}
	return int64(l.Engine.Ledger().Dropped)
}

// countSeries returns the number of series by entity, without overflow series.
func (l *ledger) countSeries() map[units.Entity]int64 {
	series := map[units.Entity]int64{}
	if !l.begun() {
		return series
	}
	for a := range l.Engine.Ledger().Accounts {
		if !a.Other {
			series[a.Entity]++
		}
	}
	return series
}
