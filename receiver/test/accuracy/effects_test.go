// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func machineWith(t *testing.T, effect string) *simulator {
	return build(t, t.TempDir(), simScenarioOf(t, effect), "")
}

// until lets time pass. It returns the true power of the package at rest and above rest, and its
// power by the counter, in W.
func (l *simulator) until(end time.Duration) (rest, above, shown float64) {
	s, began := l.machine.Sockets[0], l.at
	idled, energy, reads := s.Idled.Package, s.Energy.Package, s.Package.Reads()
	l.run(end-began, nil)
	watts := func(energy float64) float64 { return energy / 1e6 / (end - began).Seconds() }
	rest = watts(s.Idled.Package - idled)
	return rest, watts(s.Energy.Package-energy) - rest, watts(float64(s.Package.Reads() - reads))
}

func TestStaticPowerDriftsAndStepsAsMeasured(t *testing.T) {
	l := machineWith(t, "drift")
	var watts []float64
	for range 48 {
		rest, _, _ := l.until(l.at + time.Millisecond)
		watts = append(watts, rest)
		l.machine.Step(30 * time.Minute)
	}
	var squares float64
	for i := range watts[1:] {
		change := watts[i+1] - watts[i]
		squares += change * change
	}
	assert.InDelta(t, 0.001*30, math.Sqrt(squares/47), 0.005, "in half an hour")
	l = machineWith(t, "drift")
	l.since()
	rest, _, _ := l.until(time.Millisecond)
	assert.Greater(t, math.Abs(rest-30), 0.1, "a day later")

	l = machineWith(t, "step")
	before, _, _ := l.until(time.Second)
	l.since()
	after, _, _ := l.until(2 * time.Second)
	assert.InDelta(t, 2.3, after-before, 1e-6)
}

func TestStaticPowerIsHigherAfterLoad(t *testing.T) {
	l := machineWith(t, "heat")
	_, _, _ = l.until(2 * time.Minute)
	l.each(func(time.Duration) { l.workloads[2].demand(0) })
	hot, _, _ := l.until(l.at + time.Second)
	assert.InDelta(t, 30+0.025*60, hot, 0.1, "60 W on average")
	_, _, _ = l.until(l.at + 44*time.Second)
	cooler, light, _ := l.until(l.at + time.Second)
	assert.Less(t, cooler-30-0.025*light, 0.15*(hot-30), "after 45 s")
}

func TestSpinningDrawsAQuarterOfThePowerOfWork(t *testing.T) {
	l := machineWith(t, "spinning at barriers")
	solver := l.workloads[0]
	power := func(from time.Duration) float64 {
		l.until(from)
		before := l.truth(solver).Package
		l.until(from + time.Second)
		return l.truth(solver).Package - before
	}
	assert.InEpsilon(t, 10./39, power(5*time.Second)/power(14*time.Second), 1e-6, "at the same CPU time")
}

func TestCounterNoiseIsAsMeasured(t *testing.T) {
	l := machineWith(t, "counter noise")
	l.until(3 * time.Second)
	var squares float64
	for range 100 {
		rest, above, shown := l.until(l.at + 100*time.Millisecond)
		noise := shown/(rest+above) - 1
		squares += noise * noise / 100
	}
	assert.InDelta(t, 0.003, math.Sqrt(squares), 0.0005)
}

func TestSkewShowsThePowerOfTwoSecondsAgo(t *testing.T) {
	l := machineWith(t, "skew")
	l.until(2 * time.Second)
	before, light, _ := l.until(2437 * time.Millisecond)
	rest, above, _ := l.until(4 * time.Second)
	assert.InDelta(t, 101, rest+above, 1e-6)
	_, _, shown := l.until(4437 * time.Millisecond)
	assert.InDelta(t, before+light, shown, 1e-3)
	_, _, shown = l.until(5 * time.Second)
	assert.InDelta(t, 101, shown, 1e-3)
}
