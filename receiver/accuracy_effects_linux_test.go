// SPDX-License-Identifier: Apache-2.0

//go:build accuracy && (amd64 || arm64)

package energyreceiver

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// labEffects are one machine, without and with each effect that measurements of real machines show. dev/simulation.md
// has the measured figures and their sources.
var labEffects = []labScenario{
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
var effectSettings = []labSetting{
	labSettings[1], byDefault(cpu.KindBPF), byDefault(cpu.KindProcfs),
	splitting(config.StaticFixed, 0), splitting(config.StaticFixed, time.Second), splitting(config.StaticFixed, 100*time.Millisecond),
}

// effectResults are the measured accuracies by effect and setting.
type effectResults [][]accuracy

func measureEffects(t *testing.T) effectResults {
	r := make(effectResults, len(labEffects))
	t.Run("effects", func(t *testing.T) {
		for i, sc := range labEffects {
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
		"*misplaced*.\n\n| effect |")
	for _, setting := range effectSettings {
		fmt.Fprintf(&b, " %s |", setting.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(effectSettings)) + "\n")
	for i, sc := range labEffects {
		fmt.Fprintf(&b, "| %s |", sc.name)
		for _, a := range r[i] {
			fmt.Fprintf(&b, " %s; %s |", signed(a.active), percent(a.misplaced))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// headline returns the rows of docs/accuracy.md: the worst of the effects under the settings of its columns, which are
// the first ones.
func (r effectResults) headline() string {
	const figure = "| energy attributed to the wrong workload, worst of %d effects of real machines |"
	misplaced := fmt.Sprintf(figure, len(labEffects)-1)
	active := "| error of the node's active energy, worst of them |"
	for k := range effectSettings[:3] {
		var wrong, errors summary
		for i, sc := range labEffects {
			wrong.add(sc.name, r[i][k].misplaced)
			errors.add(sc.name, r[i][k].active)
		}
		misplaced += " " + wrong.largest(percent) + " |"
		active += " " + errors.largest(signed) + " |"
	}
	return misplaced + "\n" + active + "\n"
}

// effectless builds a machine that has 30 W at rest and 101 W at full load, and its workloads.
func effectless(l *lab) func(time.Duration) {
	l.on(straight(8, 30, 101))
	l.process("solver", 0, 2)
	l.container("web", 0, 0.5)
	batch := l.container("batch", 0, 0)
	return func(at time.Duration) { batch.demand(cpusIf(5.5, at%(13*time.Second) >= 2437*time.Millisecond)) }
}

// drift makes the power at rest walk by 0.1 % in each half hour, up or down. The workloads run a day after training has
// begun.
func drift(l *lab) func(time.Duration) {
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
func step(l *lab) func(time.Duration) {
	drive, s := effectless(l), l.machine.Sockets[0]
	l.since = func() { s.Drift = func(time.Duration) float64 { return 2.3 } }
	return drive
}

// heat adds leakage of 2.5 % of the power above rest.
func heat(l *lab) func(time.Duration) {
	drive := effectless(l)
	l.machine.Sockets[0].Leakage = &hostsim.Leakage{Share: 0.025, Constant: 20 * time.Second}
	return drive
}

// turboBudget lets the socket draw 101 W until the average of 28 s, the usual time window of RAPL's PL1, reaches 80 W.
func turboBudget(l *lab) func(time.Duration) {
	drive := effectless(l)
	l.machine.Sockets[0].Turbo = &hostsim.Turbo{One: 1, All: 1, Limit: 80, Window: 28 * time.Second}
	return drive
}

// spinning makes the solver wait for its threads at barriers while others run, by spinning: 10 W in place of 39 W.
func spinning(l *lab) func(time.Duration) {
	drive, solver, batch := effectless(l), l.workloads[0].tasks[0], l.workloads[2].tasks[0]
	return func(at time.Duration) {
		drive(at)
		solver.Intensity = 1
		if batch.Demand > 0 {
			solver.Intensity = 10. / 39
		}
	}
}

// counterNoise makes the counter move every 0.5 to 0.9 ms, so that the energy of 100 ms is off by 0.3 %.
func counterNoise(l *lab) func(time.Duration) {
	drive := effectless(l)
	l.machine.SetRegisters(hostsim.Registers{
		Every: 700 * time.Microsecond, Jitter: 200 * time.Microsecond, Unit: 61.03515625,
	})
	return drive
}

// skew makes the counter show what it had counted 2 s before.
func skew(l *lab) func(time.Duration) {
	drive := effectless(l)
	l.machine.SetRegisters(hostsim.Registers{Every: time.Microsecond, Unit: 1, Late: 2 * time.Second})
	l.since = func() { l.machine.Step(2 * time.Second) }
	return drive
}

// effectRun is a machine with an effect that has run for a time.
type effectRun struct {
	l     *lab
	drive func(time.Duration)
	at    time.Duration
}

func effectRunOf(t *testing.T, build func(*lab) func(time.Duration)) *effectRun {
	l := &lab{tb: t, root: t.TempDir()}
	return &effectRun{l: l, drive: build(l)}
}

// until lets time pass. It returns the true power of the package at rest and above, and that by its counter, in W.
func (r *effectRun) until(end time.Duration) (rest, above, shown float64) {
	s, began := r.l.machine.Sockets[0], r.at
	idled, energy, reads := s.Idled.Package, s.Energy.Package, s.Package.Reads()
	for ; r.at < end; r.at += time.Millisecond {
		r.drive(r.at)
		r.l.machine.Step(time.Millisecond)
	}
	watts := func(energy float64) float64 { return energy / 1e6 / (end - began).Seconds() }
	rest = watts(s.Idled.Package - idled)
	return rest, watts(s.Energy.Package-energy) - rest, watts(float64(s.Package.Reads() - reads))
}

func TestStaticPowerDriftsAndStepsAsMeasured(t *testing.T) {
	r := effectRunOf(t, drift)
	var watts []float64
	for range 48 {
		rest, _, _ := r.until(r.at + time.Millisecond)
		watts = append(watts, rest)
		r.l.machine.Step(30 * time.Minute)
	}
	var squares float64
	for i := range watts[1:] {
		change := watts[i+1] - watts[i]
		squares += change * change
	}
	assert.InDelta(t, 0.001*30, math.Sqrt(squares/47), 0.005, "in half an hour")
	r = effectRunOf(t, drift)
	r.l.since()
	rest, _, _ := r.until(time.Millisecond)
	assert.Greater(t, math.Abs(rest-30), 0.1, "a day later")

	r = effectRunOf(t, step)
	before, _, _ := r.until(time.Second)
	r.l.since()
	after, _, _ := r.until(2 * time.Second)
	assert.InDelta(t, 2.3, after-before, 1e-6)
}

func TestStaticPowerIsHigherAfterLoad(t *testing.T) {
	r := effectRunOf(t, heat)
	_, _, _ = r.until(2 * time.Minute)
	r.drive = func(time.Duration) { r.l.workloads[2].demand(0) }
	hot, _, _ := r.until(r.at + time.Second)
	assert.InDelta(t, 30+0.025*60, hot, 0.1, "60 W on average")
	_, _, _ = r.until(r.at + 44*time.Second)
	cooler, light, _ := r.until(r.at + time.Second)
	assert.Less(t, cooler-30-0.025*light, 0.15*(hot-30), "after 45 s")
}

func TestATurboBudgetLastsForTensOfSeconds(t *testing.T) {
	r := effectRunOf(t, turboBudget)
	budget := time.Duration(0)
	for burst := range 8 {
		r.until(time.Duration(burst)*13*time.Second + 11*time.Second)
		ran := r.l.machine.Ran()
		rest, above, _ := r.until(r.at + time.Second)
		assert.InDelta(t, 8, (r.l.machine.Ran() - ran).Seconds(), 1e-6, "CPUs are busy with and without turbo")
		switch watts := rest + above; {
		case watts > 100.9:
			budget = r.at
		case r.at > time.Minute:
			assert.InDelta(t, 80, watts, 0.1)
		}
	}
	assert.Greater(t, budget, 30*time.Second)
	assert.Less(t, budget, 60*time.Second)
}

func TestSpinningDrawsAQuarterOfThePowerOfWork(t *testing.T) {
	r := effectRunOf(t, spinning)
	solver := r.l.workloads[0]
	power := func(from time.Duration) float64 {
		r.until(from)
		before := solver.truth().pkg
		r.until(from + time.Second)
		return solver.truth().pkg - before
	}
	assert.InEpsilon(t, 10./39, power(5*time.Second)/power(14*time.Second), 1e-6, "at the same CPU time")
}

func TestCounterNoiseIsAsMeasured(t *testing.T) {
	r := effectRunOf(t, counterNoise)
	r.until(3 * time.Second)
	var squares float64
	for range 100 {
		rest, above, shown := r.until(r.at + 100*time.Millisecond)
		noise := shown/(rest+above) - 1
		squares += noise * noise / 100
	}
	assert.InDelta(t, 0.003, math.Sqrt(squares), 0.0005)
}

func TestSkewShowsThePowerOfTwoSecondsAgo(t *testing.T) {
	r := effectRunOf(t, skew)
	r.until(2 * time.Second)
	before, light, _ := r.until(2437 * time.Millisecond)
	rest, above, _ := r.until(4 * time.Second)
	assert.InDelta(t, 101, rest+above, 1e-6)
	_, _, shown := r.until(4437 * time.Millisecond)
	assert.InDelta(t, before+light, shown, 1e-3)
	_, _, shown = r.until(5 * time.Second)
	assert.InDelta(t, 101, shown, 1e-3)
}
