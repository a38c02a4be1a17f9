// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
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

func TestEachZoneIsSharedByItsOwnDomain(t *testing.T) {
	b := twoSockets(t, Config{})
	busy, calm := b.open(1, inContainer("A")), b.open(2, inContainer("A"))
	b.use(0, 1000*ms, 2000*ms, attribution.Claim{Claimant: busy, CPU: 900 * ms}, attribution.Claim{Claimant: calm, CPU: 100 * ms})
	b.use(1, 900*ms, 1000*ms, attribution.Claim{Claimant: busy, CPU: 900 * ms})
	b.use(2, 100*ms, 1000*ms, attribution.Claim{Claimant: calm, CPU: 100 * ms})
	b.second(100*units.Joule, 50*units.Joule)
	assert.Equal(t, 90*units.Joule, b.energy(identity.ProcessEntity, "1"))
	assert.Equal(t, 5*units.Joule, b.energy(identity.ProcessEntity, "2"))
	assert.Equal(t, 95*units.Joule, b.energy(identity.ContainerEntity, "A"))
	assert.Equal(t, 900*ms, b.find(identity.ProcessEntity, "1").CPU, "of the node's claims only")
	k := b.e.Ledger().Kinds[pkg]
	assert.Equal(t, 95*units.Joule, k.Active)
	assert.Equal(t, 55*units.Joule, k.Idle)
	assert.Equal(t, time.Second, k.RecentTime, "of both at once")
	assert.Equal(t, 1000*ms, b.e.Ledger().Busy)
	assert.Equal(t, 2000*ms, b.e.Ledger().Total)
}

func TestAZoneOfADomainThatIsNotThereWaits(t *testing.T) {
	b := twoSockets(t, Config{})
	p := b.open(1)
	domains := b.iv.Domains
	b.iv.Domains = domains[:2]
	b.use(1, ms, ms, attribution.Claim{Claimant: p, CPU: ms})
	b.second(units.Joule, units.Joule)
	assert.Equal(t, units.Joule, b.e.Ledger().Kinds[pkg].Deferred)
	b.iv.Domains = domains
	b.use(2, ms, ms, attribution.Claim{Claimant: p, CPU: ms})
	b.second(units.Joule, units.Joule)
	assert.Equal(t, 4*units.Joule, b.energy(identity.ProcessEntity, "1"))
}

func TestObserveOfASlowZoneAllocatesNothing(t *testing.T) {
	b := twoSockets(t, Config{})
	var claims []attribution.Claim
	for i := range 100 {
		claims = append(claims, attribution.Claim{Claimant: b.open(int32(i + 1)), CPU: ms})
	}
	cycle := func() {
		for n := range 3 {
			b.use(1, 100*ms, 1000*ms, claims...)
			b.use(2, 100*ms, 1000*ms, claims...)
			b.iv.Zones[0].OK = n == 2
			b.second(units.Joule, units.Joule)
		}
		b.e.Emitted()
		b.e.Outcome(Acknowledged)
	}
	cycle()
	assert.Zero(t, testing.AllocsPerRun(100, cycle))
}

func TestAZoneThatChangesItsKindWithoutAnyUtilizationLosesNothing(t *testing.T) {
	b := newBench(t, Config{})
	zone := &b.iv.Zones[0]
	p := b.open(1)
	zone.Kind = dram
	b.observe(3*units.Joule, 0, 0, attribution.Claim{Claimant: p, CPU: 1})
	b.e.Close(p)
	assert.Equal(t, 3*units.Joule, b.e.Ledger().Kinds[pkg].Unattributed)
	assert.Zero(t, b.e.Ledger().Kinds[pkg].Deferred+b.e.Ledger().Kinds[dram].Deferred)
	b.observe(5*units.Joule, 1, 1)
	assert.Equal(t, 5*units.Joule, b.e.Ledger().Kinds[dram].Unattributed)
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
