// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// limited returns limits of one entity.
func limited(entity units.Entity, limit Limit) (l Limits) {
	l[entity] = limit
	return l
}

// collect observes the last interval of a collection, in which each claimant uses so many joules.
func (b *bench) collect(joules map[Claimant]int) {
	claims, sum := []Claim(nil), 0
	for id := range Claimant(len(b.e.claimants)) {
		if j := joules[id]; j > 0 {
			claims = append(claims, Claim{Claimant: id, CPU: units.CPUTime(j)})
			sum += j
		}
	}
	b.iv.EndsCollection = true
	b.observe(units.Energy(sum)*units.Joule, 1, 1, claims...)
	b.iv.EndsCollection = false
}

// live returns the names of the live series of an entity.
func (b *bench) live(entity units.Entity) (names []string) {
	for a := range b.e.Ledger().Accounts {
		if a.Entity == entity && !a.Ended && !a.Other {
			names = append(names, a.Owner.Process.Executable+a.Owner.Container.ID+a.Owner.VM.ID)
		}
	}
	slices.Sort(names)
	return names
}

func TestTheLargestHaveTheSeriesInAnyOrderOfArrival(t *testing.T) {
	for _, atOnce := range []bool{true, false} {
		for seed := range uint64(20) {
			order := rand.New(rand.NewPCG(seed, 3)).Perm(10)
			if seed == 0 {
				slices.Sort(order)
			}
			b := newBench(t, Config{Limits: limited(units.ProcessEntity, Limit{MinEnergy: units.Joule, Max: 3})})
			joules := map[Claimant]int{}
			for _, n := range order {
				joules[b.open(int32(n+1))] = n + 1
				if !atOnce {
					b.collect(joules)
					b.deliver()
				}
			}
			for range 30 {
				b.collect(joules)
				b.deliver()
			}
			assert.Equal(t, []string{"p10", "p8", "p9"}, b.live(units.ProcessEntity), "order %v, at once %v", order, atOnce)
		}
	}
}

// A node of 500 daemons of 1 J each, each in its own container, pod or VM, gets a job of 100 J.
func TestAJobAtFullPowerHasItsSeriesWithTheCollectionInWhichItRuns(t *testing.T) {
	for entity, in := range map[units.Entity]func(string) func(*units.Owner){
		units.ProcessEntity:   func(string) func(*units.Owner) { return func(*units.Owner) {} },
		units.ContainerEntity: inContainer,
		units.PodEntity:       func(id string) func(*units.Owner) { return inPod("c"+id, id) },
		units.VMEntity:        inVM,
	} {
		for _, windows := range []int{1, 10} {
			b := newBench(t, Config{Limits: limited(entity, Limit{MinEnergy: units.Joule, Max: 500})})
			joules := map[Claimant]int{}
			for i := range 500 {
				joules[b.open(int32(i+1), in(fmt.Sprint(i+1)))] = 1
			}
			for range 20 {
				b.collect(joules)
				b.deliver()
			}
			job := b.open(501, in("501"))
			joules[job] = 100
			for range windows - 1 {
				b.observe(100*units.Joule, 1, 1, Claim{Claimant: job, CPU: 1})
			}
			b.collect(joules)
			a := b.find(entity, "501")
			require.NotNil(t, a, "entity %d", entity)
			assert.Equal(t, 100*units.Joule, a.Amounts(pkg).Energy, "with what the last window brought it")
			assert.Equal(t, a.active(), a.recent())
			assert.Equal(t, b.at.Add(-time.Second), a.Start)
			if others := b.find(entity, "other"); others != nil {
				assert.Equal(t, units.Energy(windows-1)*100*units.Joule, others.Amounts(pkg).Energy)
			}
			ended := 0
			for a := range b.e.Ledger().Accounts {
				if a.Entity == entity && a.Ended {
					ended++
					assert.Equal(t, 21*units.Joule, a.Amounts(pkg).Energy, "its final value has all that it used")
				}
			}
			assert.Equal(t, 1, ended)
			assert.Equal(t, 500, b.e.live[entity])
		}
	}
}

// Two processes, or two containers, compete for one series.
func TestSeriesDoNotAlternateBetweenEqualClaimants(t *testing.T) {
	const (
		collections = 1000
		most        = 2*(maxLost+1) + 2*collections/forgiveAfter
	)
	r := rand.New(rand.NewPCG(1, 4))
	noisy := func(mean int) int { return mean/2 + r.IntN(mean+1) }
	tests := map[string]struct {
		use  func(n int) (a, b int)
		most int
	}{
		"equal":       {func(int) (int, int) { return 100, 100 }, 0},
		"nearly":      {func(int) (int, int) { return 100, 110 }, 0},
		"equal noise": {func(int) (int, int) { return noisy(100), noisy(100) }, most},
	}
	for period := 1; period <= 7; period++ {
		for name, small := range map[string]int{"alternate": 100, "alternate with pauses": 0} {
			tests[fmt.Sprint(name, " every ", period)] = struct {
				use  func(n int) (a, b int)
				most int
			}{func(n int) (int, int) {
				if n/period%2 == 0 {
					return noisy(1000), noisy(small)
				}
				return noisy(small), noisy(1000)
			}, most}
		}
	}
	for name, c := range tests {
		for _, entity := range []units.Entity{units.ProcessEntity, units.ContainerEntity} {
			b := newBench(t, Config{Limits: limited(entity, Limit{Max: 1})})
			p, q := b.open(1, inContainer("A")), b.open(2, inContainer("B"))
			displaced := 0
			for n := range collections {
				used, usedToo := c.use(n)
				b.collect(map[Claimant]int{p: used, q: usedToo})
				for a := range b.e.Ledger().Accounts {
					if a.Entity == entity && a.Ended {
						displaced++
					}
				}
				b.deliver()
			}
			assert.LessOrEqual(t, displaced, c.most, "%s, entity %d", name, entity)
		}
	}
}

func TestAProcessThatTookThePlaceOfAnotherLosesItToOneThatUsesMore(t *testing.T) {
	b := newBench(t, Config{Limits: limited(units.ProcessEntity, Limit{MinEnergy: units.Joule, Max: 1})})
	p, q := b.open(1), b.open(2)
	b.collect(map[Claimant]int{p: 10, q: 1})
	b.deliver()
	began := b.find(units.ProcessEntity, "1").Start
	b.collect(map[Claimant]int{p: 1, q: 50})
	require.Equal(t, 11*units.Joule, b.energy(units.ProcessEntity, "1"))
	require.True(t, b.find(units.ProcessEntity, "1").Ended)
	assert.Equal(t, 50*units.Joule, b.energy(units.ProcessEntity, "2"))
	b.e.Emitted() // refused
	b.collect(map[Claimant]int{p: 500, q: 1})
	a := b.find(units.ProcessEntity, "1")
	assert.False(t, a.Ended)
	assert.False(t, a.EndSent)
	assert.Equal(t, 511*units.Joule, a.Amounts(pkg).Energy, "the end was not sent, so it continues")
	assert.Equal(t, began, a.Start)
	b.deliver()
	b.collect(map[Claimant]int{p: 1, q: 9000})
	b.deliver()
	require.Nil(t, b.find(units.ProcessEntity, "1"))
	b.collect(map[Claimant]int{p: 90000, q: 1})
	assert.Equal(t, 90000*units.Joule, b.energy(units.ProcessEntity, "1"), "another series")
	assert.Equal(t, b.at.Add(-time.Second), b.find(units.ProcessEntity, "1").Start)
	requireConserved(t, b.e, byKind{pkg: (511 + 1 + 51) * units.Joule})
}

func TestAContainerThatLosesItsSeriesContinuesIfItsEndWasNotSent(t *testing.T) {
	b := newBench(t, Config{Limits: limited(units.ContainerEntity, Limit{Max: 1})})
	p, q := b.open(1, inPod("A", "X")), b.open(2, inPod("B", "X"))
	b.collect(map[Claimant]int{p: 10, q: 1})
	began := b.find(units.ContainerEntity, "A").Start
	require.Equal(t, 1*units.Joule, b.energy(units.ContainerEntity, "other"))
	b.deliver()
	b.collect(map[Claimant]int{p: 1, q: 50})
	assert.True(t, b.find(units.ContainerEntity, "A").Ended)
	assert.Equal(t, 11*units.Joule, b.energy(units.ContainerEntity, "A"))
	assert.Equal(t, 50*units.Joule, b.energy(units.ContainerEntity, "B"))
	assert.Equal(t, 1*units.Joule, b.energy(units.ContainerEntity, "other"))
	assert.Equal(t, 62*units.Joule, b.energy(units.PodEntity, "X"))
	b.e.Emitted() // refused
	b.observe(7*units.Joule, 1, 1, Claim{Claimant: p, CPU: 1})
	assert.Equal(t, 11*units.Joule, b.energy(units.ContainerEntity, "A"), "final")
	assert.Equal(t, 8*units.Joule, b.energy(units.ContainerEntity, "other"))
	b.collect(map[Claimant]int{p: 5000, q: 1})
	assert.False(t, b.find(units.ContainerEntity, "A").Ended)
	assert.Equal(t, 5011*units.Joule, b.energy(units.ContainerEntity, "A"))
	assert.Equal(t, began, b.find(units.ContainerEntity, "A").Start)
	assert.True(t, b.find(units.ContainerEntity, "B").Ended)
	b.e.Close(p)
	b.deliver()
	assert.Equal(t, []string(nil), b.live(units.ContainerEntity))
	b.observe(units.Joule, 1, 1, Claim{Claimant: q, CPU: 1})
	assert.Equal(t, 1*units.Joule, b.energy(units.ContainerEntity, "B"), "there is a place")
	b.e.Close(q)
	b.deliver()
	assert.Empty(t, b.e.series)
	assert.Equal(t, [units.NumEntities]int{}, b.e.live)
	assert.Equal(t, [units.NumEntities]int{}, b.e.ended)
}

// A pipeline acknowledges once and then refuses everything. In each collection there is a newcomer that uses more than
// all before it.
func TestNewSeriesOpenWhileThePipelineRefuses(t *testing.T) {
	const most = 5
	var limits Limits
	for entity := range limits {
		limits[entity] = Limit{Max: most}
	}
	b := newBench(t, Config{Limits: limits})
	joules := map[Claimant]int{}
	var delivered byKind
	for i := range 50 {
		name := fmt.Sprint(i + 1)
		in := func(o *units.Owner) {
			for _, a := range units.ProcessEntity.Attributes() {
				*a.Field(&o.Workload) = name
			}
		}
		joules[b.open(int32(i+1), in)] = int(100 * math.Pow(1.5, float64(i)))
		b.collect(joules)
		for entity := range units.NumEntities {
			if entity == units.ProgramEntity {
				continue
			}
			a := b.find(entity, name)
			require.NotNil(t, a, "the %v of newcomer %s", entity, name)
			require.LessOrEqual(t, b.e.live[entity], most)
			require.LessOrEqual(t, b.e.ended[entity], 2*most)
		}
		require.LessOrEqual(t, len(b.e.ledger.accounts), int(units.NumEntities)*(3*most+1+len(joules)))
		b.e.Emitted()
		if i == most {
			d := delivering{Engine: b.e}
			d.accept()
			delivered = d.delivered[units.ProcessEntity].energy
		}
	}
	requireConserved(t, b.e, delivered)
}

func TestTheIdleEnergyOfAProcessWithoutASeriesIsTheOthers(t *testing.T) {
	var rules Rules
	rules.Idle = IdleEqual
	b := newBench(t, Config{Rules: rules, Limits: limited(units.ProcessEntity, Limit{Max: 1})})
	p, q := b.open(1, inContainer("A")), b.open(2, inContainer("A"))
	share := func(cpu ...units.CPUTime) {
		b.iv.EndsCollection = true
		b.observe(20*units.Joule, 100, 200, Claim{Claimant: p, CPU: cpu[0]}, Claim{Claimant: q, CPU: cpu[1]})
		b.deliver()
	}
	share(99, 1)
	for range 5 {
		share(1, 99)
	}
	require.Equal(t, []string{"p2A"}, b.live(units.ProcessEntity))
	others, second := b.find(units.ProcessEntity, "other").Amounts(pkg).Idle, b.find(units.ProcessEntity, "2").Amounts(pkg).Idle
	share(1, 99)
	assert.Equal(t, others+5*units.Joule, b.find(units.ProcessEntity, "other").Amounts(pkg).Idle)
	assert.Equal(t, second+5*units.Joule, b.find(units.ProcessEntity, "2").Amounts(pkg).Idle)
	b.e.Close(p)
	b.observe(20*units.Joule, 100, 200, Claim{Claimant: q, CPU: 100})
	b.deliver()
	assert.Equal(t, others+5*units.Joule, b.find(units.ProcessEntity, "other").Amounts(pkg).Idle)
	assert.Equal(t, second+15*units.Joule, b.find(units.ProcessEntity, "2").Amounts(pkg).Idle)
}

func TestEndedSeriesMakeRoomForNewOnes(t *testing.T) {
	b := newBench(t, Config{Limits: limited(units.ProcessEntity, Limit{Max: 2})})
	p, q := b.open(1), b.open(2)
	b.collect(map[Claimant]int{p: 10, q: 10})
	b.deliver()
	r := b.open(3)
	b.e.Stop(p)
	b.collect(map[Claimant]int{p: 10, q: 1, r: 100})
	b.e.Close(p)
	assert.Equal(t, []string{"p2", "p3"}, b.live(units.ProcessEntity), "no series was displaced")
	assert.Equal(t, 2, b.e.live[units.ProcessEntity])
}

// crowded returns a bench of processes in their own containers, some of which have a series. Each process uses as much
// as in the last collection.
func crowded(tb testing.TB, processes, most int) (collect func()) {
	limits := Limits{units.ProcessEntity: {MinEnergy: 1, Max: most}, units.ContainerEntity: {Max: most}}
	b := newBench(tb, Config{Limits: limits})
	var claims []Claim
	for i := range processes {
		id := b.open(int32(i+1), inContainer(fmt.Sprint(i)))
		claims = append(claims, Claim{Claimant: id, CPU: units.CPUTime(1 + i%1000)})
	}
	b.iv.EndsCollection = true
	collect = func() {
		b.observe(1000*units.Joule, 500*ms, 1000*ms, claims...)
		b.e.Emitted()
		b.e.Acknowledged()
	}
	for range 100 {
		collect()
	}
	return collect
}

// totals returns the energy of all series of an entity.
type totals struct {
	energy, idle byKind
	cpu          units.CPUTime
}

func (s *totals) add(a *Account) {
	for kind := range MaxKinds {
		s.energy[kind] += a.Amounts(kind).Energy
		s.idle[kind] += a.Amounts(kind).Idle
	}
	s.cpu += a.CPU
}

// delivering is an engine with the totals of its delivered series.
type delivering struct {
	*Engine
	delivered [units.NumEntities]totals
}

func (d *delivering) totals() [units.NumEntities]totals {
	all := d.delivered
	for a := range d.Ledger().Accounts {
		all[a.Entity].add(a)
	}
	return all
}

func (d *delivering) accept() {
	for a := range d.Ledger().Accounts {
		if a.Ended && a.EndSent {
			d.delivered[a.Entity].add(a)
		}
	}
	d.Acknowledged()
}

// twins runs a random history on an engine with small limits and on one without, under each idle allocation.
func twins(t testing.TB, seed uint64, intervals int) (displaced int) {
	r := rand.New(rand.NewPCG(seed, 5))
	var rules Rules
	rules.Idle = IdleAllocation(seed % 5)
	var limits Limits
	for entity := range limits {
		limits[entity] = Limit{MinEnergy: units.Energy(r.IntN(2)) * units.Joule, Max: 1 + r.IntN(4)}
	}
	few := &delivering{Engine: New(Config{Rules: rules, Limits: limits}, baseline)}
	all := &delivering{Engine: New(Config{Rules: rules}, baseline)}
	engines := []*delivering{few, all}
	iv := Interval{At: baseline, Zones: []ZoneReading{{Kind: pkg, OK: true}, {Zone: 1, Kind: dram, OK: true}}}
	iv.Domains = []Usage{{}}
	node := &iv.Domains[0]
	var living []Claimant
	pid := int32(0)
	for range intervals {
		for r.IntN(2) == 0 {
			pid++
			o := units.Owner{Process: units.Process{PID: pid, Start: time.Duration(pid), Executable: "x"}}
			if r.IntN(4) > 0 {
				inPod(fmt.Sprint("c", r.IntN(8)), fmt.Sprint("pod", r.IntN(5)))(&o)
			}
			if r.IntN(3) == 0 {
				inVM(fmt.Sprint("vm", r.IntN(5)))(&o)
			}
			if r.IntN(3) == 0 {
				inJob(fmt.Sprint(r.IntN(5)))(&o)
			}
			if r.IntN(3) == 0 {
				inUnit(fmt.Sprint("unit", r.IntN(5)))(&o)
			}
			id := few.Open(o, iv.At)
			require.Equal(t, id, all.Open(o, iv.At))
			for _, e := range engines {
				e.SetRequest(id, uint64(pid%7))
			}
			living = append(living, id)
		}
		node.Claims = node.Claims[:0]
		for _, id := range living {
			if r.IntN(3) > 0 {
				used := units.CPUTime(1) << r.IntN(30)
				node.Claims = append(node.Claims, Claim{Claimant: id, CPU: used, ShortLived: r.IntN(5) == 0})
			}
		}
		var ending []Claimant
		living = slices.DeleteFunc(living, func(id Claimant) bool {
			if r.IntN(9) > 0 {
				return false
			}
			ending = append(ending, id)
			return true
		})
		iv.At, iv.Elapsed, node.Unattributed = iv.At.Add(time.Second), time.Second, units.CPUTime(r.IntN(1000))
		node.Busy, node.Total = units.CPUTime(r.IntN(1000)), 1000
		for i := range iv.Zones {
			iv.Zones[i].Total += units.Energy(r.IntN(1e8))
			iv.Zones[i].OK = r.IntN(6) > 0
		}
		iv.EndsCollection = r.IntN(3) > 0
		acknowledged := r.IntN(3) > 0
		for _, e := range engines {
			for _, id := range ending {
				e.Stop(id)
			}
			e.Observe(&iv)
			for _, id := range ending {
				e.Close(id)
			}
		}
		require.Equal(t, all.totals(), few.totals(), "seed %d", seed)
		for entity, limit := range limits {
			require.LessOrEqual(t, few.live[entity], limit.Max)
			require.LessOrEqual(t, few.ended[entity], 2*limit.Max)
		}
		if !iv.EndsCollection {
			continue
		}
		for _, c := range few.claimants {
			if c != nil {
				displaced += int(few.standingOf(c).rank.lost)
			}
		}
		for _, e := range engines {
			e.Emitted()
			if acknowledged {
				e.accept()
			}
		}
		require.Equal(t, all.totals(), few.totals(), "seed %d", seed)
	}
	for _, e := range engines {
		iv.Zones[0].OK, iv.Zones[1].OK, node.Claims = true, true, nil
		e.Observe(&iv)
		for _, id := range living {
			e.Close(id)
		}
		e.Emitted()
		e.accept()
		for entity := range units.NumEntities {
			require.Zero(t, e.live[entity]+e.ended[entity]+len(e.candidates[entity])+len(e.waiting), "seed %d", seed)
		}
		require.Empty(t, e.series)
	}
	require.Equal(t, all.totals(), few.totals(), "seed %d", seed)
	return displaced
}

// All series of an entity and the others add up to the same total as without limits, whichever have a series.
func TestLimitsChangeNoSum(t *testing.T) {
	displaced := 0
	for seed := range uint64(200) {
		displaced += twins(t, seed, 80)
	}
	assert.Greater(t, displaced, 1000, "or nothing was tested")
}

func FuzzLimitsChangeNoSum(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { twins(t, seed, 50) })
}

func TestTheContestForSeriesAllocatesNothing(t *testing.T) {
	assert.Zero(t, testing.AllocsPerRun(100, crowded(t, 2000, 100)))
}

// BenchmarkCrowded measures a collection in which all of 10,000 processes and containers run, and 500 or all of each
// have a series.
func BenchmarkCrowded(b *testing.B) {
	for _, most := range []int{0, 500} {
		b.Run(fmt.Sprint("max ", most), func(b *testing.B) {
			collect := crowded(b, 10_000, most)
			b.ReportAllocs()
			for b.Loop() {
				collect()
			}
		})
	}
}

// After memory is given back everything continues as without it.
func TestCompactChangesNoSum(t *testing.T) {
	type total struct {
		series series
		other  bool
		energy units.Energy
	}
	var ledgers [2][]total
	for i, compacts := range []bool{false, true} {
		b := newBench(t, Config{Limits: limited(units.ProcessEntity, Limit{Max: 20})})
		var open []Claimant
		for step := range 60 {
			for n := range 40 {
				open = append(open, b.open(int32(1+100*step+n), inContainer(string(rune('A'+n%5)))))
			}
			if step%4 == 3 { // a burst ends, but for a few of its processes
				for _, c := range slices.Concat(open[:70], open[75:]) {
					b.e.Close(c)
				}
				open = slices.Clone(open[70:75])
			}
			var claims []Claim
			for k, c := range open {
				claims = append(claims, Claim{Claimant: c, CPU: units.CPUTime(1 + k)})
			}
			b.iv.EndsCollection = true
			b.observe(20*units.Joule, 100, 200, claims...)
			if step%3 == 0 {
				b.deliver()
			}
			if compacts {
				b.e.Compact()
			}
		}
		for a := range b.e.Ledger().Accounts {
			s, _ := seriesOf(a.Entity, &a.Owner)
			ledgers[i] = append(ledgers[i], total{s, a.Other, a.active()})
		}
		require.Less(t, len(b.e.claimants), 400)
	}
	require.ElementsMatch(t, ledgers[0], ledgers[1])
}

func TestAContestSurvivesAClaimantThatEndsBeforeTheOneItFollowed(t *testing.T) {
	b := newBench(t, Config{Limits: limited(units.ProcessEntity, Limit{MinEnergy: 0, Max: 1})})
	first, waiting := b.open(1), b.open(2)
	b.iv.Zones[0].OK = false
	b.observe(0, 1, 1, Claim{Claimant: first, CPU: 1}) // its energy is pending
	second := b.open(1)                                // continues the series of the first
	b.e.Close(first)
	b.e.Close(second)
	b.e.Compact() // the second is gone from the end of the table

	b.iv.Zones[0].OK, b.iv.EndsCollection = true, true
	b.observe(4*units.Joule, 3, 3, Claim{Claimant: waiting, CPU: 3})
	assert.Equal(t, units.Joule, b.find(units.ProcessEntity, "1").Amounts(pkg).Energy)
	assert.Equal(t, 3*units.Joule, b.find(units.ProcessEntity, "other").Amounts(pkg).Energy)

	b.deliver()
	b.observe(3*units.Joule, 3, 3, Claim{Claimant: waiting, CPU: 3})
	assert.Equal(t, []string{"p2"}, b.live(units.ProcessEntity))
}
