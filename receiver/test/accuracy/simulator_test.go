// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// simShort is the length of the other tests' scenarios: one collection.
const simShort = 10 * time.Second

// share returns the part of all active energy that a workload got, relative to its true part.
func (a *accuracy) share(workload string) float64 {
	return a.reported[workload].Sum() / a.reported[nodeEnergy].Sum() / (a.truth[workload].Sum() / a.truth[aboveIdle].Sum())
}

func TestShortLivedChildrensEnergyBelongsToTheirContainer(t *testing.T) {
	children := simScenarioOf(t, "Short-lived children")
	for _, setting := range simSettings {
		a := measure(t, children, setting, simShort)
		assert.InDelta(t, 1, a.share("builder"), 0.01, setting.name)
		assert.InDelta(t, 1, a.share("server"), 0.01, setting.name)
	}
}

// A third of the CPU time belongs to short-lived processes whose parent ignores SIGCHLD.
func TestUnseenShortLivedProcessesAreNotBilledToOthers(t *testing.T) {
	dropped := simScenario{name: "Dropped children", build: func(l *simulator) {
		l.on(straight(4, 20, 100))
		l.process("server", 0, 0.5)
		l.container("web", 0, 0.5)
		parent := l.machine.Find(1)
		var child *hostsim.Task
		l.each(func(at time.Duration) {
			switch at % (10 * time.Millisecond) {
			case 3 * time.Millisecond:
				child = parent.Spawn()
				child.Demand = 1
			case 8 * time.Millisecond:
				child.Exit()
				child.Reap(true)
			}
		})
	}}
	for _, window := range []string{"10 s", "1 s"} {
		setting := named("default, fixed, procfs, " + window)
		a := measure(t, dropped, setting, simShort)
		assert.InDelta(t, 1, a.share("server"), 0.02, setting.name)
		assert.InDelta(t, 1, a.share("web"), 0.02, setting.name)
		assert.Less(t, a.misattributed, 0.01, setting.name)
	}
}

func TestContainersBetweenTwoScansNeedBPF(t *testing.T) {
	containers := simScenarioOf(t, "Short-lived containers")
	a := measure(t, containers, named("CPU time, 10 s, procfs"), simShort)
	assert.Zero(t, a.reported["job"].Sum())
	a = measure(t, containers, named("CPU time, 10 s, BPF"), simShort)
	assert.InDelta(t, 1, a.share("job"), 0.01)
}

func TestCPUTimeCannotDistinguishSocketsClockRatesOrInstructions(t *testing.T) {
	for _, window := range []string{"10 s", "100 ms"} {
		setting := named("CPU time, " + window)
		perCPU := func(a accuracy, workload string, cpus float64) float64 { return a.reported[workload].Sum() / cpus }
		equal := func(a accuracy, one string, cpus float64, other string, others float64) {
			assert.InEpsilon(t, perCPU(a, one, cpus), perCPU(a, other, others), 1e-5, "%s and %s", one, other)
			assert.Greater(t, a.misattributed, 0.05)
		}
		equal(measure(t, simScenarioOf(t, "One container on one socket"), setting, simShort), "server", 0.6, "job", 6.5)
		equal(measure(t, simScenarioOf(t, "Frequency scaling"), setting, simShort), "fast", 3.6, "slow", 0.8)
		equal(measure(t, simScenarioOf(t, "Memory-bound and compute-bound"), setting, simShort), "compute", 1.5, "memory", 1.5)
	}
}

func TestTheScopeZoneChangesNothingOnOneSocket(t *testing.T) {
	for _, name := range []string{"Steady mix", "Bursts", "Short-lived children", "Memory-bound and compute-bound"} {
		sc := simScenarioOf(t, name)
		for _, source := range []string{"BPF", "procfs"} {
			node, zone := named("fixed, 10 s, "+source), named("scope zone, fixed, 10 s, "+source)
			node.attribution.Scope = config.ScopeNode
			assert.Equal(t, measure(t, sc, node, simShort).reported, measure(t, sc, zone, simShort).reported, "%s, %s", name, source)
		}
	}
}

func TestInterruptsAreBilledToWorkloadsUnlessTheyAreUnattributed(t *testing.T) {
	interrupts := simScenarioOf(t, "Interrupts")
	// A procfs window lasts at least a second.
	for _, in := range []string{"10 s, BPF", "10 s, procfs", "1 s, BPF", "1 s, procfs", "100 ms, BPF"} {
		a := measure(t, interrupts, named("fixed, interrupts unattributed, "+in), simShort)
		assert.Less(t, a.misattributed, 0.01, in)
		assert.InDelta(t, 0, a.active, 1e-3, in)
		b := measure(t, interrupts, named("fixed, "+in), simShort)
		assert.InDelta(t, 0.4/2.563, b.misattributed, 1e-3, "their share of all busy time, %s", in)
		assert.InDelta(t, a.reported[nodeEnergy].Sum(), b.reported[nodeEnergy].Sum(), 1e-6, "same energy of the node")
	}
	for _, window := range []string{"10 s", "1 s", "100 ms"} {
		byUtilization := measure(t, interrupts, named("CPU time, "+window), simShort)
		assert.InDelta(t, 2.563/4-1, byUtilization.active, 2e-3, "interrupts are busy time in windows of %s", window)
	}
}

// The expected error follows from the rule's formula: P·u instead of P - P(rest).
func TestUtilizationErrorOnALoadCurveFollowsTheFormula(t *testing.T) {
	off := map[string][]float64{}
	for _, c := range simCurves(t) {
		for _, load := range simLoads {
			a := measure(t, underLoad(c, load), named("CPU time, 10 s, BPF"), simShort)
			watts, rest := c.watts.Watts(load), c.watts[0].Watts
			assert.InDelta(t, watts*load/(watts-rest)-1, a.active, 1e-3, "%s at %v", c.cpu, load)
			assert.Less(t, a.misattributed, 1e-4)
			off[c.cpu] = append(off[c.cpu], a.active)
		}
	}
	assert.InDelta(t, -0.793, off["Intel Xeon E5-2620 v3"][0], 1e-3, "at a load of 10 %% most of the added power is missed")
	assert.InDelta(t, 0.343, off["AMD Ryzen Threadripper 1950X"][3], 1e-3, "at full load idle energy is attributed too")
}

// The six hours after midnight have enough different loads to train the model.
func TestTheTrainedModelFindsActiveEnergyOnLoadCurves(t *testing.T) {
	setting := named("trained, 10 s, BPF")
	setting.training = 6 * time.Hour
	for _, c := range simCurves(t) {
		for _, load := range []float64{0.1, 1} {
			a := measure(t, underLoad(c, load), setting, simShort)
			assert.InDelta(t, 0, a.active, 0.02, "%s at %v", c.cpu, load)
			assert.Less(t, a.misattributed, 1e-4)
		}
	}
}

func TestATrainedStateIsOfTheMachineAlone(t *testing.T) {
	bursts := simScenarioOf(t, "Bursts")
	setting := named("trained, 10 s, BPF")
	setting.training = 6 * time.Hour
	a := measure(t, bursts, setting, simShort)
	without := measure(t, bursts, named("CPU time, 10 s, BPF"), simShort)
	assert.InDelta(t, without.truth[aboveIdle].Sum(), a.truth[aboveIdle].Sum(), 1e-3, "without the energy of the training")
	assert.InDelta(t, 0, a.active, 5e-3, "in effect from the first interval")
	again := setting
	again.attribution.Weight = named("frequency").attribution.Weight
	assert.Equal(t, setting.trainingKey(), again.trainingKey(), "trained models do not depend on attribution weights")
}

func TestADayHasAllLoads(t *testing.T) {
	l := &simulator{tb: t, root: t.TempDir()}
	l.on(straight(4, 20, 100))
	l.process("a", 0, 1)
	var loads [10]int
	busy := l.machine.Ran()
	l.day(24*time.Hour, func() {
		now := l.machine.Ran()
		loads[min(int(10*(now-busy)/(40*time.Second)), 9)]++
		busy = now
	})
	for i, n := range loads {
		assert.Greater(t, n, 100, "times 10 s at a load of %d0 %%", i)
	}
	assert.Len(t, l.machine.Tasks, 2)
	assert.InDelta(t, 1, l.workloads[0].tasks[0].Demand, 0, "demand restored")
	assert.Zero(t, l.workloads[0].tasks[0].Used)
}

func TestSimulatorFiguresFollowTheirDefinitions(t *testing.T) {
	socket := &hostsim.Socket{CPUs: 1}
	l := &simulator{tb: t, root: t.TempDir(), series: map[simSeries]float64{}}
	l.on(socket)
	task := l.process("a", 0, 0).tasks[0]
	task.Energy = hostsim.Energies{Package: 40e6, DRAM: 20e6}
	l.container("b", 0, 0).spawn().Energy = hostsim.Energies{Package: 40e6}
	socket.Energy, socket.Idled = hostsim.Energies{Package: 135e6, DRAM: 25e6}, hostsim.Energies{Package: 55e6, DRAM: 5e6}
	for _, s := range []struct {
		simSeries
		value float64
	}{
		{simSeries{metric: "system.energy", zone: "package"}, 40},
		{simSeries{metric: "system.energy", zone: "dram"}, 10},
		{simSeries{metric: "process.energy", of: "a", zone: "package"}, 20},
		{simSeries{metric: "process.energy", of: "a", zone: "package", start: 1}, 4}, // restarted
		{simSeries{metric: "process.energy", of: "a", zone: "dram"}, 6},
		{simSeries{metric: "container.energy", of: "b", zone: "package"}, 12},
		// The container includes this energy.
		{simSeries{metric: "process.energy", of: "b", zone: "package"}, 11},
		{simSeries{metric: "process.energy", zone: "dram"}, 4},
		{simSeries{metric: "system.energy", zone: "package", idle: true}, 55},
		{simSeries{metric: "system.energy", zone: "dram", idle: true}, 5},
		{simSeries{metric: "process.energy", of: "a", zone: "package", idle: true}, 25},
		{simSeries{metric: "process.energy", of: "a", zone: "dram", idle: true}, 5},
		{simSeries{metric: "container.energy", of: "b", zone: "package", idle: true}, 20},
		{simSeries{metric: "process.energy", of: "b", zone: "package", idle: true}, 18},
		// 2 J belong to b's children.
		{simSeries{metric: "process.energy", zone: "package", idle: true}, 9},
		{simSeries{metric: "system.unattributed.energy", zone: "package", idle: true}, 3},
	} {
		l.series[s.simSeries] = s.value
	}
	a := l.totals().accuracy()
	assert.InDelta(t, -0.5, a.active, 1e-9, "50 of 100 J")
	assert.InDelta(t, -0.7, a.worst, 1e-9, "12 of 40 J")
	assert.Equal(t, "b", a.worstOf)
	assert.InDelta(t, (0.5+0.7)/2, a.mean, 1e-9, "the other 30 of 60 J")
	assert.InDelta(t, 0.16, a.misattributed, 1e-9, "a 60 %% for 60, b 24 %% for 40, and unattributed 16 %%")
	assert.InDelta(t, 0.2, a.misattributedPackage, 1e-9, "a 60 %% for 50, b 30 %% for 50, and unattributed 10 %%")
	assert.InDelta(t, 0.4, a.misattributedDRAM, 1e-9, "a 60 %% for 100, and unattributed 40 %%")
	assert.InDeltaSlice(t, []float64{30. / 60, 20. / 60, 7. / 60, 3. / 60}, a.idleShares(t), 1e-9)
}

func TestSettingsWithTheSameActiveEnergyShareARun(t *testing.T) {
	all := append(simRows(), simPresets...)
	runs := map[string][]string{}
	for _, setting := range all {
		runs[setting.run()] = append(runs[setting.run()], setting.name)
	}
	shared := [][]string{}
	for _, setting := range all {
		if names := runs[setting.run()]; len(names) > 1 && names[0] == setting.name {
			shared = append(shared, names)
		}
	}
	assert.Equal(t, [][]string{
		{"CPU time, 10 s, BPF", "preset kepler, 10 s, BPF", "preset scaphandre, 10 s, BPF"},
		{"minimum, 10 s, BPF", "preset kepler_0_9, 10 s, BPF"},
		{"resting, 10 s, BPF", "preset smartwatts, 10 s, BPF"},
		{"base, 10 s, BPF", "preset kavanagh, 10 s, BPF"},
	}, shared)
}

// Settings that run leaves out do not change active energy, here with an hour of training.
func TestAPresetSharesActiveEnergyLikeItsModel(t *testing.T) {
	c := simCurves(t)[0]
	for _, pair := range [][2]simSetting{
		{named("preset kepler_0_9, 10 s, BPF"), named("minimum, 10 s, BPF")}, {named("preset kavanagh, 10 s, BPF"), named("base, 10 s, BPF")},
	} {
		var reported [2]map[string]joules
		for i, setting := range pair {
			setting.training = time.Hour
			reported[i] = measure(t, underLoad(c, 0.4), setting, simShort).reported
		}
		assert.Equal(t, reported[1], reported[0], pair[0].name)
		assert.NotZero(t, reported[0]["job"])
	}
}

func TestEveryScenarioAndSettingHasANameOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, sc := range append(simAll(), simEffects...) {
		assert.False(t, seen[sc.name], sc.name)
		seen[sc.name] = true
	}
	for _, setting := range append(simRows(), simPresets...) {
		assert.False(t, seen[setting.name], setting.name)
		for _, scenario := range setting.in {
			assert.True(t, seen[scenario], "%s: no scenario %s", setting.name, scenario)
		}
		seen[setting.name] = true
	}
	for _, sc := range gpuScenarios {
		assert.False(t, seen[sc.name], sc.name)
		seen[sc.name] = true
	}
	for _, setting := range gpuSettings {
		assert.False(t, seen[setting.name], setting.name)
		seen[setting.name] = true
	}
}
