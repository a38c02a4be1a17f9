// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// twoSockets returns an engine with the node as domain 0 and two sockets, each with a package zone.
func twoSockets(t testing.TB, cfg Config) *bench {
	b := newBench(t, cfg)
	b.iv.Domains = make([]attribution.Usage, 3)
	b.node = &b.iv.Domains[0]
	b.iv.Zones = []attribution.ZoneReading{{Zone: 1, Domain: 1, Kind: pkg, OK: true}, {Zone: 2, Domain: 2, Kind: pkg, OK: true}}
	b.e.Observe(&b.iv)
	return b
}

// use sets the usage of a domain in the next interval.
func (b *bench) use(domain int, busy, total units.CPUTime, claims ...attribution.Claim) {
	b.iv.Domains[domain] = attribution.Usage{Busy: busy, Total: total, Claims: claims}
}

// second advances by a second, in which the zones of both sockets used energy.
func (b *bench) second(energies ...units.Energy) {
	b.at = b.at.Add(time.Second)
	b.iv.At, b.iv.Elapsed = b.at, time.Second
	for i, energy := range energies {
		b.iv.Zones[i].Total += energy
	}
	b.e.Observe(&b.iv)
}

func TestTheEndOfAKindIsReportedUntilAcknowledged(t *testing.T) {
	b := newBench(t, Config{})
	there := b.iv.Zones
	k := &b.e.Ledger().Kinds[pkg]
	b.observe(units.Joule, 1, 1)
	b.e.Emitted()
	b.e.Outcome(Acknowledged)
	delivered := func() bool { return b.e.Ledger().Delivered(&k.Lifetime) }
	assert.False(t, k.Ended() || delivered())
	b.iv.Zones = nil
	b.e.Observe(&b.iv)
	assert.True(t, k.Ended())
	b.e.Outcome(Acknowledged)
	assert.False(t, delivered(), "the end was not in that collection")
	b.e.Emitted()
	b.e.Outcome(Refused)
	assert.False(t, delivered())
	b.e.Emitted()
	b.e.Outcome(Acknowledged)
	b.e.Observe(&b.iv)
	assert.True(t, k.Ended() && delivered())
	b.iv.Zones = there
	b.observe(units.Joule, 1, 1)
	assert.False(t, k.Ended() || delivered(), "it goes on")
	assert.Equal(t, 2*units.Joule, k.Active)
}

func TestAZoneThatWasOnlyInRefusedEmissionsIsNotSettled(t *testing.T) {
	b := newBench(t, Config{})
	z := &b.e.Ledger().Zones[0]
	settled := func() bool { return b.e.Ledger().Settled(&z.Lifetime) }
	emit := func(read bool, outcome Outcome) {
		b.iv.Zones[0].OK = read
		b.observe(units.Joule, 1, 1)
		b.e.Emitted()
		b.e.Outcome(outcome)
	}
	emit(true, Refused)
	emit(false, Acknowledged)
	assert.False(t, settled(), "the next consumer has nothing of it")
	emit(true, Acknowledged)
	assert.True(t, settled())
	emit(false, Refused)
	emit(false, Acknowledged)
	assert.True(t, settled())
}

func TestLedgerHasTheTimesOfEachDomainOfTheCollection(t *testing.T) {
	e := New(Config{}, time.Unix(0, 0))
	observe := func(domains ...attribution.Usage) {
		e.Observe(&attribution.Interval{Elapsed: time.Second, Domains: domains})
	}
	observe(attribution.Usage{Busy: 1, Total: 2})
	observe(attribution.Usage{Busy: 1, Total: 2}, attribution.Usage{Busy: 3, Total: 4}, attribution.Usage{Busy: 5, Total: 5, Assumed: true})
	assert.Equal(t, []attribution.DomainTime{{Busy: 2, Total: 4}, {Busy: 3, Total: 4}, {}}, e.Ledger().Domains)
	e.Emitted()
	assert.Equal(t, []attribution.DomainTime{{}, {}, {}}, e.Ledger().Domains)
}
