// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/test/allocs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// churning returns an engine after its first interval. Two programs, containers and pods an hour
// have series at once.
func churning(t testing.TB) *bench {
	few := Limit{Max: 100, Births: 2}
	return newBench(t, Config{Processes: ByProgram, Limits: Limits{
		identity.ProgramEntity: few, identity.ContainerEntity: few, identity.PodEntity: few,
	}})
}

// job returns a container of a pod, with the names of both.
func job(id string, names identity.Names) func(*identity.Owner) {
	return func(o *identity.Owner) {
		o.Container, o.Pod, o.Names = identity.Container{ID: id}, identity.Pod{UID: "pod-" + id}, &names
	}
}

func shop(container string) identity.Names {
	return identity.Names{Namespace: "shop", Pod: "unique", KubernetesContainer: container, Image: "registry/job"}
}

// groups returns the energy of the groups of an entity, by their names.
func (b *bench) groups(entity identity.Entity) map[identity.Names]units.Energy {
	energy := map[identity.Names]units.Energy{}
	for a := range b.e.Ledger().Accounts {
		if a.Entity == entity && a.IsGroup() {
			energy[*a.Owner.Names] = a.Amounts(pkg).Energy
		}
	}
	return energy
}

// passes lets a time pass in which nothing runs.
func (b *bench) passes(d time.Duration) {
	b.at = b.at.Add(d)
	b.collect(nil)
}

func TestContainersBeyondTheBirthsOfAnHourAreReportedByTheirNames(t *testing.T) {
	b := churning(t)
	for i := range 6 {
		id := b.open(int32(10+i), running("step"), job(fmt.Sprint(i), shop([]string{"app", "sidecar"}[i%2])))
		b.collect(map[attribution.Claimant]int{id: 1 + i})
		b.e.Close(id)
		b.deliver()
	}
	assert.Equal(t, map[identity.Names]units.Energy{
		{Namespace: "shop", KubernetesContainer: "app", Image: "registry/job"}:     (3 + 5) * units.Joule,
		{Namespace: "shop", KubernetesContainer: "sidecar", Image: "registry/job"}: (4 + 6) * units.Joule,
	}, b.groups(identity.ContainerEntity), "the first two had series")
	assert.Equal(t, map[identity.Names]units.Energy{{Namespace: "shop"}: 18 * units.Joule}, b.groups(identity.PodEntity))
	assert.Equal(t, 18*units.Joule, b.programEnergy("step", ""), "in no container")
	assert.Zero(t, b.energy(identity.ProcessEntity, "other"))
	requireConserved(t, b.e, byKind{})
}

func TestWhatHasNoNamesIsInTheOverflow(t *testing.T) {
	b := churning(t)
	for i := range 3 {
		b.collect(map[attribution.Claimant]int{b.open(int32(10+i), running("step"), inPod(fmt.Sprint(i), fmt.Sprint(i))): 1})
	}
	assert.Equal(t, units.Joule, b.energy(identity.ContainerEntity, "other"))
	assert.Equal(t, units.Joule, b.energy(identity.PodEntity, "other"))
}

func TestALateContainerGetsASeriesAfterFiveMinutes(t *testing.T) {
	b := churning(t)
	var last attribution.Claimant
	for i := range 3 {
		last = b.open(int32(10+i), running("step"), job(fmt.Sprint(i), shop("app")))
	}
	b.collect(map[attribution.Claimant]int{last: 3})
	b.passes(lateAge - 3*time.Second)
	b.collect(map[attribution.Claimant]int{last: 4})
	require.Nil(t, b.find(identity.ContainerEntity, "2"))
	b.collect(map[attribution.Claimant]int{last: 5})
	assert.Equal(t, 5*units.Joule, b.energy(identity.ContainerEntity, "2"))
	assert.Equal(t, 5*units.Joule, b.energy(identity.PodEntity, "pod-2"))
	assert.Equal(t, map[identity.Names]units.Energy{{Namespace: "shop"}: 7 * units.Joule}, b.groups(identity.PodEntity))
	assert.Equal(t, 7*units.Joule, b.programEnergy("step", ""))
	requireConserved(t, b.e, byKind{})
}

func TestBirthsAreForgottenInAnHour(t *testing.T) {
	b := churning(t)
	for i := range 10 {
		b.open(int32(10+i), running("step"), job(fmt.Sprint(i), shop("app")))
	}
	b.passes(30 * time.Minute)
	late := b.open(20, running("step"), job("late", shop("app")))
	b.collect(map[attribution.Claimant]int{late: 1})
	assert.Nil(t, b.find(identity.ContainerEntity, "late"), "at two an hour, one may begin after half an hour and a minute")
	b.passes(31 * time.Minute)
	b.collect(map[attribution.Claimant]int{b.open(21, running("step"), job("early", shop("app"))): 1})
	assert.NotNil(t, b.find(identity.ContainerEntity, "early"))
}

func TestWhatRunsAtTheBeginningCountsAsNoBirth(t *testing.T) {
	b := newUnobserved(t, Config{Limits: limited(identity.ContainerEntity, Limit{Max: 100, Births: 1})})
	use := map[attribution.Claimant]int{}
	for i := range 4 {
		use[b.open(int32(10+i), inContainer(fmt.Sprint(i)))] = 1
	}
	b.e.Observe(&b.iv)
	use[b.open(20, inContainer("new"))] = 1
	b.collect(use)
	assert.Len(t, b.live(identity.ContainerEntity), 5)
}

func TestARestoredEngineGivesFewSeriesToWhatIsNew(t *testing.T) {
	for startsOver, edit := range map[bool]func(*State){false: func(*State) {}, true: (*State).StartOver} {
		b := churning(t)
		b.collect(map[attribution.Claimant]int{b.open(10, running("step"), job("known", shop("app"))): 1})
		b.restart(edit)
		known := b.open(10, running("step"), job("known", shop("app")))
		unknown := b.open(11, running("step"), job("unknown", shop("app")))
		b.collect(map[attribution.Claimant]int{known: 1, unknown: 1})
		assert.NotNil(t, b.find(identity.ContainerEntity, "known"))
		assert.Equal(t, startsOver, b.find(identity.ContainerEntity, "unknown") != nil)
	}
}

// The energy waits for the names. A state has it in the account of the others: a restored engine
// does not know the names.
func TestTheGroupOfAContainerIsKnownWithItsNames(t *testing.T) {
	b := churning(t)
	names := &identity.Names{Pending: true}
	for i := range 2 {
		b.open(int32(10+i), running("step"), inContainer(fmt.Sprint(i)))
	}
	id := b.open(12, running("step"), named("c", names))
	unnamed := b.open(13, running("step"), named("d", &identity.Names{Pending: true}))
	b.collect(map[attribution.Claimant]int{id: 3, unnamed: 2})
	b.deliver()
	require.Nil(t, b.find(identity.ContainerEntity, "other"))
	var s State
	b.e.State(&s)
	kept := units.Energy(0)
	for _, a := range s.Accounts {
		if a.Entity == identity.ContainerEntity && a.Other {
			kept += a.Amounts[0].Energy
		}
	}
	assert.Equal(t, (3+2)*units.Joule, kept)
	names.Image, names.Pending = "nginx", false
	b.collect(map[attribution.Claimant]int{id: 4})
	assert.Equal(t, map[identity.Names]units.Energy{{Image: "nginx"}: 7 * units.Joule}, b.groups(identity.ContainerEntity))
}

func TestAGroupEndsOnceItsUsageHasDecayedAndReturns(t *testing.T) {
	b := churning(t)
	run := func(pid int32) {
		id := b.open(pid, running("step"), job(fmt.Sprint(pid), shop("app")))
		b.collect(map[attribution.Claimant]int{id: 1})
		b.e.Close(id)
		b.deliver()
	}
	for pid := range int32(3) {
		run(10 + pid)
	}
	require.Len(t, b.groups(identity.PodEntity), 1)
	for range 40 {
		b.collect(nil)
		b.deliver()
	}
	assert.Empty(t, b.groups(identity.PodEntity))
	for pid := range int32(3) {
		run(20 + pid)
	}
	assert.Len(t, b.groups(identity.PodEntity), 1)
}

// A container can have a process with the name of a program of the host.
func TestTheGroupOfAProgramIsNotAProgramOfTheHost(t *testing.T) {
	b := churning(t)
	host := b.open(1, running("kubelet"), of("root"))
	use := map[attribution.Claimant]int{host: 1}
	for i := range 3 {
		use[b.open(int32(10+i), running("kubelet"), of("root"), inContainer(fmt.Sprint(i)))] = 10
	}
	b.collect(use)
	energy := map[bool]units.Energy{}
	for a := range b.e.Ledger().Accounts {
		if a.Entity == identity.ProgramEntity && a.Owner.Container.ID == "" {
			energy[a.IsGroup()] += a.Amounts(pkg).Energy
		}
	}
	assert.Equal(t, map[bool]units.Energy{false: units.Joule, true: 20 * units.Joule}, energy)
	requireConserved(t, b.e, byKind{})
}

func TestGroupsDoNotDifferByNamesThatAreNotReported(t *testing.T) {
	b := churning(t)
	b.e.cfg.HiddenNames = GroupNames{Namespace: true, Image: true}
	for i := range 6 {
		names := identity.Names{Namespace: fmt.Sprint("n", i), Image: fmt.Sprint("i", i)}
		if i > 3 {
			names.KubernetesContainer = "app"
		}
		b.collect(map[attribution.Claimant]int{b.open(int32(10+i), running("step"), job(fmt.Sprint(i), names)): 1})
	}
	assert.Equal(t, map[identity.Names]units.Energy{{KubernetesContainer: "app"}: 2 * units.Joule}, b.groups(identity.ContainerEntity))
	assert.Equal(t, 2*units.Joule, b.energy(identity.ContainerEntity, "other"))
	assert.Empty(t, b.groups(identity.PodEntity))
	assert.Equal(t, 4*units.Joule, b.energy(identity.PodEntity, "other"))
}

func TestGroupsThemselvesAreBounded(t *testing.T) {
	b := churning(t)
	for i := range 8 {
		id := b.open(int32(10+i), running(fmt.Sprint("p", i)), job(fmt.Sprint(i), identity.Names{Namespace: fmt.Sprint("n", i)}))
		b.collect(map[attribution.Claimant]int{id: 1})
	}
	assert.Len(t, b.groups(identity.ContainerEntity), 2)
	assert.Equal(t, 4*units.Joule, b.energy(identity.ContainerEntity, "other"))
	assert.Equal(t, 4*units.Joule, b.energy(identity.ProcessEntity, "other"))
	requireConserved(t, b.e, byKind{})
}

func TestASeriesByPIDNeedsOneOfTheBirthsOfAnHour(t *testing.T) {
	few := Limit{MinEnergy: units.Joule, Max: 100, Births: 2}
	b := newBench(t, Config{Processes: ByPIDAndProgram, Limits: limited(identity.ProcessEntity, few)})
	use := map[attribution.Claimant]int{}
	for pid := range 4 {
		use[b.open(int32(1+pid))] = 1 + pid
	}
	for range 2 {
		b.collect(use)
	}
	assert.Equal(t, []string{"p3", "p4"}, b.live(identity.ProcessEntity), "the largest")
	assert.Equal(t, 4*units.Joule, b.programEnergy("p2", ""))
	b.passes(31 * time.Minute)
	b.collect(use)
	assert.Equal(t, []string{"p2", "p3", "p4"}, b.live(identity.ProcessEntity))
	requireConserved(t, b.e, byKind{})
}

func TestNewProcessesTakeNoSeriesByPIDFromRestoredOnes(t *testing.T) {
	for name, least := range map[string]units.Energy{"with a minimum": units.Joule, "without": 0} {
		cfg := Config{Processes: ByPIDAndProgram, Limits: limited(identity.ProcessEntity, Limit{MinEnergy: least, Max: 100, Births: 20})}
		b := newBench(t, cfg)
		known := b.open(99)
		b.collect(map[attribution.Claimant]int{known: 1})
		b.restart()
		use := map[attribution.Claimant]int{}
		for pid := range int32(20) {
			use[b.open(1+pid)] = 2
		}
		use[b.open(99)] = 1
		b.collect(use)
		require.Contains(t, b.live(identity.ProcessEntity), "p99", name)
		assert.Greater(t, b.energy(identity.ProcessEntity, "99"), units.Joule, name)
	}
}

func TestNoSeriesByPIDEndsForOneThatMayNotBegin(t *testing.T) {
	few := Limit{MinEnergy: units.Joule, Max: 1, Births: 1}
	b := newBench(t, Config{Processes: ByPIDAndProgram, Limits: limited(identity.ProcessEntity, few)})
	small, large := b.open(1), b.open(2)
	b.collect(map[attribution.Claimant]int{small: 1})
	b.deliver()
	b.collect(map[attribution.Claimant]int{small: 1, large: 100})
	assert.Equal(t, []string{"p1"}, b.live(identity.ProcessEntity))
}

func TestEnergyGoesToGroupsWithoutAllocating(t *testing.T) {
	b := churning(t)
	var claims []attribution.Claim
	for i := range 20 {
		id := b.open(int32(10+i), running("step"), job(fmt.Sprint(i), shop(fmt.Sprint("app", i%2))))
		claims = append(claims, attribution.Claim{Claimant: id, CPU: 1})
	}
	step := func() {
		b.iv.EndsCollection = true
		b.observe(20*units.Joule, 1, 1, claims...)
		b.deliver()
	}
	for range 10 {
		step()
	}
	require.Len(t, b.groups(identity.ContainerEntity), 2)
	assert.Zero(t, allocs.Count(100, step))
}

func TestALateProgramThatHasExitedGetsNoSeries(t *testing.T) {
	b := churning(t)
	open := func(pid int32) attribution.Claimant {
		return b.open(pid, running("step"), inContainer(fmt.Sprint(pid)))
	}
	open(1)
	open(2)
	late := open(3)
	b.collect(map[attribution.Claimant]int{late: 1000})
	b.e.Close(late)
	b.passes(lateAge)
	b.collect(nil)
	assert.Equal(t, []string{"step"}, b.live(identity.ProgramEntity), "the one in no container")
}
