// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"math/rand/v2"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

// simEffects are two minutes of one machine, without and with each effect that measurements of real
// machines show. dev/simulation.md lists the measured figures and their sources.
var simEffects = []simScenario{
	effect("none", func(*simulator, *hostsim.Socket) {}),
	// The power at rest walks randomly by 0.1 % per half hour. The workloads run a day after the
	// start of training.
	effect("drift", func(l *simulator, s *hostsim.Socket) {
		s.Drift = walk(s.Idle)
		l.since = func() { s.Drift = func(at time.Duration) float64 { return walk(s.Idle)(at + 24*time.Hour) } }
	}),
	// The power at rest rises by 2.3 W once the models are trained.
	effect("step", func(l *simulator, s *hostsim.Socket) {
		l.since = func() { s.Drift = func(time.Duration) float64 { return 2.3 } }
	}),
	// Leakage adds 2.5 % of the power above rest.
	effect("heat", func(_ *simulator, s *hostsim.Socket) {
		s.Leakage = &hostsim.Leakage{Share: 0.025, Constant: 20 * time.Second}
	}),
	// The socket draws 101 W until its average over 28 s, the usual time window of RAPL's PL1,
	// reaches 80 W.
	effect("turbo budget", func(_ *simulator, s *hostsim.Socket) {
		s.Turbo = &hostsim.Turbo{One: 1, All: 1, Limit: 80, Window: 28 * time.Second}
	}),
	// The solver spins while it waits for its threads: it draws 10 W instead of 39 W.
	effect("spinning at barriers", func(l *simulator, _ *hostsim.Socket) {
		solver, batch := l.workloads[0].tasks[0], l.workloads[2].tasks[0]
		l.each(func(time.Duration) { spin(solver, batch.Demand > 0) })
	}),
	// The counter is updated every 0.5 to 0.9 ms, so the energy of 100 ms has an error of 0.3 %.
	effect("counter noise", func(l *simulator, _ *hostsim.Socket) {
		l.machine.SetRegisters(hostsim.Registers{Every: 700 * time.Microsecond, Jitter: 200 * time.Microsecond, Unit: 61.03515625})
	}),
	// The counter shows its value of 2 s before.
	effect("skew", func(l *simulator, _ *hostsim.Socket) {
		l.machine.SetRegisters(hostsim.Registers{Every: time.Microsecond, Unit: 1, Late: 2 * time.Second})
		l.since = func() { l.machine.Step(2 * time.Second) }
	}),
}

// effect returns a machine with 30 W at rest and 101 W at full load, with its workloads and an
// effect.
func effect(name string, change func(*simulator, *hostsim.Socket)) simScenario {
	return simScenario{name: name, build: func(l *simulator) {
		l.on(straight(8, 30, 101))
		l.process("solver", 0, 2)
		l.container("web", 0, 0.5)
		batch := l.container("batch", 0, 0)
		l.each(func(at time.Duration) { batch.demand(cpusIf(5.5, at%(13*time.Second) >= 2437*ms)) })
		change(l, l.machine.Sockets[0])
	}}
}

// walk returns a random walk in W, with steps of 0.1 % of a power every half hour.
func walk(watts float64) func(time.Duration) float64 {
	r := rand.New(rand.NewPCG(1, 4))
	sums := []float64{0}
	return func(at time.Duration) float64 {
		n := int(at / (30 * time.Minute))
		for len(sums) <= n {
			sums = append(sums, sums[len(sums)-1]+0.001*watts*r.NormFloat64())
		}
		return sums[n]
	}
}

// effectHorizon is longer than the turbo budget lasts, and several time constants of the
// temperature.
const effectHorizon = 2 * time.Minute

// effectSettings are the settings of the table of effects.
var effectSettings = among(nil, "CPU time, 10 s, BPF", "default, BPF", "default, procfs", "fixed, 10 s, BPF", "fixed, 1 s, BPF", "fixed, 100 ms, BPF")
