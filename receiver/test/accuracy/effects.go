// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"math/rand/v2"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

// simEffects are one machine, without and with each effect that measurements of real machines show, for two minutes.
// dev/simulation.md has the measured figures and their sources.
var simEffects = []simScenario{
	effect("none", func(*simulator, *hostsim.Socket) {}),
	// The power at rest walks by 0.1 % in each half hour, up or down. The workloads run a day after
	// training has begun.
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
	// The socket draws 101 W until the average of 28 s, the usual time window of RAPL's PL1,
	// reaches 80 W.
	effect("turbo budget", func(_ *simulator, s *hostsim.Socket) {
		s.Turbo = &hostsim.Turbo{One: 1, All: 1, Limit: 80, Window: 28 * time.Second}
	}),
	// The solver waits for its threads while others run, by spinning: 10 W in place of 39 W.
	effect("spinning at barriers", func(l *simulator, _ *hostsim.Socket) {
		solver, batch := l.workloads[0].tasks[0], l.workloads[2].tasks[0]
		l.each(func(time.Duration) { spin(solver, batch.Demand > 0) })
	}),
	// The counter moves every 0.5 to 0.9 ms, so that the energy of 100 ms is off by 0.3 %.
	effect("counter noise", func(l *simulator, _ *hostsim.Socket) {
		l.machine.SetRegisters(hostsim.Registers{Every: 700 * time.Microsecond, Jitter: 200 * time.Microsecond, Unit: 61.03515625})
	}),
	// The counter shows what it had counted 2 s before.
	effect("skew", func(l *simulator, _ *hostsim.Socket) {
		l.machine.SetRegisters(hostsim.Registers{Every: time.Microsecond, Unit: 1, Late: 2 * time.Second})
		l.since = func() { l.machine.Step(2 * time.Second) }
	}),
}

// effect returns a machine that has 30 W at rest and 101 W at full load, with its workloads and an
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

// walk returns a random walk by time, in W, whose steps are 0.1 % of a power in each half hour.
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

// effectHorizon is longer than the time for which the turbo budget lasts, and several time constants of the
// temperature.
const effectHorizon = 2 * time.Minute

// effectSettings are the settings of the table of effects.
var effectSettings = among(nil, "CPU time, 10 s, BPF", "default, BPF", "default, procfs", "fixed, 10 s, BPF", "fixed, 1 s, BPF", "fixed, 100 ms, BPF")
