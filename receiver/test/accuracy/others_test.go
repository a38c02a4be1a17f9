// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/test/rules"
)

func TestTheSharesOfEnergAtDoNotAddUp(t *testing.T) {
	assert.Greater(t, othersOnce(t, simScenarioOf(t, "Steady mix"))["EnergAt"].partsOf, 1.5)
}

// Interrupts use 0.4 of the 2.563 busy CPUs.
func TestUnattributedEnergyOfARuleIsNotMisattributed(t *testing.T) {
	of := othersOnce(t, simScenarioOf(t, "Interrupts"))
	for _, name := range []string{"CEEMS", "Scaphandre", "CodeCarbon", "Alumet"} {
		assert.Less(t, of[name].misattributed, 0.001, name)
	}
	assert.InDelta(t, 0, of["CEEMS"].active, 1e-3)
	assert.InDelta(t, 1-0.4/2.563, of["CEEMS"].partsOf, 1e-3, "of the users alone")
	assert.InDelta(t, 0.4/2.563, of["METRION"].misattributed, 1e-3, "METRION divides all energy among threads")
}

// readInterval returns the first 10 s of a scenario as a tool reads them, and the simulator.
func readInterval(t *testing.T, scenario string) (*simulator, *rules.Interval) {
	l := build(t, t.TempDir(), simScenarioOf(t, scenario), "")
	o := observe(l)
	before := o.read()
	l.run(simShort, func() { o.observe(time.Millisecond) })
	return l, o.since(before, o.read())
}

func TestToolsReadTheMachinesUsage(t *testing.T) {
	for _, name := range []string{"Mixed node", "Two sockets with migration", "Short-lived containers", "Hyperthreads"} {
		l, i := readInterval(t, name)
		var energy joules
		var busy float64
		for n, s := range l.machine.Sockets {
			energy = energy.Plus(inJoules(s.Energy))
			busy += i.Sockets[n].Busy
			assert.InDelta(t, 10*s.CPUs, i.Sockets[n].Total, 1e-6, name)
		}
		assert.InDelta(t, energy.Package, i.Energy().Package, 1e-5, name)
		assert.InDelta(t, energy.DRAM, i.Energy().DRAM, 1e-5, name)
		used, ticks, last := 0.0, 0.0, 0.0
		for u := range i.Users {
			used, ticks = used+i.Users[u].CPU, ticks+i.Users[u].Ticks
			for _, on := range i.Users[u].On {
				last += on.Last
			}
			assert.LessOrEqual(t, i.Users[u].Ticks, i.Users[u].CPU+1e-9, "%s: user %d", name, u)
		}
		assert.InDelta(t, l.machine.Ran().Seconds(), used, 1e-6, name)
		assert.InDelta(t, busy-10*l.machine.IRQ*float64(l.machine.Host.CPUs), used, 1e-3, name)
		assert.InDelta(t, ticks, last, 1e-9, name)
	}
}

func TestToolsReadTheTimeOfBusySiblings(t *testing.T) {
	l, i := readInterval(t, "Hyperthreads")
	for u, w := range l.workloads {
		on := i.Users[u].On[0]
		alone := map[string]float64{"pair": 0, "twins": 0.05, "alone": 1, "single": 1}[w.name]
		assert.InDelta(t, alone, on.Alone/on.Cycles, 1e-6, w.name)
	}
}
