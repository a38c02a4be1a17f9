// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// living counts the accounts whose end is not delivered, without those of the others.
func (b *bench) living() (n int) {
	for a := range b.e.Ledger().Accounts {
		if !a.Other {
			n++
		}
	}
	return n
}

func (b *bench) deliver() {
	b.e.Emitted()
	b.e.Outcome(Acknowledged)
}

func TestAPipelineThatAlwaysRefusesUsesBoundedMemory(t *testing.T) {
	b := newBench(t, Config{Limits: Limits{identity.ProcessEntity: {MinEnergy: units.Joule, Max: 5}}})
	const births = maxEnded + 100
	for i := range births {
		p := b.open(int32(i+1), inContainer(fmt.Sprint(i)))
		b.observe(units.Joule, 1, 1, attribution.Claim{Claimant: p, CPU: 1})
		b.e.Close(p)
		if i%1000 == 0 {
			b.e.Emitted()
			b.e.Outcome(Refused)
		}
	}
	assert.LessOrEqual(t, b.living(), maxEnded+5)
	assert.EqualValues(t, 100+births-5, b.e.Ledger().Dropped, "containers and processes")
	assert.Equal(t, 100*units.Joule, b.energy(identity.ContainerEntity, "other"))
	requireConserved(t, b.e, byKind{})
	b.deliver()
	assert.Zero(t, b.living())
	assert.Zero(t, b.e.ended)
	assert.Empty(t, b.e.series)
}

func TestSeriesTheDestinationMayKnowAreNotCountedTwice(t *testing.T) {
	const unanswered = Outcome(99)
	for outcome, others := range map[Outcome]units.Energy{Refused: 2 * units.Joule, PartlyAcknowledged: 0, unanswered: 0} {
		b := newBench(t, Config{Limits: Limits{identity.ProcessEntity: {Max: 2}}})
		for i := range 4 {
			p := b.open(int32(i + 1))
			b.observe(units.Joule, 1, 1, attribution.Claim{Claimant: p, CPU: 1})
			b.e.Emitted()
			if outcome != unanswered {
				b.e.Outcome(outcome)
			}
			b.e.Close(p)
		}
		assert.Equal(t, others, b.energy(identity.ProcessEntity, "other"), "outcome %d", outcome)
		requireConserved(t, b.e, byKind{})
		b.deliver()
		assert.Zero(t, b.living())
	}
}

func TestASeriesThatContinuesIsNotAmongTheEnded(t *testing.T) {
	b := newBench(t, Config{})
	b.e.Close(b.open(1, inContainer("A")))
	again := b.open(2, inContainer("A"))
	assert.Equal(t, [identity.NumEntities]int{identity.ProcessEntity: 1}, b.e.ended)
	b.e.Close(again)
	b.deliver()
	assert.Equal(t, [identity.NumEntities]int{}, b.e.ended)
}

func TestAContinuedSeriesIsNotCountedTwice(t *testing.T) {
	for name, answer := range map[string]Outcome{"acknowledged": Acknowledged, "in part": PartlyAcknowledged} {
		for _, meanwhile := range []bool{false, true} { // it continues before the destination has answered
			b := newBench(t, Config{Limits: Limits{identity.ProcessEntity: {Max: 1}}})
			p := b.open(1)
			b.observe(units.Joule, 1, 1, attribution.Claim{Claimant: p, CPU: 1})
			b.e.Close(p)
			b.e.Emitted()
			if !meanwhile {
				b.e.Outcome(answer)
			}
			p = b.open(1)
			if meanwhile {
				b.e.Outcome(answer)
			}
			larger := b.open(2)
			b.iv.EndsCollection = true
			b.observe(11*units.Joule, 11, 11, attribution.Claim{Claimant: p, CPU: 1}, attribution.Claim{Claimant: larger, CPU: 10})
			sent := units.Joule
			if name == "acknowledged" && !meanwhile {
				sent = 0 // it was dropped, and the second joule has no series
			}
			assert.Equal(t, units.Joule-sent, b.energy(identity.ProcessEntity, "other"), "%s, meanwhile: %v", name, meanwhile)
			assert.Equal(t, []string{"p2"}, b.live(identity.ProcessEntity))
		}
	}
}

func TestAnotherCommandLineIsAnotherSeries(t *testing.T) {
	b := newBench(t, Config{})
	owner := identity.Owner{Process: identity.Process{PID: 7, Path: "/bin/busybox", CommandLine: "sh"}}
	b.e.Open(owner, baseline)
	owner.Process.CommandLine = "gzip file"
	b.e.Open(owner, baseline)
	assert.Equal(t, 2, b.living())
}

// A zone with 5 J deferred is replaced by another one, whose counter cannot be read at first and
// then shows 1000 J.
func TestAReplacedZoneGoesOnFromTheNextGoodReading(t *testing.T) {
	b := newBench(t, Config{})
	b.iv.Zones = append(b.iv.Zones, attribution.ZoneReading{Zone: 1, Kind: dram, OK: true})
	b.observe(0, 1, 1)
	p := b.open(1)
	z := &b.iv.Zones[1]
	z.Total, z.OK = 5*units.Joule, false
	b.observe(units.Joule, 1, 1, attribution.Claim{Claimant: p, CPU: 1})
	z.Total, z.Replaced = 0, true
	b.observe(units.Joule, 1, 1)
	assert.Equal(t, 5*units.Joule, b.find(identity.ProcessEntity, "1").Amounts(dram).Energy, "shared by the CPU time of the interval")
	z.Total, z.OK = 1000*units.Joule, true
	b.observe(units.Joule, 1, 1, attribution.Claim{Claimant: p, CPU: 1})
	zone := &b.e.Ledger().Zones[1]
	assert.Equal(t, 5*units.Joule, zone.Energy, "a baseline")
	assert.Equal(t, b.at, zone.At)
	assert.False(t, zone.Ended())
	z.Total, z.Replaced = 1003*units.Joule, false
	b.observe(units.Joule, 1, 1, attribution.Claim{Claimant: p, CPU: 1})
	assert.Equal(t, 8*units.Joule, zone.Energy)
	assert.Equal(t, time.Second, zone.RecentTime, "of this interval alone")
	assert.Equal(t, 8*units.Joule, b.find(identity.ProcessEntity, "1").Amounts(dram).Energy)
	requireConserved(t, b.e, byKind{})
}
