// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// effectRun is a machine with an effect that has run for a time.
type effectRun struct {
	l     *simulator
	drive func(time.Duration)
	at    time.Duration
}

func effectRunOf(t *testing.T, build func(*simulator) func(time.Duration)) *effectRun {
	l := &simulator{tb: t, root: t.TempDir()}
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
