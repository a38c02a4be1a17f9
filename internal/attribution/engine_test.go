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

const (
	pkg  = 0
	dram = 1
	ms   = units.CPUTime(time.Millisecond)
)

var baseline = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// bench drives an engine. It has one zone of kind pkg unless a test adds others.
type bench struct {
	t  testing.TB
	e  *Engine
	at time.Time
	iv Interval
	// node is the usage of the node's CPUs in iv.
	node *Usage
}

func newBench(t testing.TB, cfg Config) *bench {
	b := &bench{t: t, e: New(cfg, baseline), at: baseline}
	b.iv.Zones = []ZoneReading{{Zone: 0, Kind: pkg, OK: true}}
	b.iv.At = baseline
	b.iv.Domains = []Usage{{}}
	b.node = &b.iv.Domains[0]
	b.e.Observe(&b.iv)
	return b
}

// observe advances by a second, in which the zone used energy.
func (b *bench) observe(energy units.Energy, busy, total units.CPUTime, claims ...Claim) {
	b.at = b.at.Add(time.Second)
	b.iv.At, b.iv.Elapsed = b.at, time.Second
	b.node.Busy, b.node.Total, b.node.Claims = busy, total, claims
	b.iv.Zones[0].Total += energy
	b.e.Observe(&b.iv)
}

func (b *bench) open(pid int32, edit ...func(*units.Owner)) Claimant {
	o := units.Owner{Process: units.Process{PID: pid, Start: time.Duration(pid), Executable: fmt.Sprint("p", pid)}}
	for _, f := range edit {
		f(&o)
	}
	return b.e.Open(o, b.at)
}

func inContainer(id string) func(*units.Owner) {
	return func(o *units.Owner) { o.Container = units.Container{ID: id} }
}

func inPod(container, uid string) func(*units.Owner) {
	return func(o *units.Owner) {
		o.Container = units.Container{ID: container}
		o.Pod = units.Pod{UID: uid}
	}
}

func inVM(id string) func(*units.Owner) { return func(o *units.Owner) { o.VM = units.VM{ID: id} } }

func inJob(id string) func(*units.Owner) {
	return func(o *units.Owner) { o.Job = units.SlurmStep{ID: id, Step: "0"} }
}

func inUnit(name string) func(*units.Owner) {
	return func(o *units.Owner) { o.Unit = units.SystemdUnit{Name: name} }
}

// find returns the account of an entity, or nil. id is the PID of a process, or "other" for the account of the others.
func (b *bench) find(entity units.Entity, id string) *Account {
	for a := range b.e.Ledger().Accounts {
		var name string
		switch {
		case a.Entity != entity:
			continue
		case a.Other:
			name = "other"
		case entity == units.ProcessEntity:
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

func (b *bench) energy(entity units.Entity, id string) units.Energy {
	a := b.find(entity, id)
	require.NotNilf(b.t, a, "account %d %s", entity, id)
	return a.Amounts(pkg).Energy
}

// byKind are energies by kind.
type byKind = [MaxKinds]units.Energy

// requireConserved checks that the totals of a kind add up.
func requireConserved(t testing.TB, e *Engine, delivered byKind) {
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
	b.observe(40*units.Joule, 250*ms, 1000*ms, Claim{Claimant: vm, CPU: 250 * ms})
	k := b.e.Ledger().Kinds[pkg]
	assert.Equal(t, 10*units.Joule, k.Active)
	assert.Equal(t, 30*units.Joule, k.Idle)
	assert.Equal(t, 10*units.Joule, b.energy(units.VMEntity, "vm"))
	assert.InDelta(t, 10, units.Watts(b.find(units.VMEntity, "vm").Amounts(pkg).Recent, b.e.Ledger().Elapsed), 1e-9)
}

func TestSharesSixtyWattsAmongTheSevenProcessesOfTheSpecification(t *testing.T) {
	b := newBench(t, Config{})
	owners := []struct {
		cpu  units.CPUTime
		edit func(*units.Owner)
		want units.Energy // mJ
	}{
		{100, func(*units.Owner) {}, 2000},
		{80, inContainer("A"), 1600},
		{70, inContainer("A"), 1400},
		{60, inContainer("B"), 1200},
		{200, inVM("qemu"), 4000},
		{90, inPod("C", "X"), 1800},
		{110, inPod("D", "X"), 2200},
		{290, func(*units.Owner) {}, 5800},
	}
	var claims []Claim
	for i, o := range owners {
		claims = append(claims, Claim{Claimant: b.open(int32(i+1), o.edit), CPU: o.cpu * ms})
	}
	b.observe(60*units.Joule, 1000*ms, 3000*ms, claims...)
	for i, o := range owners {
		assert.Equalf(t, o.want*1000, b.energy(units.ProcessEntity, fmt.Sprint(i+1)), "process %d", i+1)
	}
	for id, want := range map[string]units.Energy{"A": 3000, "B": 1200, "C": 1800, "D": 2200} {
		assert.Equalf(t, want*1000, b.energy(units.ContainerEntity, id), "container %s", id)
	}
	assert.Equal(t, 4*units.Joule, b.energy(units.PodEntity, "X"))
	assert.Equal(t, 4*units.Joule, b.energy(units.VMEntity, "qemu"))
	k := b.e.Ledger().Kinds[pkg]
	assert.Equal(t, 20*units.Joule, k.Active)
	assert.Equal(t, 40*units.Joule, k.Idle)
	requireConserved(t, b.e, byKind{})
}

func TestRemaindersAreNeitherLostNorInvented(t *testing.T) {
	b := newBench(t, Config{})
	var claims []Claim
	for i := range 7 {
		claims = append(claims, Claim{Claimant: b.open(int32(i + 1)), CPU: 1})
	}
	for range 1000 {
		b.observe(10, 1, 1, claims...) // 10 µJ among 7
	}
	requireConserved(t, b.e, byKind{})
	assert.Equal(t, units.Energy(10_000), b.e.Ledger().Kinds[pkg].Active)
}

// Trap 1.
func TestAnIntervalWithoutEnergyOrBusyTimeOrClaimsKeepsEveryTotal(t *testing.T) {
	b := newBench(t, Config{})
	p := b.open(1, inContainer("A"))
	claim := Claim{Claimant: p, CPU: 100 * ms}
	b.observe(10*units.Joule, 100*ms, 200*ms, claim)
	require.Equal(t, 5*units.Joule, b.energy(units.ProcessEntity, "1"))
	b.observe(0, 100*ms, 200*ms, claim)              // no energy
	b.observe(1*units.Joule, 0, 200*ms, claim)       // no busy time: all idle
	b.observe(2*units.Joule, 100*ms, 200*ms)         // no claims: unattributed
	b.observe(0, 0, 0)                               // nothing at all
	b.observe(0, 100*ms, 200*ms, Claim{Claimant: p}) // a claim of no time
	assert.Equal(t, 5*units.Joule, b.energy(units.ProcessEntity, "1"))
	assert.Equal(t, 5*units.Joule, b.energy(units.ContainerEntity, "A"))
	k := b.e.Ledger().Kinds[pkg]
	assert.Equal(t, 6*units.Joule, k.Active)
	assert.Equal(t, 7*units.Joule, k.Idle)
	assert.Equal(t, 1*units.Joule, k.Unattributed)
	requireConserved(t, b.e, byKind{})
}

func TestClaimsThatDoNotFitTogetherAreSharedAllTheSame(t *testing.T) {
	b := newBench(t, Config{})
	p, q := b.open(1), b.open(2)
	const most = ^units.CPUTime(0)
	b.node.Unattributed = most
	b.observe(30*units.Joule, 1, 1, Claim{Claimant: p, CPU: most}, Claim{Claimant: q, CPU: most})
	for _, id := range []string{"1", "2"} {
		assert.InDelta(t, 10*float64(units.Joule), float64(b.energy(units.ProcessEntity, id)), 1)
	}
	requireConserved(t, b.e, byKind{})

	b.node.Unattributed, b.iv.Zones[0].OK = 0, false
	b.observe(0, 1, 1, Claim{Claimant: p, CPU: most}, Claim{Claimant: q, CPU: 1})
	b.observe(0, 1, 1, Claim{Claimant: p, CPU: most})
	b.iv.Zones[0].OK = true
	b.observe(10*units.Joule, 1, 1)
	assert.InDelta(t, 20*float64(units.Joule), float64(b.energy(units.ProcessEntity, "1")), 1)
	requireConserved(t, b.e, byKind{})
}

func TestEnergyWaitsWhereNoCPUTimePassed(t *testing.T) {
	b := newBench(t, Config{})
	p := b.open(1)
	b.observe(10*units.Joule, 0, 0)
	assert.Zero(t, b.e.Ledger().Kinds[pkg].Active+b.e.Ledger().Kinds[pkg].Idle)
	b.observe(10*units.Joule, 100*ms, 200*ms, Claim{Claimant: p, CPU: 100 * ms})
	assert.Equal(t, 10*units.Joule, b.energy(units.ProcessEntity, "1"))
	assert.Equal(t, 10*units.Joule, b.e.Ledger().Kinds[pkg].Idle)
}

func TestBusyTimeBeyondTotalIsClamped(t *testing.T) {
	b := newBench(t, Config{})
	b.observe(10*units.Joule, 300*ms, 200*ms, Claim{Claimant: b.open(1), CPU: 1})
	assert.Equal(t, 10*units.Joule, b.e.Ledger().Kinds[pkg].Active)
	assert.Zero(t, b.e.Ledger().Kinds[pkg].Idle)
}

// Trap 6.
func TestAZoneThatMissesAReadIsSharedByTheCPUTimeOfBothIntervals(t *testing.T) {
	b := newBench(t, Config{})
	early, late := b.open(1, inContainer("A")), b.open(2)
	b.iv.Zones[0].OK = false
	b.observe(0, 1000*ms, 1000*ms, Claim{Claimant: early, CPU: 900 * ms})
	assert.Zero(t, b.energy(units.ProcessEntity, "1"))
	assert.Zero(t, b.e.Ledger().Kinds[pkg].RecentTime, "no power of an interval that was not measured")
	b.e.Close(early) // it ends before its energy is known
	b.e.Emitted()
	b.e.Acknowledged()
	b.iv.Zones[0].OK = true
	b.observe(20*units.Joule, 0, 1000*ms, Claim{Claimant: late, CPU: 100 * ms})
	assert.Equal(t, 9*units.Joule, b.energy(units.ProcessEntity, "1"), "the energy of its own interval")
	assert.Equal(t, 9*units.Joule, b.energy(units.ContainerEntity, "A"))
	assert.Equal(t, 1*units.Joule, b.energy(units.ProcessEntity, "2"), "none of the other interval")
	assert.Equal(t, 10*units.Joule, b.e.Ledger().Kinds[pkg].Idle, "half of the time was busy")
	assert.True(t, b.find(units.ProcessEntity, "1").Ended, "the last credit ends it")
	requireConserved(t, b.e, byKind{})
}

func TestPowerAfterAGapIsOfTheIntervalJustEnded(t *testing.T) {
	b := newBench(t, Config{})
	p := b.open(1)
	run := func(energy units.Energy) {
		b.observe(energy, 1000*ms, 1000*ms, Claim{Claimant: p, CPU: 1000 * ms})
	}
	b.iv.Zones[0].OK = false
	run(0)
	b.e.Emitted()
	b.iv.Zones[0].OK = true
	run(20 * units.Joule) // 10 W for two seconds
	l := b.e.Ledger()
	assert.Equal(t, 20*units.Joule, b.energy(units.ProcessEntity, "1"))
	assert.InDelta(t, 10, units.Watts(b.find(units.ProcessEntity, "1").Amounts(pkg).Recent, l.Elapsed), 1e-6)
	assert.InDelta(t, 10, units.Watts(l.Kinds[pkg].RecentActive, l.Elapsed), 1e-6)
	assert.InDelta(t, 10, units.Watts(l.Zones[0].Recent, l.Zones[0].RecentTime), 1e-6)
}

// Trap 7.
func TestWhenOneOfTwoSocketsFailsItsEnergyIsLateNotLost(t *testing.T) {
	b := newBench(t, Config{})
	b.iv.Zones = append(b.iv.Zones, ZoneReading{Zone: 1, Kind: pkg, OK: true})
	p, q := b.open(1), b.open(2)
	second := &b.iv.Zones[1]
	b.observe(0, 1000*ms, 1000*ms, Claim{Claimant: p, CPU: 500 * ms}) // baseline of the second zone
	second.OK = false
	b.observe(10*units.Joule, 1000*ms, 1000*ms, Claim{Claimant: p, CPU: 500 * ms})
	assert.Equal(t, 10*units.Joule, b.e.Ledger().Kinds[pkg].Active, "the first socket's goes on")
	second.OK, second.Total = true, 20*units.Joule
	b.observe(10*units.Joule, 1000*ms, 1000*ms, Claim{Claimant: q, CPU: 500 * ms})
	assert.Equal(t, 40*units.Joule, b.e.Ledger().Kinds[pkg].Active)
	assert.Equal(t, 20*units.Joule, b.energy(units.ProcessEntity, "1"))
	assert.Equal(t, 20*units.Joule, b.energy(units.ProcessEntity, "2"))
	requireConserved(t, b.e, byKind{})
}

func TestAZoneThatAppearsLaterStartsAtItsBaseline(t *testing.T) {
	b := newBench(t, Config{})
	p := b.open(1)
	b.observe(units.Joule, 500*ms, 1000*ms, Claim{Claimant: p, CPU: 500 * ms})
	require.False(t, b.e.Ledger().Kinds[dram].Present)
	b.iv.Zones = append(b.iv.Zones, ZoneReading{Zone: 1, Kind: dram, Total: 77 * units.Joule, OK: true})
	b.observe(units.Joule, 500*ms, 1000*ms, Claim{Claimant: p, CPU: 500 * ms})
	k := &b.e.Ledger().Kinds[dram]
	require.True(t, k.Present)
	assert.Equal(t, b.at, k.Start)
	assert.Zero(t, k.Active+k.Idle)
	b.iv.Zones[1].Total += 4 * units.Joule
	b.observe(units.Joule, 500*ms, 1000*ms, Claim{Claimant: p, CPU: 500 * ms})
	assert.Equal(t, 4*units.Joule, k.Active+k.Idle)
}

func TestAZoneThatIsNotAttributedIsOnlyReported(t *testing.T) {
	b := newBench(t, Config{})
	b.iv.Zones = append(b.iv.Zones, ZoneReading{Zone: 1, Kind: NotAttributed, OK: true})
	b.observe(0, 500*ms, 1000*ms)
	b.iv.Zones[1].OK = false
	b.observe(0, 500*ms, 1000*ms)
	b.iv.Zones[1] = ZoneReading{Zone: 1, Kind: NotAttributed, OK: true, Total: 30 * units.Joule}
	b.observe(0, 500*ms, 1000*ms)
	z := b.e.Ledger().Zones[1]
	assert.Equal(t, 30*units.Joule, z.Energy)
	assert.Equal(t, 2*time.Second, z.RecentTime, "the gap belongs to it")
	for _, k := range b.e.Ledger().Kinds {
		assert.Zero(t, k.Active+k.Idle)
	}
}

func TestTimeWithoutAnOwnerIsUnattributed(t *testing.T) {
	b := newBench(t, Config{})
	p := b.open(1)
	b.node.Unattributed = 300 * ms
	b.observe(10*units.Joule, 400*ms, 400*ms, Claim{Claimant: p, CPU: 100 * ms})
	assert.Equal(t, units.Energy(2_500_000), b.energy(units.ProcessEntity, "1"))
	assert.Equal(t, units.Energy(7_500_000), b.e.Ledger().Kinds[pkg].Unattributed)
}

func TestShortLivedTimeIsTheContainersAndTheOthers(t *testing.T) {
	b := newBench(t, Config{})
	p := b.open(1, inPod("A", "X"))
	b.observe(10*units.Joule, 1000*ms, 1000*ms,
		Claim{Claimant: p, CPU: 100 * ms},
		Claim{Claimant: p, CPU: 600 * ms, ShortLived: true},
		Claim{Claimant: NoClaimant, CPU: 300 * ms, ShortLived: true})
	assert.Equal(t, 1*units.Joule, b.energy(units.ProcessEntity, "1"), "none of its children's energy")
	assert.Equal(t, 7*units.Joule, b.energy(units.ContainerEntity, "A"))
	assert.Equal(t, 7*units.Joule, b.energy(units.PodEntity, "X"))
	assert.Equal(t, 9*units.Joule, b.energy(units.ProcessEntity, "other"))
	assert.Equal(t, 900*ms, b.find(units.ProcessEntity, "other").CPU)
	assert.Equal(t, 700*ms, b.find(units.ContainerEntity, "A").CPU)
	requireConserved(t, b.e, byKind{})
}

func TestIdleEnergyByUseOfShortLivedTimeIsTheContainersAndTheOthers(t *testing.T) {
	b := keyed(t, ByCPUTime, IdleUsed)
	b.node.Unattributed = 100 * ms
	p, vm := b.open(1, inPod("A", "X")), b.open(2, inVM("vm"))
	b.share(20*units.Joule,
		Claim{Claimant: p, CPU: 100 * ms},
		Claim{Claimant: p, CPU: 600 * ms, ShortLived: true},
		Claim{Claimant: vm, CPU: 200 * ms},
		Claim{Claimant: vm, CPU: 400 * ms, ShortLived: true},
		Claim{Claimant: NoClaimant, CPU: 600 * ms, ShortLived: true})
	for _, c := range []struct {
		entity units.Entity
		id     string
		want   units.Energy
	}{{units.ProcessEntity, "1", 1}, {units.ContainerEntity, "A", 7}, {units.PodEntity, "X", 7}, {units.ProcessEntity, "2", 2}, {units.VMEntity, "vm", 6}, {units.ProcessEntity, "other", 16}} {
		assert.Equal(t, c.want*units.Joule, b.find(c.entity, c.id).Amounts(pkg).Idle, c.id)
	}
	assert.Equal(t, 1*units.Joule, b.e.Ledger().Kinds[pkg].UnattributedIdle)
}

// Half of 20 W is idle. A process of a pod, one of a virtual machine and one of neither run. Two others sleep and have
// no series yet.
func TestTheIdlePowerOfACollectionIsItsIdleEnergyOverItsTime(t *testing.T) {
	type entity struct {
		units.Entity
		id string
	}
	for _, c := range []struct {
		rule IdleAllocation
		want map[entity]float64
	}{
		{IdleEqual, map[entity]float64{
			{units.ProcessEntity, "1"}: 2, {units.ProcessEntity, "2"}: 2, {units.ProcessEntity, "3"}: 2, {units.ProcessEntity, "other"}: 4, {units.ContainerEntity, "A"}: 4, {units.PodEntity, "X"}: 4, {units.VMEntity, "vm"}: 2,
		}},
		{IdleEqualContainers, map[entity]float64{
			{units.ProcessEntity, "1"}: 2.5, {units.ProcessEntity, "2"}: 5, {units.ProcessEntity, "3"}: 0, {units.ProcessEntity, "other"}: 2.5, {units.ContainerEntity, "A"}: 5, {units.PodEntity, "X"}: 5, {units.VMEntity, "vm"}: 5,
		}},
		{IdleRequested, map[entity]float64{
			{units.ProcessEntity, "1"}: 4, {units.ProcessEntity, "2"}: 2, {units.ProcessEntity, "3"}: 0, {units.ProcessEntity, "other"}: 4, {units.ContainerEntity, "A"}: 8, {units.PodEntity, "X"}: 8, {units.VMEntity, "vm"}: 2,
		}},
		{IdleUsed, map[entity]float64{
			{units.ProcessEntity, "1"}: 1, {units.ProcessEntity, "2"}: 3, {units.ProcessEntity, "3"}: 4, {units.ProcessEntity, "other"}: 2, {units.ContainerEntity, "A"}: 3, {units.PodEntity, "X"}: 3, {units.VMEntity, "vm"}: 3,
		}},
	} {
		rules := Rules{Idle: c.rule}
		b := newBench(t, Config{Rules: rules, Limits: Limits{units.ProcessEntity: {MinEnergy: 1}}})
		pod, vm, host := b.open(1, inPod("A", "X")), b.open(2, inVM("vm")), b.open(3)
		b.open(4, inPod("A", "X"))
		b.open(5)
		b.e.SetRequest(pod, 4)
		b.e.SetRequest(vm, 1)
		seconds := func(n int) {
			for range n {
				b.share(10*units.Joule, Claim{Claimant: pod, CPU: 100 * ms}, Claim{Claimant: pod, CPU: 200 * ms, ShortLived: true},
					Claim{Claimant: vm, CPU: 300 * ms}, Claim{Claimant: host, CPU: 400 * ms})
			}
		}
		seconds(1) // they have a series from now on
		for n := range 3 {
			b.e.Emitted()
			idle := map[entity]units.Energy{}
			for e := range c.want {
				a := b.find(e.Entity, e.id)
				require.NotNil(t, a)
				require.Zero(t, a.Amounts(pkg).RecentIdle, e)
				idle[e] = a.Amounts(pkg).Idle
			}
			seconds(1 + n)
			elapsed := b.e.Ledger().Kinds[pkg].RecentTime
			require.Equal(t, time.Duration(1+n)*time.Second, elapsed)
			for e, want := range c.want {
				a := b.find(e.Entity, e.id)
				assert.InDelta(t, want, units.Watts(a.Amounts(pkg).RecentIdle, elapsed), 1e-5, "rule %d, %v", c.rule, e)
				assert.Equal(t, a.Amounts(pkg).Idle-idle[e], a.Amounts(pkg).RecentIdle, "rule %d, %v", c.rule, e)
			}
		}
	}
}

func TestAProcessGetsItsSeriesWithTheIntervalInWhichItHasEarnedIt(t *testing.T) {
	b := newBench(t, Config{Limits: Limits{units.ProcessEntity: {MinEnergy: 3 * units.Joule}}})
	p := b.open(1, inContainer("A"))
	run := func(energy units.Energy) { b.observe(energy, 1, 1, Claim{Claimant: p, CPU: 1}) }
	run(2 * units.Joule)
	require.Nil(t, b.find(units.ProcessEntity, "1"))
	assert.Equal(t, 2*units.Joule, b.energy(units.ProcessEntity, "other"))
	before := b.at
	run(2 * units.Joule)
	assert.Equal(t, 2*units.Joule, b.energy(units.ProcessEntity, "1"), "the energy before stays where it was")
	assert.Equal(t, 2*units.Joule, b.energy(units.ProcessEntity, "other"))
	assert.Equal(t, before, b.find(units.ProcessEntity, "1").Start, "its total was 0 when that interval began")
	assert.Equal(t, 4*units.Joule, b.energy(units.ContainerEntity, "A"), "a container has all of it")
	requireConserved(t, b.e, byKind{})
}

func TestAnEndedSeriesIsReplacedBeforeItsEndIsDelivered(t *testing.T) {
	b := newBench(t, Config{Limits: Limits{units.ProcessEntity: {MinEnergy: 1, Max: 1}}})
	p, q := b.open(1), b.open(2)
	run := func(claims ...Claim) { b.observe(units.Joule, 1, 1, claims...) }
	run(Claim{Claimant: p, CPU: 1}, Claim{Claimant: q, CPU: 1})
	require.NotNil(t, b.find(units.ProcessEntity, "1"))
	require.Nil(t, b.find(units.ProcessEntity, "2"))
	b.e.Close(p)
	run(Claim{Claimant: q, CPU: 1})
	assert.Equal(t, 1*units.Joule, b.energy(units.ProcessEntity, "2"))
	assert.Equal(t, units.Joule/2, b.energy(units.ProcessEntity, "1"), "until its end is acknowledged")
	b.deliver()
	require.Nil(t, b.find(units.ProcessEntity, "1"))
}

func TestEndedSeriesAreReportedUntilAcknowledged(t *testing.T) {
	b := newBench(t, Config{})
	p := b.open(1, inPod("A", "X"))
	b.observe(units.Joule, 1, 1, Claim{Claimant: p, CPU: 1})
	b.e.Emitted()
	b.e.Acknowledged()
	require.NotNil(t, b.find(units.ProcessEntity, "1"), "it lives")

	b.observe(units.Joule, 1, 1, Claim{Claimant: p, CPU: 1})
	b.e.Close(p)
	b.e.Emitted() // refused
	for range 3 {
		b.observe(0, 1, 1)
		a := b.find(units.ProcessEntity, "1")
		require.NotNil(t, a)
		assert.Equal(t, 2*units.Joule, a.Amounts(pkg).Energy)
		assert.True(t, a.Ended)
		assert.True(t, a.EndSent)
		assert.NotNil(t, b.find(units.ContainerEntity, "A"))
		b.e.Emitted()
	}
	b.e.Acknowledged()
	for _, entity := range []units.Entity{units.ProcessEntity, units.ContainerEntity, units.PodEntity} {
		for _, id := range []string{"1", "A", "X"} {
			assert.Nil(t, b.find(entity, id))
		}
	}
	require.NotNil(t, b.find(units.ProcessEntity, "other"))
}

func TestSeriesThatEndAfterACollectionAreNotRemovedByItsAcknowledgment(t *testing.T) {
	b := newBench(t, Config{})
	p := b.open(1)
	b.e.Emitted()
	b.e.Close(p)
	b.e.Acknowledged()
	require.NotNil(t, b.find(units.ProcessEntity, "1"))
}

func TestAContainerThatComesBackBeforeItsEndWasDeliveredGoesOn(t *testing.T) {
	b := newBench(t, Config{})
	b.e.Close(b.open(1, inContainer("A")))
	p := b.open(2, inContainer("A"))
	b.observe(units.Joule, 1, 1, Claim{Claimant: p, CPU: 1})
	n := 0
	for a := range b.e.Ledger().Accounts {
		if a.Entity == units.ContainerEntity {
			n++
			assert.False(t, a.Ended)
			assert.Equal(t, baseline, a.Start)
		}
	}
	assert.Equal(t, 1, n)
}

func TestAContainerThatRestartsAfterItsEndWasDeliveredGetsANewStart(t *testing.T) {
	b := newBench(t, Config{})
	p := b.open(1, inContainer("A"))
	b.observe(units.Joule, 1, 1, Claim{Claimant: p, CPU: 1})
	b.e.Close(p)
	b.e.Emitted()
	b.e.Acknowledged()
	b.observe(0, 1, 1)
	again := b.at
	q := b.open(2, inContainer("A"))
	b.observe(units.Joule, 1, 1, Claim{Claimant: q, CPU: 1})
	assert.Equal(t, units.Joule, b.energy(units.ContainerEntity, "A"))
	assert.Equal(t, again, b.find(units.ContainerEntity, "A").Start)
}

func TestAVirtualMachineThatIsStartedAgainHasItsNewContextIDAndTheSameSeries(t *testing.T) {
	withCID := func(cid uint32) func(*units.Owner) {
		return func(o *units.Owner) { o.VM = units.VM{ID: "vm", Name: "web", CID: cid} }
	}
	b := newBench(t, Config{})
	cid := func() uint32 { return b.find(units.VMEntity, "vm").Owner.VM.CID }
	first := b.open(1, withCID(3))
	b.observe(units.Joule, ms, ms, Claim{Claimant: first, CPU: ms})
	assert.Equal(t, uint32(3), cid())

	second := b.open(2, withCID(4))
	b.e.Close(first)
	assert.Equal(t, uint32(4), cid(), "while the first has not ended")

	b.e.Close(second)
	assert.Zero(t, cid(), "of a machine that ended")

	third := b.open(3, withCID(5))
	b.observe(units.Joule, ms, ms, Claim{Claimant: third, CPU: ms})
	assert.Equal(t, units.VM{ID: "vm", Name: "web", CID: 5}, b.find(units.VMEntity, "vm").Owner.VM)
	assert.Equal(t, 2*units.Joule, b.energy(units.VMEntity, "vm"))
}

func TestProcessesOfOneContainerShareItsAccountUntilTheLastEnds(t *testing.T) {
	b := newBench(t, Config{})
	p, q := b.open(1, inContainer("A")), b.open(2, inContainer("A"))
	b.e.Close(p)
	assert.False(t, b.find(units.ContainerEntity, "A").Ended)
	b.e.Close(q)
	assert.True(t, b.find(units.ContainerEntity, "A").Ended)
}

func TestPendingClaimsForgetClaimantsThatEndedButNotTheirEnergy(t *testing.T) {
	b := newBench(t, Config{Limits: Limits{units.ProcessEntity: {MinEnergy: 1000 * units.Joule}}})
	b.iv.Zones[0].OK = false
	const births = 3 * maxPendingClaims
	for i := range births {
		p := b.open(int32(i + 1))
		b.observe(0, 1, 1, Claim{Claimant: p, CPU: 1})
		b.e.Close(p)
	}
	assert.LessOrEqual(t, len(b.e.ledger.Zones[0].pending.slices[0].usage.Claims), maxPendingClaims+1)
	assert.LessOrEqual(t, len(b.e.claimants), maxPendingClaims+2, "memory is bounded")
	b.iv.Zones[0].OK = true
	b.observe(births*units.Joule, 1, 1)
	assert.Equal(t, births*units.Joule, b.energy(units.ProcessEntity, "other"))
	requireConserved(t, b.e, byKind{})
}

// randomHistory runs a history that depends only on the seed, with failed reads, short-lived claimants and refused
// collections. It checks the invariants after each interval.
func randomHistory(t testing.TB, seed uint64, intervals int) {
	r := rand.New(rand.NewPCG(seed, 1))
	cfg := Config{}
	if r.IntN(2) == 0 {
		cfg.Limits[units.ProcessEntity] = Limit{MinEnergy: units.Energy(r.IntN(1000)), Max: 1 + r.IntN(20)}
	}
	cfg.Processes = ProcessSeries(r.IntN(3))
	cfg.Limits[units.ProgramEntity] = Limit{MinEnergy: units.Energy(r.IntN(1000)), Max: r.IntN(4)}
	e := New(cfg, baseline)
	type life struct {
		id    Claimant
		owner units.Owner
	}
	var living []life
	var delivered, consumed byKind
	kinds := []int{pkg, pkg, dram, NotAttributed}
	totals := make([]units.Energy, len(kinds))
	known := make([]units.Energy, len(kinds))
	previous := map[series]units.Energy{}
	at := baseline
	pid := int32(0)
	for n := range intervals {
		at = at.Add(time.Second)
		iv := Interval{At: at, Elapsed: time.Second, Domains: []Usage{{}}, EndsCollection: r.IntN(3) > 0}
		node := &iv.Domains[0]
		if n == 0 {
			iv.Elapsed = 0
		}
		for r.IntN(3) == 0 {
			pid++
			o := units.Owner{Process: units.Process{PID: pid, Start: time.Duration(pid), Executable: fmt.Sprint("x", r.IntN(4))}}
			if r.IntN(5) == 0 {
				o.Process = o.Process.Program()
			}
			if r.IntN(2) == 0 {
				inPod(fmt.Sprint("c", r.IntN(5)), "pod")(&o)
			}
			living = append(living, life{e.Open(o, at), o})
		}
		for _, l := range living {
			if r.IntN(2) == 0 {
				node.Claims = append(node.Claims, Claim{Claimant: l.id, CPU: units.CPUTime(r.Uint64N(1 << 40)), ShortLived: r.IntN(4) == 0})
			}
		}
		if r.IntN(3) == 0 {
			node.Claims = append(node.Claims, Claim{Claimant: NoClaimant, CPU: units.CPUTime(r.Uint64N(1 << 40)), ShortLived: true})
		}
		if r.IntN(3) == 0 {
			node.Unattributed = units.CPUTime(r.Uint64N(1 << 40))
		}
		node.Busy = units.CPUTime(r.Uint64N(1 << 40))
		node.Total = node.Busy + units.CPUTime(r.Uint64N(1<<42))
		if r.IntN(8) == 0 {
			node.Busy, node.Total = 0, 0
		}
		for i, kind := range kinds {
			ok := r.IntN(4) > 0 || n == 0 || n == intervals-1
			if n > 0 {
				totals[i] += units.Energy(r.Uint64N(1 << 38))
			}
			if ok {
				known[i] = totals[i]
			}
			iv.Zones = append(iv.Zones, ZoneReading{Zone: i, Kind: kind, Total: known[i], OK: ok})
		}
		if n == intervals-1 {
			node.Total += 1 << 43 // everything pending is attributed now
		}
		e.Observe(&iv)
		living = slices.DeleteFunc(living, func(l life) bool {
			end := r.IntN(6) == 0
			if end {
				e.Close(l.id)
			}
			return end
		})

		l := e.Ledger()
		requireConserved(t, e, delivered)
		consumed = byKind{}
		for i, kind := range kinds {
			if kind != NotAttributed {
				consumed[kind] += known[i]
			}
			require.Equal(t, known[i], l.Zones[i].Energy)
		}
		for kind := range consumed {
			pending := units.Energy(0)
			for i := range l.Zones {
				if l.Zones[i].pending != nil && kinds[i] == kind {
					pending += l.Zones[i].pending.energy
				}
			}
			require.Equal(t, consumed[kind], l.Kinds[kind].Active+l.Kinds[kind].Idle+pending, "active + idle == zones")
		}
		seen := map[series]bool{}
		for a := range l.Accounts {
			s, _ := seriesOf(a.Entity, &a.Owner)
			require.False(t, seen[s], "one account per series")
			seen[s] = true
			require.GreaterOrEqual(t, a.Amounts(pkg).Energy, previous[s], "totals that were sent never go down")
			require.False(t, a.Start.Before(baseline))
		}
		if most := cfg.Limits[units.ProcessEntity].Max; most > 0 {
			require.LessOrEqual(t, e.live[units.ProcessEntity], most)
		}
		if most := cfg.Limits[units.ProgramEntity].Max; most > 0 {
			require.LessOrEqual(t, e.live[units.ProgramEntity], most)
		}
		if iv.EndsCollection {
			e.Emitted()
			if r.IntN(3) > 0 {
				for a := range l.Accounts {
					s, _ := seriesOf(a.Entity, &a.Owner)
					previous[s] = a.Amounts(pkg).Energy
					if a.Ended {
						if a.Entity.OfProcesses() {
							for kind := range delivered {
								delivered[kind] += a.Amounts(kind).Energy
							}
						}
						delete(previous, s)
					}
				}
				e.Acknowledged()
				for a := range l.Accounts {
					require.False(t, a.Ended)
				}
			}
		}
	}
	for i := range e.Ledger().Zones {
		require.Nil(t, e.Ledger().Zones[i].pending, "everything was settled at last")
	}
}

func TestRandomHistoriesConserveEveryMicrojoule(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { randomHistory(t, seed, 60) })
	}
}

func FuzzRandomHistories(f *testing.F) {
	f.Add(uint64(1))
	f.Add(uint64(1 << 60))
	f.Fuzz(func(t *testing.T, seed uint64) { randomHistory(t, seed, 40) })
}

func TestTheOrderOfClaimsChangesSharesByAtMostAMicrojoule(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		weights := make([]units.CPUTime, 1+r.IntN(50))
		for i := range weights {
			weights[i] = units.CPUTime(r.Uint64N(1 << 50))
		}
		energy := units.Energy(r.Uint64N(1 << 50))
		run := func(order []int) []units.Energy {
			b := newBench(t, Config{})
			ids := make([]Claimant, len(weights))
			for i := range ids {
				ids[i] = b.open(int32(i + 1))
			}
			var claims []Claim
			for _, i := range order {
				claims = append(claims, Claim{Claimant: ids[i], CPU: weights[i]})
			}
			b.observe(energy, 1, 1, claims...)
			out := make([]units.Energy, len(weights))
			for i := range out {
				out[i] = b.energy(units.ProcessEntity, fmt.Sprint(i+1))
			}
			return out
		}
		straight := r.Perm(len(weights))
		a, c := run(straight), run(r.Perm(len(weights)))
		for i := range a {
			require.InDelta(t, float64(a[i]), float64(c[i]), 1)
		}
	}
}

func TestObserveAllocatesNothingInTheSteadyState(t *testing.T) {
	b := newBench(t, Config{})
	var claims []Claim
	for i := range 100 {
		claims = append(claims, Claim{Claimant: b.open(int32(i+1), inPod(fmt.Sprint(i%10), "X")), CPU: units.CPUTime(i + 1)})
	}
	claims = append(claims, Claim{Claimant: NoClaimant, ShortLived: true, CPU: 7}, Claim{Claimant: 3, ShortLived: true, CPU: 9})
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		b.observe(units.Joule, 500*ms, 1000*ms, claims...)
		b.e.Emitted()
		b.e.Acknowledged()
	}))
}

func BenchmarkObserve(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint(n, " claims"), func(b *testing.B) {
			bench := newBench(b, Config{})
			var claims []Claim
			for i := range n {
				claims = append(claims, Claim{Claimant: bench.open(int32(i+1), inContainer(fmt.Sprint(i%50))), CPU: units.CPUTime(i + 1)})
			}
			b.ReportAllocs()
			for b.Loop() {
				bench.observe(units.Joule, 500*ms, 1000*ms, claims...)
			}
		})
	}
}

// BenchmarkIdle measures an interval with 10,000 processes in 100 containers. One in a hundred runs and has an account
// of its own, or all have one.
func BenchmarkIdle(b *testing.B) {
	for _, named := range []string{"named by use", "all named"} {
		for rule, name := range map[IdleAllocation]string{
			IdleNone: "none", IdleEqual: "equal", IdleEqualContainers: "equal containers", IdleRequested: "requested", IdleUsed: "used",
		} {
			b.Run(name+", "+named, func(b *testing.B) {
				cfg := Config{}
				cfg.Rules.Idle = rule
				if named == "named by use" {
					cfg.Limits[units.ProcessEntity].MinEnergy = 1
				}
				bench := newBench(b, cfg)
				var claims []Claim
				for i := range 10_000 {
					id := bench.open(int32(i+1), inContainer(fmt.Sprint(i%100)))
					bench.e.SetRequest(id, 1024)
					if i/100 == i%100 {
						claims = append(claims, Claim{Claimant: id, CPU: 1})
					}
				}
				b.ReportAllocs()
				for b.Loop() {
					bench.observe(units.Joule, 500*ms, 1000*ms, claims...)
				}
			})
		}
	}
}

func TestAProcessThatMovesToAnotherJobOrUnitHasAnotherSeries(t *testing.T) {
	b := newBench(t, Config{})
	for i, in := range []func(*units.Owner){inJob("1"), inJob("2"), inUnit("a"), inUnit("b")} {
		id := b.open(1, in)
		b.observe(units.Joule, 1, 1, Claim{Claimant: id, CPU: 1})
		b.e.Close(id)
		series := 0
		for a := range b.e.Ledger().Accounts {
			if a.Entity == units.ProcessEntity && !a.Other {
				series++
				assert.Equal(t, units.Joule, a.Amounts(pkg).Energy)
			}
		}
		assert.Equal(t, i+1, series)
	}
}
