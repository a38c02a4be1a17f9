// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// limited returns limits of one entity.
func limited(entity identity.Entity, limit Limit) (l Limits) {
	l[entity] = limit
	return l
}

// collect observes the last interval of a collection, in which each claimant uses so many joules.
func (b *bench) collect(joules map[attribution.Claimant]int) {
	claims, sum := []attribution.Claim(nil), units.Energy(0)
	for id := range attribution.Claimant(len(b.e.claimants)) {
		if j := joules[id]; j > 0 {
			claims = append(claims, attribution.Claim{Claimant: id, CPU: units.CPUTime(j)})
			sum += units.Energy(j) * units.Joule
		}
	}
	b.iv.EndsCollection = true
	b.observe(sum, 1, 1, claims...)
	b.iv.EndsCollection = false
}

// live returns the names of the live series of an entity.
func (b *bench) live(entity identity.Entity) (names []string) {
	for a := range b.e.Ledger().Accounts {
		if a.Entity == entity && !a.Ended() && !a.Other {
			names = append(names, a.Owner.Process.Executable+a.Owner.Container.ID+a.Owner.VM.ID)
		}
	}
	slices.Sort(names)
	return names
}

// A node of 500 daemons of 1 J each, each in its own container, pod or VM, gets a job of 100 J.
func TestAJobAtFullPowerHasItsSeriesWithTheCollectionInWhichItRuns(t *testing.T) {
	for entity, in := range map[identity.Entity]func(string) func(*identity.Owner){
		identity.ProcessEntity:   func(string) func(*identity.Owner) { return func(*identity.Owner) {} },
		identity.ContainerEntity: inContainer,
		identity.PodEntity:       func(id string) func(*identity.Owner) { return inPod("c"+id, id) },
		identity.VMEntity:        inVM,
	} {
		for _, windows := range []int{1, 10} {
			b := newBench(t, Config{Limits: limited(entity, Limit{MinEnergy: units.Joule, Max: 500})})
			joules := map[attribution.Claimant]int{}
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
				b.observe(100*units.Joule, 1, 1, attribution.Claim{Claimant: job, CPU: 1})
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
				if a.Entity == entity && a.Ended() {
					ended++
					assert.Equal(t, 21*units.Joule, a.Amounts(pkg).Energy, "its final value has all that it used")
				}
			}
			assert.Equal(t, 1, ended)
			assert.Equal(t, 500, b.e.live[entity])
		}
	}
}

// 600 processes use 1 J, 2 J, …, 600 J in one collection, and exit before the next one.
func TestOf600ExitedProcessesThe500LargestFrom10JHaveAFinalValue(t *testing.T) {
	b := newBench(t, Config{Limits: limited(identity.ProcessEntity, Limit{MinEnergy: 10 * units.Joule, Max: 500})})
	joules := map[attribution.Claimant]int{}
	for i := range 600 {
		joules[b.open(int32(i+1))] = i + 1
	}
	b.collect(joules)
	b.deliver()
	for id := range joules {
		b.e.Close(id)
	}
	b.collect(nil)
	var finals []units.Energy
	for a := range b.e.Ledger().Accounts {
		if a.Ended() {
			finals = append(finals, a.Amounts(pkg).Energy)
		}
	}
	assert.Len(t, finals, 500)
	assert.Equal(t, 101*units.Joule, slices.Min(finals))
	assert.Equal(t, 600*units.Joule, slices.Max(finals))
	assert.Equal(t, 5050*units.Joule, b.energy(identity.ProcessEntity, "other"), "1 + 2 + … + 100")
	t.Attr("terminated-limit", fmt.Sprintf("%d workloads of %g to %g J", len(finals), slices.Min(finals).Joules(), slices.Max(finals).Joules()))

	small, large := b.open(601), b.open(602)
	b.deliver()
	b.collect(map[attribution.Claimant]int{small: 9, large: 10})
	assert.Equal(t, []string{"p602"}, b.live(identity.ProcessEntity), "9 J are less than the minimum")
	t.Attr("terminated-energy", fmt.Sprint(b.live(identity.ProcessEntity)))
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
		for _, entity := range []identity.Entity{identity.ProcessEntity, identity.ContainerEntity} {
			b := newBench(t, Config{Limits: limited(entity, Limit{Max: 1})})
			p, q := b.open(1, inContainer("A")), b.open(2, inContainer("B"))
			displaced := 0
			for n := range collections {
				used, usedToo := c.use(n)
				b.collect(map[attribution.Claimant]int{p: used, q: usedToo})
				for a := range b.e.Ledger().Accounts {
					if a.Entity == entity && a.Ended() {
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
	b := newBench(t, Config{Limits: limited(identity.ProcessEntity, Limit{MinEnergy: units.Joule, Max: 1})})
	p, q := b.open(1), b.open(2)
	b.collect(map[attribution.Claimant]int{p: 10, q: 1})
	b.deliver()
	began := b.find(identity.ProcessEntity, "1").Start
	b.collect(map[attribution.Claimant]int{p: 1, q: 50})
	require.Equal(t, 11*units.Joule, b.energy(identity.ProcessEntity, "1"))
	require.True(t, b.find(identity.ProcessEntity, "1").Ended())
	assert.Equal(t, 50*units.Joule, b.energy(identity.ProcessEntity, "2"))
	b.e.Emitted() // refused
	b.collect(map[attribution.Claimant]int{p: 500, q: 1})
	a := b.find(identity.ProcessEntity, "1")
	assert.False(t, a.Ended())
	assert.Equal(t, 511*units.Joule, a.Amounts(pkg).Energy, "the end was not sent, so it continues")
	assert.Equal(t, began, a.Start)
	b.deliver()
	b.collect(map[attribution.Claimant]int{p: 1, q: 9000})
	b.deliver()
	require.Nil(t, b.find(identity.ProcessEntity, "1"))
	b.collect(map[attribution.Claimant]int{p: 90000, q: 1})
	assert.Equal(t, 90000*units.Joule, b.energy(identity.ProcessEntity, "1"), "another series")
	assert.Equal(t, b.at.Add(-time.Second), b.find(identity.ProcessEntity, "1").Start)
	requireConserved(t, b.e, byKind{pkg: (511 + 1 + 51) * units.Joule})
}

func TestAWorkloadThatLostItsSeriesWaitsUntilTheEndIsAcknowledged(t *testing.T) {
	b := newBench(t, Config{Limits: limited(identity.ContainerEntity, Limit{Max: 1})})
	p, q := b.open(1, inContainer("A")), b.open(2, inContainer("B"))
	b.collect(map[attribution.Claimant]int{p: 10, q: 1})
	b.deliver()
	b.collect(map[attribution.Claimant]int{p: 1, q: 50})
	for range 3 {
		b.e.Emitted()
		b.e.Outcome(Refused)
		b.collect(map[attribution.Claimant]int{p: 9000, q: 1})
		assert.Equal(t, []string{"B"}, b.live(identity.ContainerEntity))
	}
	assert.Equal(t, 11*units.Joule, b.energy(identity.ContainerEntity, "A"), "its final value")
	assert.Equal(t, (1+3*9000)*units.Joule, b.energy(identity.ContainerEntity, "other"))
	b.deliver()
	b.collect(map[attribution.Claimant]int{p: 9000, q: 1})
	a := b.find(identity.ContainerEntity, "A")
	assert.Equal(t, 9000*units.Joule, a.Amounts(pkg).Energy)
	assert.Equal(t, b.at.Add(-time.Second), a.Start)
}

func TestAWorkloadThatEndsWhileItWaitsReturnsToItsSeries(t *testing.T) {
	b := newBench(t, Config{Limits: limited(identity.ContainerEntity, Limit{Max: 1})})
	p, q := b.open(1, inContainer("A")), b.open(2, inContainer("B"))
	b.collect(map[attribution.Claimant]int{p: 10, q: 1})
	b.deliver()
	b.collect(map[attribution.Claimant]int{p: 1, q: 50})
	b.e.Close(p)
	b.e.Close(q)
	b.collect(map[attribution.Claimant]int{b.open(3, inContainer("A")): 5})
	assert.Equal(t, (10+1+5)*units.Joule, b.energy(identity.ContainerEntity, "A"))
}

// A pipeline acknowledges once and then refuses everything. In each collection there is a newcomer
// that uses more than all before it.
func TestNewSeriesOpenWhileThePipelineRefuses(t *testing.T) {
	const most = 5
	var limits Limits
	for entity := range limits {
		limits[entity] = Limit{Max: most}
	}
	b := newBench(t, Config{Limits: limits})
	joules := map[attribution.Claimant]int{}
	var delivered byKind
	for i := range 50 {
		name := fmt.Sprint(i + 1)
		in := func(o *identity.Owner) {
			for _, a := range identity.ProcessEntity.Attributes() {
				*a.Field(&o.Workload) = name
			}
		}
		joules[b.open(int32(i+1), in)] = int(100 * math.Pow(1.4, float64(i)))
		b.collect(joules)
		for entity := range identity.NumEntities {
			if entity == identity.ProgramEntity {
				continue
			}
			a := b.find(entity, name)
			require.NotNil(t, a, "the %v of newcomer %s", entity, name)
			require.LessOrEqual(t, b.e.live[entity], most)
			require.LessOrEqual(t, b.e.ended[entity], 2*most)
		}
		require.LessOrEqual(t, len(b.e.accounts), int(identity.NumEntities)*(3*most+1+len(joules)))
		b.e.Emitted()
		if i == most {
			for a := range b.e.Ledger().Accounts {
				if a.Ended() && a.Entity.OfProcesses() {
					delivered[pkg] += a.Amounts(pkg).Energy
				}
			}
			b.e.Outcome(Acknowledged)
		}
	}
	requireConserved(t, b.e, delivered)
}

// crowded returns a bench of processes in their own containers, some of which have a series. Each
// process uses as much as in the last collection.
func crowded(tb testing.TB, processes, most int) (collect func()) {
	limits := Limits{identity.ProcessEntity: {MinEnergy: 1, Max: most}, identity.ContainerEntity: {Max: most}}
	b := newBench(tb, Config{Limits: limits})
	var claims []attribution.Claim
	for i := range processes {
		id := b.open(int32(i+1), inContainer(fmt.Sprint(i)))
		claims = append(claims, attribution.Claim{Claimant: id, CPU: units.CPUTime(1 + i%1000)})
	}
	b.iv.EndsCollection = true
	collect = func() {
		b.observe(1000*units.Joule, 500*ms, 1000*ms, claims...)
		b.e.Emitted()
		b.e.Outcome(Acknowledged)
	}
	for range 100 {
		collect()
	}
	return collect
}

// A GPU user that exited keeps its series for as long as polls of GPUs may name it.
func TestAProcessThatEndedHasItsPlaceUntilItLeaves(t *testing.T) {
	b := newBench(t, Config{Limits: limited(identity.ProcessEntity, Limit{Max: 1})})
	first, second := b.open(1), b.open(2)
	b.collect(map[attribution.Claimant]int{first: 1})
	b.deliver()
	b.e.Stop(first)
	b.collect(map[attribution.Claimant]int{second: 2})
	assert.Equal(t, []string{"p1"}, b.live(identity.ProcessEntity))
	b.deliver()
	b.e.Leave(first)
	b.collect(map[attribution.Claimant]int{second: 2})
	b.e.Close(first)
	assert.Equal(t, []string{"p2"}, b.live(identity.ProcessEntity))
}

func TestAProcessWithoutEnergyIsNoCandidate(t *testing.T) {
	b := newBench(t, Config{Limits: limited(identity.ProcessEntity, Limit{MinEnergy: units.Joule})})
	p := b.open(1)
	b.observe(0, 1, 1, attribution.Claim{Claimant: p, CPU: 1})
	assert.Empty(t, b.e.candidates[identity.ProcessEntity])
	b.observe(1, 1, 1, attribution.Claim{Claimant: p, CPU: 1})
	assert.Len(t, b.e.candidates[identity.ProcessEntity], 1)
}

func TestTheContestForSeriesAllocatesNothing(t *testing.T) {
	assert.Zero(t, testing.AllocsPerRun(100, crowded(t, 2000, 100)))
}

func TestAContestSurvivesAClaimantThatEndsBeforeTheOneItFollowed(t *testing.T) {
	b := newBench(t, Config{Limits: limited(identity.ProcessEntity, Limit{MinEnergy: 0, Max: 1})})
	first, waiting := b.open(1), b.open(2)
	b.iv.Zones[0].OK = false
	b.observe(0, 1, 1, attribution.Claim{Claimant: first, CPU: 1}) // its energy is deferred
	second := b.open(1)                                            // continues the series of the first
	b.e.Close(first)
	b.e.Close(second)
	b.e.Shrink() // the second is gone from the end of the table

	b.iv.Zones[0].OK, b.iv.EndsCollection = true, true
	b.observe(4*units.Joule, 3, 3, attribution.Claim{Claimant: waiting, CPU: 3})
	assert.Equal(t, units.Joule, b.find(identity.ProcessEntity, "1").Amounts(pkg).Energy)
	assert.Equal(t, 3*units.Joule, b.find(identity.ProcessEntity, "other").Amounts(pkg).Energy)

	b.deliver()
	b.observe(3*units.Joule, 3, 3, attribution.Claim{Claimant: waiting, CPU: 3})
	assert.Equal(t, []string{"p2"}, b.live(identity.ProcessEntity))
}

// The series of process 1 has one microjoule of a socket, and no CPU time of the node.
func TestAMicrojouleOfADisplacedSeriesIsTheOthers(t *testing.T) {
	b := twoSockets(t, Config{Limits: limited(identity.ProcessEntity, Limit{Max: 1})})
	small, large := b.open(1), b.open(2)
	b.use(1, ms, ms, attribution.Claim{Claimant: small, CPU: ms})
	b.second(1)
	b.iv.EndsCollection = true
	b.use(1, ms, ms, attribution.Claim{Claimant: large, CPU: ms})
	b.second(units.Joule)
	assert.Equal(t, []string{"p2"}, b.live(identity.ProcessEntity))
	assert.Equal(t, units.Energy(1), b.energy(identity.ProcessEntity, "other"))
}
