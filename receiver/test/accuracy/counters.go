// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

type eventGroup struct {
	name     string
	machines int
	build    func(l *simulator, seed uint64)
}

// eventGroups are machines that count hardware events. The machines of a group differ only in their
// seed.
var eventGroups = []eventGroup{
	{"two programs", 24, func(l *simulator, seed uint64) { programs(l, seed, 2, programSocket()) }},
	{"eight programs", 6, func(l *simulator, seed uint64) { programs(l, seed, 8, programSocket()) }},
	// The uncore of both sockets draws power while a CPU of either is busy.
	{"uncore", 4, func(l *simulator, seed uint64) {
		programs(l, seed, 8, programSocket(), programSocket())
		l.machine.Uncore = 15
		l.process("light", 1, 0.3)
	}},
	// From the middle of the measurement on, each miss counts as 100.
	{"changed event", 4, func(l *simulator, seed uint64) {
		programs(l, seed, 8, programSocket())
		l.each(func(at time.Duration) {
			if at == eventsWarm+eventsHorizon/2 {
				l.machine.PMU.Scale = func(time.Duration) float64 { return 100 }
			}
		})
	}},
	// One more program works and spins, three seconds each.
	{"spinning", 4, func(l *simulator, seed uint64) {
		programs(l, seed, 8, programSocket())
		solver := l.process("solver", 0, 4).tasks[0]
		l.each(func(at time.Duration) { spin(solver, at/(3*time.Second)%2 == 1) })
	}},
}

// machineOf returns the scenario of one of the machines of a group.
func machineOf(group int, seed uint64) simScenario {
	g := &eventGroups[group]
	return simScenario{name: fmt.Sprintf("%s %d", g.name, seed), row: g.title(), build: func(l *simulator) { g.build(l, seed) }}
}

// title returns the name of the group's row.
func (g *eventGroup) title() string { return fmt.Sprintf("%d: %s", g.machines, g.name) }

// eventMachines returns all machines.
func eventMachines() (all []simScenario) {
	for i, g := range eventGroups {
		for n := range g.machines {
			all = append(all, machineOf(i, uint64(n)+1))
		}
	}
	return all
}

// The lengths of the phases of a measurement. Models of events are fitted while the programs run,
// before the measurement.
const (
	eventsWarm    = 3 * time.Minute
	eventsHorizon = time.Minute
)

// programSocket returns a socket with memory whose clock rate follows the load.
func programSocket() *hostsim.Socket {
	return withMemory(scaled(straight(16, 30, 150)))
}

// programs runs programs whose load, use of memory and instructions per cycle change every few
// seconds. Power, use of memory and resident memory of a program are random and independent of each
// other.
func programs(l *simulator, seed uint64, n int, sockets ...*hostsim.Socket) {
	l.on(sockets...)
	l.machine.PMU = &hostsim.PMU{Seed: seed}
	r := rand.New(rand.NewPCG(1, seed))
	next, memory := make([]time.Duration, n), make([]float64, n)
	for i := range n {
		w := l.process(fmt.Sprintf("program-%d", i), 0, 0)
		// Measured deviations: of power in power-modelling, of memory power in Energy-Languages.
		memory[i] = 0.3 * math.Exp(1.4*r.NormFloat64())
		w.weighs(math.Exp(0.21*r.NormFloat64()), memory[i]).holds(1 << (26 + r.IntN(7)))
	}
	programs := l.workloads
	l.each(func(at time.Duration) {
		for i, w := range programs {
			if at >= next[i] {
				w.demand(cpusIf(24/float64(n)*r.Float64(), r.Float64() < 0.7))
				t := w.tasks[0]
				t.Memory, t.IPC = min(memory[i]*math.Exp(0.5*r.NormFloat64()), 8), math.Exp(0.27*r.NormFloat64())
				next[i] = at + time.Duration(1000+r.IntN(6000))*ms
			}
		}
	})
}

// spin makes a task spin in a wait loop, or work.
func spin(t *hostsim.Task, spins bool) {
	t.Intensity, t.IPC = 1, 1
	if spins {
		t.Intensity, t.IPC = 10./39, 0.3
	}
}

// counting returns settings on a machine that counts hardware events, from the options in which
// they differ. They have the true static power, because errors of static power hardly change the
// misattributed energy.
func counting(common string, names ...string) (all []simSetting) {
	for _, name := range names {
		s := named(common + ", " + name)
		s.name, s.counts, s.warm = name, true, eventsWarm
		all = append(all, s)
	}
	return all
}

// eventSettings are the settings of the table of hardware events.
var eventSettings = counting("default, fixed, 1 s", "DRAM by cpu_time", "DRAM by memory_cpu_time", "default", "package by power_model",
	"preset kepler_0_9", "preset smartwatts")

// together returns the misattributed parts of the energy of a row, over all its machines.
func together(machines []*accuracy) *accuracy {
	if len(machines) == 1 {
		return machines[0]
	}
	var misattributed, all joules
	for _, a := range machines {
		used := a.truth[aboveIdle]
		misattributed = misattributed.Plus(joules{Package: a.misattributedPackage * used.Package, DRAM: a.misattributedDRAM * used.DRAM})
		all = all.Plus(used)
	}
	return &accuracy{misattributedPackage: misattributed.Package / all.Package, misattributedDRAM: misattributed.DRAM / all.DRAM}
}
