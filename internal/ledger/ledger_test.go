// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

const (
	pkg  = 0
	dram = 1
	ms   = units.CPUTime(time.Millisecond)
)

var baseline = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Ledger returns the totals.
func (l *Ledger) Ledger() *Totals { return &l.Totals }

// Observe adds the shares of an interval.
func (l *Ledger) Observe(iv *attribution.Interval) { l.Add(l.sharer.Share(iv)) }

// bench drives an engine. It has one zone of kind pkg unless a test adds others.
type bench struct {
	t  testing.TB
	e  *Ledger
	at time.Time
	iv attribution.Interval
	// node is the usage of the node's CPUs in iv.
	node *attribution.Usage
}

func newBench(t testing.TB, cfg Config) *bench {
	b := newUnobserved(t, cfg)
	b.e.Observe(&b.iv)
	return b
}

// newUnobserved returns a bench before the engine's first interval.
func newUnobserved(t testing.TB, cfg Config) *bench {
	b := &bench{t: t, e: New(cfg, baseline), at: baseline}
	b.iv.Zones = []attribution.ZoneReading{{Zone: 0, Kind: pkg, OK: true}}
	b.iv.At = baseline
	b.iv.Domains = []attribution.Usage{{}}
	b.node = &b.iv.Domains[0]
	return b
}

// observe advances by a second, in which the zone used energy.
func (b *bench) observe(energy units.Energy, busy, total units.CPUTime, claims ...attribution.Claim) {
	b.at = b.at.Add(time.Second)
	b.iv.At, b.iv.Elapsed = b.at, time.Second
	b.node.Busy, b.node.Total, b.node.Claims = busy, total, claims
	b.iv.Zones[0].Total += energy
	b.e.Observe(&b.iv)
}

func (b *bench) open(pid int32, edit ...func(*identity.Owner)) attribution.Claimant {
	o := identity.Owner{Process: identity.Process{PID: pid, Start: time.Duration(pid), Executable: fmt.Sprint("p", pid)}}
	for _, f := range edit {
		f(&o)
	}
	return b.e.Open(o, b.at)
}

func inContainer(id string) func(*identity.Owner) {
	return func(o *identity.Owner) { o.Container = identity.Container{ID: id} }
}

func inPod(container, uid string) func(*identity.Owner) {
	return func(o *identity.Owner) {
		o.Container = identity.Container{ID: container}
		o.Pod = identity.Pod{UID: uid}
	}
}

func inVM(id string) func(*identity.Owner) {
	return func(o *identity.Owner) { o.VM = identity.VM{ID: id} }
}

// find returns the account of an entity, or nil. id is the PID of a process, or "other" for the
// account of the others.
func (b *bench) find(entity identity.Entity, id string) *Account {
	for a := range b.e.Ledger().Accounts {
		var name string
		switch {
		case a.Entity != entity:
			continue
		case a.Other:
			name = "other"
		case entity == identity.ProcessEntity:
			name = fmt.Sprint(a.Owner.Process.PID)
		default:
			name = *entity.Attributes()[0].Field(&a.Owner.Workload)
		}
		if name == id {
			return a
		}
	}
	return nil
}

func (b *bench) energy(entity identity.Entity, id string) units.Energy {
	a := b.find(entity, id)
	require.NotNilf(b.t, a, "account %d %s", entity, id)
	return a.Amounts(pkg).Energy
}

// joules returns the energies of accounts, as a list.
func (b *bench) joules(entity identity.Entity, ids ...string) string {
	var all []string
	for _, id := range ids {
		all = append(all, fmt.Sprint(b.energy(entity, id).Joules()))
	}
	return strings.Join(all, ", ")
}

// byKind are energies by kind.
type byKind = [attribution.MaxKinds]units.Energy

// requireConserved checks that the totals of a kind add up.
func requireConserved(t testing.TB, e *Ledger, delivered byKind) {
	t.Helper()
	sums := delivered
	for a := range e.Ledger().Accounts {
		if a.Entity.OfProcesses() {
			for kind := range sums {
				sums[kind] += a.Amounts(kind).Energy
			}
		}
	}
	for kind, k := range e.Ledger().Kinds {
		require.Equal(t, k.Active, sums[kind]+k.Unattributed, "processes + unattributed == active of kind %d", kind)
	}
}

func TestSplitsFortyWattsAtAQuarterBusyIntoTenActiveAndThirtyIdle(t *testing.T) {
	b := newBench(t, Config{})
	vm := b.open(5, inVM("vm"))
	b.observe(40*units.Joule, 250*ms, 1000*ms, attribution.Claim{Claimant: vm, CPU: 250 * ms})
	k := b.e.Ledger().Kinds[pkg]
	assert.Equal(t, 10*units.Joule, k.Active)
	assert.Equal(t, 30*units.Joule, k.Idle)
	assert.Equal(t, 10*units.Joule, b.energy(identity.VMEntity, "vm"))
	assert.InDelta(t, 10, units.Watts(b.find(identity.VMEntity, "vm").Amounts(pkg).Recent, b.e.Ledger().Elapsed), 1e-9)
	t.Attr("split", fmt.Sprintf("%g W active, %g W idle", k.Active.Joules(), k.Idle.Joules()))
	t.Attr("whole-vm", b.joules(identity.VMEntity, "vm")+" W")
}

func TestAWorkloadHasTheShareOfItsCPUTime(t *testing.T) {
	b := newBench(t, Config{})
	var claims []attribution.Claim
	for i, o := range []struct {
		cpu  units.CPUTime
		edit func(*identity.Owner)
	}{
		{200, inContainer("fifth")},
		{100, inContainer("web-server")}, {50, inContainer("web-server")},
		{200, inPod("nginx", "frontend")}, {50, inPod("sidecar", "frontend")},
		{400, inContainer("rest")},
	} {
		claims = append(claims, attribution.Claim{Claimant: b.open(int32(i+1), o.edit), CPU: o.cpu * ms})
	}
	b.observe(40*units.Joule, 1000*ms, 4000*ms, claims...)
	assert.Equal(t, "2, 1.5", b.joules(identity.ContainerEntity, "fifth", "web-server"))
	assert.Equal(t, "2.5", b.joules(identity.PodEntity, "frontend"))
	t.Attr("shares", fmt.Sprintf("%s and %s W", b.joules(identity.ContainerEntity, "fifth", "web-server"), b.joules(identity.PodEntity, "frontend")))
}

func TestSharesSixtyWattsAmongTheSevenProcessesOfTheSpecification(t *testing.T) {
	b := newBench(t, Config{})
	owners := []struct {
		cpu  units.CPUTime
		edit func(*identity.Owner)
		want units.Energy // mJ
	}{
		{100, func(*identity.Owner) {}, 2000},
		{80, inContainer("A"), 1600},
		{70, inContainer("A"), 1400},
		{60, inContainer("B"), 1200},
		{200, inVM("qemu"), 4000},
		{90, inPod("C", "X"), 1800},
		{110, inPod("D", "X"), 2200},
		{290, func(*identity.Owner) {}, 5800},
	}
	var claims []attribution.Claim
	for i, o := range owners {
		claims = append(claims, attribution.Claim{Claimant: b.open(int32(i+1), o.edit), CPU: o.cpu * ms})
	}
	b.observe(60*units.Joule, 1000*ms, 3000*ms, claims...)
	for i, o := range owners {
		assert.Equalf(t, o.want*1000, b.energy(identity.ProcessEntity, fmt.Sprint(i+1)), "process %d", i+1)
	}
	for id, want := range map[string]units.Energy{"A": 3000, "B": 1200, "C": 1800, "D": 2200} {
		assert.Equalf(t, want*1000, b.energy(identity.ContainerEntity, id), "container %s", id)
	}
	assert.Equal(t, 4*units.Joule, b.energy(identity.PodEntity, "X"))
	assert.Equal(t, 4*units.Joule, b.energy(identity.VMEntity, "qemu"))
	k := b.e.Ledger().Kinds[pkg]
	assert.Equal(t, 20*units.Joule, k.Active)
	assert.Equal(t, 40*units.Joule, k.Idle)
	requireConserved(t, b.e, byKind{})
	t.Attr("processes", b.joules(identity.ProcessEntity, "1", "2", "3", "4", "5", "6", "7")+" W")
	t.Attr("workloads", fmt.Sprintf("containers %s W; pod %s W; VM %s W", b.joules(identity.ContainerEntity, "A", "B", "C", "D"),
		b.joules(identity.PodEntity, "X"), b.joules(identity.VMEntity, "qemu")))
	sum := k.Idle
	for i := range owners {
		sum += b.energy(identity.ProcessEntity, fmt.Sprint(i+1))
	}
	t.Attr("conservation", fmt.Sprintf("%g of 60 J", sum.Joules()))
}

// Trap 1.
func TestAnIntervalWithoutEnergyOrBusyTimeOrClaimsKeepsEveryTotal(t *testing.T) {
	b := newBench(t, Config{})
	p := b.open(1, inContainer("A"))
	claim := attribution.Claim{Claimant: p, CPU: 100 * ms}
	b.observe(10*units.Joule, 100*ms, 200*ms, claim)
	require.Equal(t, 5*units.Joule, b.energy(identity.ProcessEntity, "1"))
	b.observe(0, 100*ms, 200*ms, claim)                          // no energy
	b.observe(1*units.Joule, 0, 200*ms, claim)                   // no busy time: all idle
	b.observe(2*units.Joule, 100*ms, 200*ms)                     // no claims: unattributed
	b.observe(0, 0, 0)                                           // nothing at all
	b.observe(0, 100*ms, 200*ms, attribution.Claim{Claimant: p}) // a claim of no time
	assert.Equal(t, 5*units.Joule, b.energy(identity.ProcessEntity, "1"))
	assert.Equal(t, 5*units.Joule, b.energy(identity.ContainerEntity, "A"))
	k := b.e.Ledger().Kinds[pkg]
	assert.Equal(t, 6*units.Joule, k.Active)
	assert.Equal(t, 7*units.Joule, k.Idle)
	assert.Equal(t, 1*units.Joule, k.Unattributed)
	requireConserved(t, b.e, byKind{})
	t.Attr("no-energy", b.joules(identity.ProcessEntity, "1")+" J")
}

func TestClaimsThatDoNotFitTogetherAreSharedAllTheSame(t *testing.T) {
	b := newBench(t, Config{})
	p, q := b.open(1), b.open(2)
	const most = ^units.CPUTime(0)
	b.node.Unattributed = most
	b.observe(30*units.Joule, 1, 1, attribution.Claim{Claimant: p, CPU: most}, attribution.Claim{Claimant: q, CPU: most})
	for _, id := range []string{"1", "2"} {
		assert.InDelta(t, 10*float64(units.Joule), float64(b.energy(identity.ProcessEntity, id)), 1)
	}
	requireConserved(t, b.e, byKind{})

	b.node.Unattributed, b.iv.Zones[0].OK = 0, false
	b.observe(0, 1, 1, attribution.Claim{Claimant: p, CPU: most}, attribution.Claim{Claimant: q, CPU: 1})
	b.observe(0, 1, 1, attribution.Claim{Claimant: p, CPU: most})
	b.iv.Zones[0].OK = true
	b.observe(10*units.Joule, 1, 1)
	assert.InDelta(t, 20*float64(units.Joule), float64(b.energy(identity.ProcessEntity, "1")), 1)
	requireConserved(t, b.e, byKind{})
}

// Trap 6.
func TestAZoneThatMissesAReadIsSharedByTheCPUTimeOfBothIntervals(t *testing.T) {
	b := newBench(t, Config{})
	early, late := b.open(1, inContainer("A")), b.open(2)
	b.iv.Zones[0].OK = false
	b.observe(0, 1000*ms, 1000*ms, attribution.Claim{Claimant: early, CPU: 900 * ms})
	assert.Zero(t, b.energy(identity.ProcessEntity, "1"))
	assert.Zero(t, b.e.Ledger().Kinds[pkg].RecentTime, "no power of an interval that was not measured")
	b.e.Close(early) // it ends before its energy is known
	b.e.Emitted()
	b.e.Outcome(Acknowledged)
	b.iv.Zones[0].OK = true
	b.observe(20*units.Joule, 0, 1000*ms, attribution.Claim{Claimant: late, CPU: 100 * ms})
	assert.Equal(t, 9*units.Joule, b.energy(identity.ProcessEntity, "1"), "the energy of its own interval")
	assert.Equal(t, 9*units.Joule, b.energy(identity.ContainerEntity, "A"))
	assert.Equal(t, 1*units.Joule, b.energy(identity.ProcessEntity, "2"), "none of the other interval")
	assert.Equal(t, 10*units.Joule, b.e.Ledger().Kinds[pkg].Idle, "half of the time was busy")
	assert.True(t, b.find(identity.ProcessEntity, "1").Ended(), "the last credit ends it")
	t.Attr("failed-read", b.joules(identity.ProcessEntity, "1", "2")+" J")
	requireConserved(t, b.e, byKind{})
}

func TestAVirtualMachineThatIsStartedAgainHasItsNewContextIDAndTheSameSeries(t *testing.T) {
	withCID := func(cid uint32) func(*identity.Owner) {
		return func(o *identity.Owner) { o.VM = identity.VM{ID: "vm", Name: "web", CID: cid} }
	}
	b := newBench(t, Config{})
	cid := func() uint32 { return b.find(identity.VMEntity, "vm").Owner.VM.CID }
	first := b.open(1, withCID(3))
	b.observe(units.Joule, ms, ms, attribution.Claim{Claimant: first, CPU: ms})
	assert.Equal(t, uint32(3), cid())

	second := b.open(2, withCID(4))
	b.e.Close(first)
	assert.Equal(t, uint32(4), cid(), "while the first has not ended")

	b.e.Close(second)
	assert.Zero(t, cid(), "of a machine that ended")

	third := b.open(3, withCID(5))
	b.observe(units.Joule, ms, ms, attribution.Claim{Claimant: third, CPU: ms})
	assert.Equal(t, identity.VM{ID: "vm", Name: "web", CID: 5}, b.find(identity.VMEntity, "vm").Owner.VM)
	assert.Equal(t, 2*units.Joule, b.energy(identity.VMEntity, "vm"))
}
