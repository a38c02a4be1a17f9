// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// twoSockets returns an engine with the node as domain 0 and two sockets, each with a package zone.
func twoSockets(t testing.TB, cfg Config) *bench {
	b := newBench(t, cfg)
	b.iv.Domains = make([]Usage, 3)
	b.node = &b.iv.Domains[0]
	b.iv.Zones = []ZoneReading{{Zone: 1, Domain: 1, Kind: pkg, OK: true}, {Zone: 2, Domain: 2, Kind: pkg, OK: true}}
	b.e.Observe(&b.iv)
	return b
}

// use sets the usage of a domain in the next interval.
func (b *bench) use(domain int, busy, total units.CPUTime, claims ...Claim) {
	b.iv.Domains[domain] = Usage{Busy: busy, Total: total, Claims: claims}
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
	b.use(0, 1000*ms, 2000*ms, Claim{Claimant: busy, CPU: 900 * ms}, Claim{Claimant: calm, CPU: 100 * ms})
	b.use(1, 900*ms, 1000*ms, Claim{Claimant: busy, CPU: 900 * ms})
	b.use(2, 100*ms, 1000*ms, Claim{Claimant: calm, CPU: 100 * ms})
	b.second(100*units.Joule, 50*units.Joule)
	assert.Equal(t, 90*units.Joule, b.energy(units.ProcessEntity, "1"))
	assert.Equal(t, 5*units.Joule, b.energy(units.ProcessEntity, "2"))
	assert.Equal(t, 95*units.Joule, b.energy(units.ContainerEntity, "A"))
	assert.Equal(t, 900*ms, b.find(units.ProcessEntity, "1").CPU, "of the node's claims only")
	k := b.e.Ledger().Kinds[pkg]
	assert.Equal(t, 95*units.Joule, k.Active)
	assert.Equal(t, 55*units.Joule, k.Idle)
	assert.Equal(t, time.Second, k.RecentTime, "of both at once")
	assert.Equal(t, 1000*ms, b.e.Ledger().Busy)
	assert.Equal(t, 2000*ms, b.e.Ledger().Total)
}

func TestAClaimantHasEnergyOfBothDomainsThatItUses(t *testing.T) {
	b := twoSockets(t, Config{})
	both, one := b.open(1), b.open(2)
	b.use(1, 1000*ms, 1000*ms, Claim{Claimant: both, CPU: 250 * ms}, Claim{Claimant: one, CPU: 750 * ms})
	b.use(2, 500*ms, 1000*ms, Claim{Claimant: both, CPU: 500 * ms})
	b.second(100*units.Joule, 50*units.Joule)
	assert.Equal(t, 50*units.Joule, b.energy(units.ProcessEntity, "1"))
	assert.Equal(t, 75*units.Joule, b.energy(units.ProcessEntity, "2"))
}

func TestPendingEnergyIsSharedByTheClaimsOfItsOwnDomain(t *testing.T) {
	b := twoSockets(t, Config{})
	first, second := b.open(1), b.open(2)
	b.iv.Zones[0].OK = false
	b.use(1, 1000*ms, 1000*ms, Claim{Claimant: first, CPU: 1000 * ms})
	b.use(2, 1000*ms, 1000*ms, Claim{Claimant: second, CPU: 1000 * ms})
	b.second(0, 7*units.Joule)
	assert.Equal(t, 7*units.Joule, b.energy(units.ProcessEntity, "2"), "the other domain does not wait")
	b.e.Close(first)
	b.iv.Zones[0].OK = true
	b.use(1, 0, 1000*ms)
	b.second(10*units.Joule, 7*units.Joule)
	assert.Equal(t, 5*units.Joule, b.energy(units.ProcessEntity, "1"))
	assert.Equal(t, 14*units.Joule, b.energy(units.ProcessEntity, "2"))
	assert.Equal(t, 5*units.Joule, b.e.Ledger().Kinds[pkg].Idle)
	requireConserved(t, b.e, byKind{})
}

func TestADomainWithoutUtilizationWaitsAlone(t *testing.T) {
	b := twoSockets(t, Config{})
	first, second := b.open(1), b.open(2)
	b.use(1, 0, 0, Claim{Claimant: first, CPU: 100 * ms})
	b.use(2, 1000*ms, 1000*ms, Claim{Claimant: second, CPU: 1000 * ms})
	b.second(10*units.Joule, 7*units.Joule)
	assert.Equal(t, 10*units.Joule, b.e.Ledger().Pending(pkg))
	b.use(1, 1000*ms, 1000*ms, Claim{Claimant: second, CPU: 100 * ms})
	b.second(10*units.Joule, 0)
	assert.Zero(t, b.e.Ledger().Pending(pkg))
	assert.Equal(t, 10*units.Joule, b.energy(units.ProcessEntity, "1"))
	assert.Equal(t, 17*units.Joule, b.energy(units.ProcessEntity, "2"))
}

func TestAZoneOfADomainThatIsNotThereWaits(t *testing.T) {
	b := twoSockets(t, Config{})
	p := b.open(1)
	domains := b.iv.Domains
	b.iv.Domains = domains[:2]
	b.use(1, ms, ms, Claim{Claimant: p, CPU: ms})
	b.second(units.Joule, units.Joule)
	assert.Equal(t, units.Joule, b.e.Ledger().Pending(pkg))
	b.iv.Domains = domains
	b.use(2, ms, ms, Claim{Claimant: p, CPU: ms})
	b.second(units.Joule, units.Joule)
	assert.Equal(t, 4*units.Joule, b.energy(units.ProcessEntity, "1"))
}

// The zone uses 5 J in 5 s, so that a microsecond of CPU time has a microjoule of the active energy.
func TestASlowZoneIsExactWithTheClaimsOfItsDomain(t *testing.T) {
	b := twoSockets(t, Config{})
	claimants := []Claimant{b.open(1), b.open(2), b.open(3)}
	used := make([]units.CPUTime, len(claimants))
	r := rand.New(rand.NewPCG(3, 4))
	for second := range 50 {
		busy, claims := units.CPUTime(0), []Claim(nil)
		for i, c := range claimants {
			cpu := units.CPUTime(r.IntN(300)) * ms
			claims = append(claims, Claim{Claimant: c, CPU: cpu})
			used[i] += cpu
			busy += cpu
		}
		b.use(1, busy, 1000*ms, claims...)
		b.use(2, 1000*ms, 1000*ms, Claim{Claimant: claimants[0], CPU: 1000 * ms})
		if b.iv.Zones[0].OK = second%5 == 4; !b.iv.Zones[0].OK {
			b.second(0, 0)
			continue
		}
		b.second(5*units.Joule, 0)
		for i := range claimants {
			microjoules := float64(used[i] / (ms / 1000))
			assert.InDelta(t, microjoules, float64(b.energy(units.ProcessEntity, fmt.Sprint(i+1))), 2*float64(second/5+1))
		}
	}
}

func TestObserveOfASlowZoneAllocatesNothing(t *testing.T) {
	b := twoSockets(t, Config{})
	var claims []Claim
	for i := range 100 {
		claims = append(claims, Claim{Claimant: b.open(int32(i + 1)), CPU: ms})
	}
	cycle := func() {
		for n := range 3 {
			b.use(1, 100*ms, 1000*ms, claims...)
			b.use(2, 100*ms, 1000*ms, claims...)
			b.iv.Zones[0].OK = n == 2
			b.second(units.Joule, units.Joule)
		}
		b.e.Emitted()
		b.e.Acknowledged()
	}
	cycle()
	assert.Zero(t, testing.AllocsPerRun(100, cycle))
}

// domainHistory is a random history of several domains, with zones that fail, vanish, return and are replaced.
type domainHistory struct {
	t         testing.TB
	random    *rand.Rand
	e         *Engine
	iv        Interval
	zones     []historyZone
	claimants []historyClaimant
	used      byKind // by all zones of a kind
	delivered byKind
	idle      byKind // delivered
	ownKinds  bool   // no two domains share a zone kind
	pid       int32
}

type historyZone struct {
	domain, kind int
	total        units.Energy // of the meter
	shown        units.Energy // the last total that the engine has read
	known        bool         // it had a good reading
	absent       bool
	replaced     bool // no good reading since
	asked        int  // kind of its next good reading
}

type historyClaimant struct {
	id   Claimant
	pid  int32
	uses map[int]bool // by domain
}

const (
	historyDomains   = 4
	kindsPerDomain   = MaxKinds / historyDomains
	zonesPerDomain   = 3
	historyIntervals = 80
)

func newDomainHistory(t testing.TB, seed uint64) *domainHistory {
	h := &domainHistory{t: t, random: rand.New(rand.NewPCG(seed, 5)), ownKinds: seed%2 == 0}
	cfg := Config{}
	cfg.Rules.Idle = IdleAllocation(seed / 2 % 5)
	if seed%3 == 0 {
		cfg.Limits[units.ProcessEntity] = Limit{MinEnergy: units.Energy(h.random.IntN(1000)), Max: 1 + h.random.IntN(9)}
	}
	h.e = New(cfg, baseline)
	h.iv = Interval{At: baseline, Domains: make([]Usage, historyDomains)}
	for domain := range historyDomains {
		for n := range zonesPerDomain {
			kind := h.kindsOf(domain)[n%kindsPerDomain]
			h.zones = append(h.zones, historyZone{domain: domain, kind: kind, asked: kind})
		}
	}
	return h
}

// kindsOf returns the possible kinds of a domain's zones.
func (h *domainHistory) kindsOf(domain int) (kinds []int) {
	for kind := range kindsPerDomain {
		if h.ownKinds {
			kind += domain * kindsPerDomain
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

// changeZones adds and removes zones, and changes their readings.
func (h *domainHistory) changeZones(last bool) {
	r := h.random
	h.iv.Zones = h.iv.Zones[:0]
	for i := range h.zones {
		z := &h.zones[i]
		z.total += units.Energy(r.Uint64N(1 << 36))
		if z.absent = !last && (z.absent && r.IntN(3) > 0 || r.IntN(15) == 0); z.absent {
			continue
		}
		if z.known && r.IntN(15) == 0 {
			z.replaced, z.total = true, units.Energy(r.Uint64N(1<<36))
		}
		ok := last || r.IntN(4) > 0
		if z.known && r.IntN(15) == 0 { // to another kind of its domain, or to none
			z.asked = append(h.kindsOf(z.domain), NotAttributed)[r.IntN(kindsPerDomain+1)]
		}
		reading := ZoneReading{Zone: i, Domain: z.domain, Kind: z.asked, Total: z.total, OK: ok, Replaced: z.replaced}
		if !ok && !z.replaced && r.IntN(2) == 0 {
			reading.Total = z.shown // the read failed
		}
		if !z.replaced && z.known && z.kind != NotAttributed {
			h.used[z.kind] += reading.Total - z.shown
		}
		if ok {
			z.known, z.replaced, z.kind = true, false, z.asked
		}
		z.shown = reading.Total
		h.iv.Zones = append(h.iv.Zones, reading)
	}
}

// changeUsage opens claimants and sets their use of the domains.
func (h *domainHistory) changeUsage(last bool) {
	r := h.random
	for r.IntN(2) == 0 {
		h.pid++
		o := units.Owner{Process: units.Process{PID: h.pid, Start: time.Duration(h.pid)}}
		if r.IntN(2) == 0 {
			inPod(fmt.Sprint("c", r.IntN(5)), "pod")(&o)
		}
		c := historyClaimant{h.e.Open(o, h.iv.At), h.pid, map[int]bool{r.IntN(historyDomains): true}}
		if r.IntN(3) == 0 {
			c.uses[r.IntN(historyDomains)] = true
		}
		h.claimants = append(h.claimants, c)
	}
	for domain := range h.iv.Domains {
		u := Usage{Busy: units.CPUTime(r.Uint64N(1 << 40))}
		u.Total = u.Busy + units.CPUTime(r.Uint64N(1<<40))
		u.IdleAmongClaims = domain >= historyDomains/2
		if u.Unattributed = units.CPUTime(r.Uint64N(1 << 38)); r.IntN(2) == 0 {
			u.Unattributed = 0
		}
		for _, c := range h.claimants {
			if c.uses[domain] && r.IntN(3) > 0 {
				claim := Claim{Claimant: c.id, CPU: units.CPUTime(r.Uint64N(1 << 38)), ShortLived: r.IntN(6) == 0}
				if u.IdleAmongClaims && r.IntN(2) == 0 {
					claim = Claim{Claimant: c.id}
				}
				u.Claims = append(u.Claims, claim)
			}
		}
		if !last && r.IntN(8) == 0 {
			u.Busy, u.Total = 0, 0
		}
		if last {
			u.Total++
		}
		h.iv.Domains[domain] = u
	}
}

func (h *domainHistory) step(last bool) {
	h.iv.At, h.iv.Elapsed = h.iv.At.Add(time.Second), time.Second
	h.iv.EndsCollection = h.random.IntN(2) == 0
	h.changeUsage(last)
	h.changeZones(last)
	h.e.Observe(&h.iv)
	h.claimants = slices.DeleteFunc(h.claimants, func(c historyClaimant) bool {
		end := h.random.IntN(8) == 0
		if end {
			h.e.Close(c.id)
		}
		return end
	})
	h.check()
	if h.iv.EndsCollection {
		h.e.Emitted()
		if h.random.IntN(3) > 0 {
			for a := range h.e.Ledger().Accounts {
				if a.Ended && a.Entity.OfProcesses() {
					for kind := range h.delivered {
						h.delivered[kind] += a.Amounts(kind).Energy
						h.idle[kind] += a.Amounts(kind).Idle
					}
				}
			}
			h.e.Acknowledged()
		}
	}
}

// check verifies that no microjoule is lost of any kind, or of any domain if each has its own kinds.
func (h *domainHistory) check() {
	requireConserved(h.t, h.e, h.delivered)
	l := h.e.Ledger()
	idle := h.idle
	for a := range l.Accounts {
		for kind := range idle {
			if a.Entity.OfProcesses() {
				idle[kind] += a.Amounts(kind).Idle
			}
		}
	}
	for kind := range l.Kinds {
		k := &l.Kinds[kind]
		require.Equal(h.t, h.used[kind], k.Active+k.Idle+l.Pending(kind), "kind %d: active, idle and pending are what its zones used", kind)
		if h.e.cfg.Rules.Idle == IdleEqual || h.e.cfg.Rules.Idle == IdleUsed {
			require.Equal(h.t, k.Idle, idle[kind]+k.UnattributedIdle, "kind %d: processes + unattributed == idle", kind)
		}
		require.LessOrEqual(h.t, k.RecentTime, l.Elapsed)
		ended := k.Present && !slices.ContainsFunc(h.zones, func(z historyZone) bool { return z.known && z.kind == kind && !z.absent && !z.replaced })
		require.Equal(h.t, ended, k.Ended, "kind %d", kind)
	}
	if !h.ownKinds {
		return
	}
	for _, c := range h.claimants {
		for a := range l.Accounts {
			if a.Entity != units.ProcessEntity || a.Owner.Process.PID != c.pid {
				continue
			}
			for kind := range MaxKinds {
				energy := a.Amounts(kind).Energy
				if !c.uses[kind/kindsPerDomain] {
					require.Zero(h.t, energy, "process %d has energy of a domain that it never used", c.pid)
				}
			}
		}
	}
}

func TestEveryMicrojouleIsConservedPerKindAndDomain(t *testing.T) {
	for seed := range uint64(100) {
		h := newDomainHistory(t, seed)
		for n := range historyIntervals {
			h.step(n == historyIntervals-1)
		}
		for kind := range h.e.Ledger().Kinds {
			require.Zero(t, h.e.Ledger().Pending(kind), "seed %d: all is attributed at last", seed)
		}
	}
}

func TestAZoneThatBecomesAnotherKindSettlesUnderTheOldOne(t *testing.T) {
	b := newBench(t, Config{})
	p, q := b.open(1), b.open(2)
	zone := &b.iv.Zones[0]
	zone.OK = false
	b.observe(3*units.Joule, 1, 1, Claim{Claimant: p, CPU: 1})
	zone.Kind = dram
	b.observe(3*units.Joule, 1, 1, Claim{Claimant: p, CPU: 1})
	assert.Equal(t, 6*units.Joule, b.e.Ledger().Pending(pkg), "not before a good reading")
	zone.OK = true
	b.observe(3*units.Joule, 1, 1, Claim{Claimant: p, CPU: 1})
	b.observe(5*units.Joule, 1, 1, Claim{Claimant: q, CPU: 1})
	assert.Equal(t, []Amounts{pkg: {Energy: 9 * units.Joule, Recent: 9 * units.Joule}}, b.find(units.ProcessEntity, "1").amounts)
	assert.Equal(t, []Amounts{dram: {Energy: 5 * units.Joule, Recent: 5 * units.Joule}}, b.find(units.ProcessEntity, "2").amounts)
	l := b.e.Ledger()
	assert.Equal(t, 14*units.Joule, l.Zones[0].Energy, "its own total continues")
	assert.True(t, l.Kinds[pkg].Ended)
	assert.False(t, l.Kinds[dram].Ended)
	assert.Equal(t, baseline.Add(3*time.Second), l.Kinds[dram].Start)
	requireConserved(t, b.e, byKind{})
}

func TestAZoneThatChangesItsKindWithoutAnyUtilizationLosesNothing(t *testing.T) {
	b := newBench(t, Config{})
	zone := &b.iv.Zones[0]
	p := b.open(1)
	zone.Kind = dram
	b.observe(3*units.Joule, 0, 0, Claim{Claimant: p, CPU: 1})
	b.e.Close(p)
	assert.Equal(t, 3*units.Joule, b.e.Ledger().Kinds[pkg].Unattributed)
	assert.Zero(t, b.e.Ledger().Pending(pkg)+b.e.Ledger().Pending(dram))
	b.observe(5*units.Joule, 1, 1)
	assert.Equal(t, 5*units.Joule, b.e.Ledger().Kinds[dram].Unattributed)
}

func TestAZoneThatNoLongerStandsInIsReportedButNotAttributed(t *testing.T) {
	b := newBench(t, Config{})
	zone := &b.iv.Zones[0]
	zone.Kind = NotAttributed
	b.observe(3*units.Joule, 1, 1)
	b.observe(3*units.Joule, 1, 1)
	l := b.e.Ledger()
	assert.Equal(t, 3*units.Joule, l.Kinds[pkg].Active, "the energy until it changed")
	assert.Equal(t, 6*units.Joule, l.Zones[0].Energy)
	assert.True(t, l.Kinds[pkg].Ended)
	zone.Kind = pkg
	b.observe(3*units.Joule, 1, 1)
	assert.False(t, b.e.Ledger().Kinds[pkg].Ended)
	b.observe(3*units.Joule, 1, 1)
	assert.Equal(t, 6*units.Joule, l.Kinds[pkg].Active)
	assert.Equal(t, baseline, l.Kinds[pkg].Start, "it goes on")
}

func TestAZoneThatChangesItsDomainIsSharedByTheNewOneFromThenOn(t *testing.T) {
	b := twoSockets(t, Config{})
	first, second := b.open(1), b.open(2)
	b.use(1, ms, ms, Claim{Claimant: first, CPU: ms})
	b.use(2, ms, ms, Claim{Claimant: second, CPU: ms})
	b.iv.Zones[0].Domain = 2
	b.second(3*units.Joule, 0)
	b.second(5*units.Joule, 0)
	assert.Equal(t, 3*units.Joule, b.energy(units.ProcessEntity, "1"))
	assert.Equal(t, 5*units.Joule, b.energy(units.ProcessEntity, "2"))
}

func TestTheEndOfAKindIsReportedUntilAcknowledged(t *testing.T) {
	b := newBench(t, Config{})
	there := b.iv.Zones
	k := &b.e.Ledger().Kinds[pkg]
	b.observe(units.Joule, 1, 1)
	b.e.Emitted()
	b.e.Acknowledged()
	assert.False(t, k.Ended || k.Delivered)
	b.iv.Zones = nil
	b.e.Observe(&b.iv)
	assert.True(t, k.Ended)
	b.e.Acknowledged()
	assert.False(t, k.Delivered, "the end was not in that collection")
	b.e.Emitted()
	b.e.Refused()
	assert.False(t, k.Delivered)
	b.e.Emitted()
	b.e.Acknowledged()
	b.e.Observe(&b.iv)
	assert.True(t, k.Ended && k.Delivered)
	b.iv.Zones = there
	b.observe(units.Joule, 1, 1)
	assert.False(t, k.Ended || k.Delivered, "it goes on")
	assert.Equal(t, 2*units.Joule, k.Active)
}

func TestAZoneThatWasOnlyInRefusedEmissionsIsNotSettled(t *testing.T) {
	b := newBench(t, Config{})
	z := &b.e.Ledger().Zones[0]
	emit := func(read bool, outcome func()) {
		b.iv.Zones[0].OK = read
		b.observe(units.Joule, 1, 1)
		b.e.Emitted()
		outcome()
	}
	emit(true, b.e.Refused)
	emit(false, b.e.Acknowledged)
	assert.False(t, z.Settled, "the next consumer has nothing of it")
	emit(true, b.e.Acknowledged)
	assert.True(t, z.Settled)
	emit(false, b.e.Refused)
	emit(false, b.e.Acknowledged)
	assert.True(t, z.Settled)
}

func TestLedgerHasTheTimesOfEachDomainOfTheCollection(t *testing.T) {
	e := New(Config{}, time.Unix(0, 0))
	observe := func(domains ...Usage) { e.Observe(&Interval{Elapsed: time.Second, Domains: domains}) }
	observe(Usage{Busy: 1, Total: 2})
	observe(Usage{Busy: 1, Total: 2}, Usage{Busy: 3, Total: 4}, Usage{Busy: 5, Total: 5, Assumed: true})
	assert.Equal(t, []DomainTime{{2, 4}, {3, 4}, {}}, e.Ledger().Domains)
	e.Emitted()
	assert.Equal(t, []DomainTime{{}, {}, {}}, e.Ledger().Domains)
}
