// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

// Ten seconds include every event of the scenarios, but not a burst of each small container.
func TestTheTrueEnergiesOfEachScenarioAddUp(t *testing.T) {
	all := slices.Concat(simScenarios, simHardware, simEffects)
	for group := range eventGroups {
		all = append(all, machineOf(group, 1))
	}
	for _, sc := range all {
		l := build(t, t.TempDir(), sc, "")
		l.run(simShort, nil)
		var workloads, others joules
		for _, w := range l.workloads {
			assert.True(t, l.truth(w).Sum() > 0 || len(l.workloads) > 100, "%s: %s", sc.name, w.name)
			workloads = workloads.Plus(l.truth(w))
		}
		for _, s := range l.machine.Sockets {
			others = others.Plus(inJoules(s.Idled)).Plus(joules{Package: s.Interrupts / 1e6})
			assert.InDelta(t, s.Energy.Package, float64(s.Package.Counted), 2, "%s: µJ of the counter", sc.name)
			assert.InDelta(t, s.Energy.DRAM, float64(s.DRAM.Counted), 2, "%s: µJ of the counter", sc.name)
		}
		all, _ := l.energy()
		assert.InEpsilon(t, all.Package, workloads.Plus(others).Package, 1e-9, sc.name)
		assert.InDelta(t, all.DRAM, workloads.Plus(others).DRAM, 1e-9*(1+all.DRAM), sc.name)
	}
}

// If the same workloads run in neighboring windows, the errors of the windows cancel.
func TestANoisyCounterMisattributesHardlyMoreInShortWindows(t *testing.T) {
	noisy := simScenarioOf(t, "A noisy counter")
	exact := noisy
	exact.build = func(l *simulator) {
		noisy.build(l)
		l.machine.SetRegisters(hostsim.Registers{Every: time.Microsecond, Unit: 1})
	}
	for _, window := range []string{"10 ms", "100 ms"} {
		setting := named("scope zone, fixed, " + window)
		a, b := measure(t, noisy, setting, simShort).misattributed, measure(t, exact, setting, simShort).misattributed
		assert.InDelta(t, b, a, 1e-3, window)
		assert.NotEqual(t, b, a)
	}
}
