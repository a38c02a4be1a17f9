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
	{name: "none", build: effectless},
	{name: "drift", build: drift},
	{name: "step", build: step},
	{name: "heat", build: heat},
	{name: "turbo budget", build: turboBudget},
	{name: "spinning at barriers", build: spinning},
	{name: "counter noise", build: counterNoise},
	{name: "skew", build: skew},
}

// effectHorizon is longer than the time for which the turbo budget lasts, and several time constants of the
// temperature.
const effectHorizon = 2 * time.Minute

// effectSettings are the settings of the table of effects.
var effectSettings = among(nil, "CPU time, 10 s, BPF", "default, BPF", "default, procfs", "fixed, 10 s, BPF", "fixed, 1 s, BPF", "fixed, 100 ms, BPF")

// effectless builds a machine that has 30 W at rest and 101 W at full load, and its workloads.
func effectless(l *simulator) func(time.Duration) {
	l.on(straight(8, 30, 101))
	l.process("solver", 0, 2)
	l.container("web", 0, 0.5)
	batch := l.container("batch", 0, 0)
	return func(at time.Duration) { batch.demand(cpusIf(5.5, at%(13*time.Second) >= 2437*time.Millisecond)) }
}

// drift makes the power at rest walk by 0.1 % in each half hour, up or down. The workloads run a day after training has
// begun.
func drift(l *simulator) func(time.Duration) {
	drive, s := effectless(l), l.machine.Sockets[0]
	s.Drift = walk(s.Idle)
	l.since = func() { s.Drift = func(at time.Duration) float64 { return walk(s.Idle)(at + 24*time.Hour) } }
	return drive
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

// step adds 2.3 W to the power at rest once the models are trained.
func step(l *simulator) func(time.Duration) {
	drive, s := effectless(l), l.machine.Sockets[0]
	l.since = func() { s.Drift = func(time.Duration) float64 { return 2.3 } }
	return drive
}

// heat adds leakage of 2.5 % of the power above rest.
func heat(l *simulator) func(time.Duration) {
	drive := effectless(l)
	l.machine.Sockets[0].Leakage = &hostsim.Leakage{Share: 0.025, Constant: 20 * time.Second}
	return drive
}

// turboBudget lets the socket draw 101 W until the average of 28 s, the usual time window of RAPL's PL1, reaches 80 W.
func turboBudget(l *simulator) func(time.Duration) {
	drive := effectless(l)
	l.machine.Sockets[0].Turbo = &hostsim.Turbo{One: 1, All: 1, Limit: 80, Window: 28 * time.Second}
	return drive
}

// spinning makes the solver wait for its threads at barriers while others run, by spinning: 10 W in place of 39 W.
func spinning(l *simulator) func(time.Duration) {
	drive, solver, batch := effectless(l), l.workloads[0].tasks[0], l.workloads[2].tasks[0]
	return func(at time.Duration) {
		drive(at)
		spin(solver, batch.Demand > 0)
	}
}

// counterNoise makes the counter move every 0.5 to 0.9 ms, so that the energy of 100 ms is off by 0.3 %.
func counterNoise(l *simulator) func(time.Duration) {
	drive := effectless(l)
	l.machine.SetRegisters(hostsim.Registers{
		Every: 700 * time.Microsecond, Jitter: 200 * time.Microsecond, Unit: 61.03515625,
	})
	return drive
}

// skew makes the counter show what it had counted 2 s before.
func skew(l *simulator) func(time.Duration) {
	drive := effectless(l)
	l.machine.SetRegisters(hostsim.Registers{Every: time.Microsecond, Unit: 1, Late: 2 * time.Second})
	l.since = func() { l.machine.Step(2 * time.Second) }
	return drive
}
