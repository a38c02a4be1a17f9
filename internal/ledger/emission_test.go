// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// emit observes an interval, emits the ledger and reports the outcome.
func (b *bench) emit(o Outcome, claims ...attribution.Claim) {
	b.observe(units.Joule, 1, 1, claims...)
	b.e.Emitted()
	b.e.Outcome(o)
}

func TestASeriesIsSettledUnlessAllItsEmissionsWereRefused(t *testing.T) {
	for outcome, settles := range map[Outcome]bool{Acknowledged: true, PartlyAcknowledged: true, RefusedForGood: true, Refused: false} {
		b := newBench(t, Config{})
		b.open(1)
		b.emit(outcome)
		a := b.find(identity.ProcessEntity, "1")
		assert.Equal(t, settles, b.e.Settled(&a.Lifetime))
		assert.Equal(t, settles, b.e.SettledIn(a, pkg))
		b.emit(Acknowledged)
		assert.True(t, b.e.Settled(&a.Lifetime))
	}
}

func TestAKindThatBeginsLaterIsSettledLater(t *testing.T) {
	b := newBench(t, Config{})
	b.open(1)
	b.emit(Acknowledged)
	a, zones := b.find(identity.ProcessEntity, "1"), b.iv.Zones
	settled := func() bool { return b.e.SettledIn(a, dram) }
	assert.False(t, settled())
	both := append(slices.Clone(zones), attribution.ZoneReading{Zone: 1, Kind: dram, OK: true})
	b.iv.Zones = both
	b.emit(Refused)
	b.iv.Zones = zones // the kind has ended
	b.emit(Acknowledged)
	assert.False(t, settled(), "it was only in an emission that was refused")
	b.iv.Zones = both
	b.emit(Acknowledged)
	assert.True(t, settled())
}

func TestTheEndOfASeriesIsEmittedUntilItIsAcknowledged(t *testing.T) {
	for outcome, stays := range map[Outcome]bool{Acknowledged: false, PartlyAcknowledged: true, RefusedForGood: true, Refused: true} {
		b := newBench(t, Config{})
		p := b.open(1)
		b.emit(Acknowledged)
		b.e.Close(p)
		b.emit(outcome)
		assert.Equal(t, stays, b.find(identity.ProcessEntity, "1") != nil)
	}
}

func TestASeriesThatEndedGetsNoFurtherKinds(t *testing.T) {
	b := newBench(t, Config{})
	p := b.open(1)
	b.emit(Acknowledged)
	b.e.Close(p)
	b.emit(Refused) // the end waits
	b.iv.Zones = append(b.iv.Zones, attribution.ZoneReading{Zone: 1, Kind: dram, OK: true})
	b.observe(units.Joule, 1, 1)
	a := b.find(identity.ProcessEntity, "1")
	assert.True(t, b.e.HasSeries(a, pkg), "0 J, as before")
	assert.False(t, b.e.HasSeries(a, dram))
	assert.True(t, b.e.HasSeries(b.find(identity.ProcessEntity, "other"), dram))
}
