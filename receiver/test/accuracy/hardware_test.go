// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// Ten seconds have every event of the scenarios, but not a burst of each small container.
func TestTheTrueEnergiesOfEachScenarioAddUp(t *testing.T) {
	all := slices.Concat(simScenarios, simHardware, simEffects)
	for group := range eventGroups {
		all = append(all, machineOf(group, 1))
	}
	for _, sc := range all {
		l := build(t, t.TempDir(), sc)
		l.run(simShort, nil)
		var workloads, others joules
		for _, w := range l.workloads {
			assert.True(t, l.truth(w).sum() > 0 || len(l.workloads) > 100, "%s: %s", sc.name, w.name)
			workloads = workloads.plus(l.truth(w))
		}
		for _, s := range l.machine.Sockets {
			others = others.plus(inJoules(s.Idled)).plus(joules{pkg: s.Interrupts / 1e6})
			assert.InDelta(t, s.Energy.Package, float64(s.Package.Counted), 2, "%s: µJ of the counter", sc.name)
			assert.InDelta(t, s.Energy.DRAM, float64(s.DRAM.Counted), 2, "%s: µJ of the counter", sc.name)
		}
		all, _ := l.energy()
		assert.InEpsilon(t, all.pkg, workloads.plus(others).pkg, 1e-9, sc.name)
		assert.InDelta(t, all.dram, workloads.plus(others).dram, 1e-9*(1+all.dram), sc.name)
	}
}

// What CPU time misattributes in collections of 10 s, and where each package's energy is that of
// its own CPUs and correctly divided into active and idle.
func TestHardwareMakesCPUTimeWrong(t *testing.T) {
	type between struct{ least, most float64 }
	for name, want := range map[string]struct{ node, zone between }{
		"Hyperthreads":               {node: between{0.11, 0.12}, zone: between{0.11, 0.12}},
		"Hyperthreads in bursts":     {node: between{0.11, 0.12}, zone: between{0.11, 0.12}},
		"Two sockets with migration": {node: between{0.09, 0.10}, zone: between{0.01, 0.02}},
		"NUMA":                       {node: between{0.08, 0.10}, zone: between{0.09, 0.10}},
		"Turbo with a power limit":   {node: between{0.11, 0.13}, zone: between{0.02, 0.03}},
		"A noisy counter":            {node: between{0.06, 0.08}, zone: between{0.06, 0.08}},
		"A hypervisor's steal":       {node: between{0, 0.01}, zone: between{0, 0.01}},
		"Interrupts in bursts":       {node: between{0.07, 0.08}, zone: between{0.07, 0.08}},
	} {
		i := slices.IndexFunc(simHardware, func(sc simScenario) bool { return sc.name == name })
		require.GreaterOrEqual(t, i, 0, name)
		a := measure(t, simHardware[i], rule(cpu.KindBPF, 0), simHorizon)
		assert.True(t, a.misattributed >= want.node.least && a.misattributed <= want.node.most, "%s: %v", name, a.misattributed)
		a = measure(t, simHardware[i], byZone("", config.StaticFixed, cpu.KindBPF, time.Second), simHorizon)
		assert.True(t, a.misattributed >= want.zone.least && a.misattributed <= want.zone.most, "%s, in zones: %v", name, a.misattributed)
	}
}

// The errors of neighboring windows cancel each other where the same workloads run in both.
func TestANoisyCounterMisattributesHardlyMoreInShortWindows(t *testing.T) {
	i := slices.IndexFunc(simHardware, func(sc simScenario) bool { return sc.name == "A noisy counter" })
	noisy := simHardware[i]
	exact := noisy
	exact.build = func(l *simulator) func(time.Duration) {
		drive := noisy.build(l)
		l.machine.SetRegisters(hostsim.Registers{Every: time.Microsecond, Unit: 1})
		return drive
	}
	for _, window := range []time.Duration{config.MinWindow, 100 * time.Millisecond} {
		setting := byZone("", config.StaticFixed, cpu.KindBPF, window)
		a, b := measure(t, noisy, setting, simShort).misattributed, measure(t, exact, setting, simShort).misattributed
		assert.InDelta(t, b, a, 1e-3, window)
		assert.NotEqual(t, b, a)
	}
}

// The container that holds the most memory reads little of it.
func TestKeysOfMemoryMisattributeTheEnergyOfMemoryThatIsHardlyRead(t *testing.T) {
	i := slices.IndexFunc(simHardware, func(sc simScenario) bool { return sc.name == "NUMA" })
	misattributed := func(key config.Weight) float64 {
		return measure(t, simHardware[i], byZone(key, config.StaticFixed, cpu.KindBPF, time.Second), simShort).misattributedDRAM
	}
	assert.InDelta(t, 0.506, misattributed(config.WeightCPUTime), 0.002)
	assert.InDelta(t, 0.411, misattributed(config.WeightMemory), 0.002)
	assert.InDelta(t, 0.282, misattributed(config.WeightMemoryCPUTime), 0.002)
}
