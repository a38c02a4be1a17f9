// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// simEffects are one machine, without and with each effect that measurements of real machines show. dev/simulation.md
// has the measured figures and their sources.
var simEffects = []simScenario{
	{"none", "", effectless},
	{"drift", "", drift},
	{"step", "", step},
	{"heat", "", heat},
	{"turbo budget", "", turboBudget},
	{"spinning at barriers", "", spinning},
	{"counter noise", "", counterNoise},
	{"skew", "", skew},
}

// effectHorizon is longer than the time for which the turbo budget lasts, and several time constants of the
// temperature.
const effectHorizon = 2 * time.Minute

// effectSettings are the columns of the table of effects.
var effectSettings = []simSetting{
	simSettings[1], byDefault(cpu.KindBPF), byDefault(cpu.KindProcfs),
	splitting(config.StaticFixed, 0), splitting(config.StaticFixed, time.Second), splitting(config.StaticFixed, 100*time.Millisecond),
}

// effectResults are the measured accuracies by effect and setting.
type effectResults [][]accuracy

func measureEffects(t *testing.T) effectResults {
	r := make(effectResults, len(simEffects))
	t.Run("effects", func(t *testing.T) {
		for i, sc := range simEffects {
			r[i] = make([]accuracy, len(effectSettings))
			for k, setting := range effectSettings {
				t.Run(sc.name+"/"+setting.name, func(t *testing.T) {
					t.Parallel()
					r[i][k] = measure(t, sc, setting, effectHorizon)
				})
			}
		}
	})
	return r
}

// effectsTitle is that of the table of effects.
const effectsTitle = "Effects of real machines"

func (r effectResults) table() string {
	var b strings.Builder
	b.WriteString("\n### " + effectsTitle + "\n\n" +
		"One socket of 8 CPUs, 30 W at rest and 101 W at full load, in proportion, for two minutes. The process\n" +
		"`solver` uses 2 CPUs and the container `web` 0.5; the container `batch` uses 5.5 CPUs for all but 2.4 s of\n" +
		"every 13 s. Each row adds one [effect](simulation.md#effects-of-real-machines). Each cell shows *active* and\n" +
		"*misattributed*.\n\n" + tableHead("effect", effectSettings))
	for i, sc := range simEffects {
		fmt.Fprintf(&b, "| %s |", sc.name)
		for _, a := range r[i] {
			fmt.Fprintf(&b, " %s; %s |", signed(a.active), percent(a.misattributed))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// headline returns the rows of docs/accuracy.md: the worst of the effects under the settings of its columns, which are
// the first ones.
func (r effectResults) headline() string {
	const figure = "| energy attributed to the wrong workload, worst of %d effects of real machines |"
	misattributed := fmt.Sprintf(figure, len(simEffects)-1)
	active := "| error of the node's active energy, worst of them |"
	for k := range effectSettings[:3] {
		var wrong, errors summary
		for i, sc := range simEffects {
			wrong.add(sc.name, r[i][k].misattributed)
			errors.add(sc.name, r[i][k].active)
		}
		misattributed += " " + wrong.largest(percent) + " |"
		active += " " + errors.largest(signed) + " |"
	}
	return misattributed + "\n" + active + "\n"
}

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
