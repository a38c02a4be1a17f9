// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

// coreSecond is one second of a machine with 8 cores of two threads: for how long cores had one busy thread and two, in
// seconds, and the package's power in W.
type coreSecond struct{ one, two, power float64 }

// watchCores runs a machine with a power curve for 20 minutes under a load that is another one each
// second. Two busy threads draw siblings times one. Of five tasks, pinned run on a CPU that is
// drawn by chance each second, and the others where the scheduler puts them: on an idle core if
// there is one. Power is measured to 1 %.
func watchCores(t *testing.T, c simCurve, siblings float64, pinned int) (seen []coreSecond) {
	const cores, count, minutes = 8, 24, 20
	r := rand.New(rand.NewPCG(uint64(c.threads), 7))
	s := &hostsim.Socket{CPUs: 2 * cores, Threads: 2, Siblings: siblings, Idle: c.watts[0].Watts, Curve: c.watts}
	m := hostsim.NewMachine(treeDir(t), s)
	tasks := make([]*hostsim.Task, count)
	for i := range tasks {
		tasks[i] = m.Init().Spawn()
	}
	busy := func(cpu int) float64 {
		ticks := m.Host.EachCPU[cpu]
		return float64(ticks.User+ticks.System) / 100
	}
	m.Show()
	for range minutes * 60 {
		load := 2 * cores * r.Float64()
		for i, task := range tasks {
			task.Demand = min(1, load/count*(0.3+1.4*r.Float64()))
			task.Pin(-1)
			if i%5 < pinned {
				task.Pin(r.IntN(2 * cores))
			}
		}
		var before [2 * cores]float64
		for cpu := range before {
			before[cpu] = busy(cpu)
		}
		energy := s.Energy.Package
		m.Step(time.Second)
		m.Show()
		now := coreSecond{power: (s.Energy.Package - energy) / 1e6 * (1 + 0.01*r.NormFloat64())}
		for core := range cores {
			a, b := busy(core)-before[core], busy(core+cores)-before[core+cores]
			now.one += a + b - 2*a*b
			now.two += a * b
		}
		seen = append(seen, now)
	}
	return seen
}

// estimateLine returns the ratio of the power of two busy threads to that of one under which a line fits best.
func estimateLine(t *testing.T, seen []coreSecond) float64 {
	beta, _ := fit(t, seen, func(s coreSecond) []float64 { return []float64{1, s.one, s.two} })
	return beta[2] / beta[1]
}

// estimateCubic returns the ratio under which a polynomial of the third degree fits best.
func estimateCubic(t *testing.T, seen []coreSecond) (best float64) {
	least := math.Inf(1)
	for ratio := 0.8; ratio < 2.6; ratio += 0.02 {
		if _, squares := fit(t, seen, func(s coreSecond) []float64 {
			x := (s.one + ratio*s.two) / 8
			return []float64{1, x, x * x, x * x * x}
		}); squares < least {
			best, least = ratio, squares
		}
	}
	return best
}

// fit returns the factors of the terms of power with the least sum of squares, and that sum.
func fit(t *testing.T, seen []coreSecond, terms func(coreSecond) []float64) (factors []float64, squares float64) {
	n := len(terms(coreSecond{}))
	rows := make([][]float64, n) // the normal equations
	for i := range rows {
		rows[i] = make([]float64, n+1)
	}
	for _, s := range seen {
		x := terms(s)
		for i := range rows {
			for j := range x {
				rows[i][j] += x[i] * x[j]
			}
			rows[i][n] += x[i] * s.power
		}
	}
	for i := range rows {
		require.Greater(t, rows[i][i], 1e-9, "the terms are independent")
		for k := range rows {
			if k == i {
				continue
			}
			times := rows[k][i] / rows[i][i]
			for j := range rows[k] {
				rows[k][j] -= times * rows[i][j]
			}
		}
	}
	for i := range rows {
		factors = append(factors, rows[i][n]/rows[i][i])
	}
	for _, s := range seen {
		off := s.power
		for i, x := range terms(s) {
			off -= factors[i] * x
		}
		squares += off * off
	}
	return factors, squares
}

// The scheduler fills idle cores first, so that cores with two busy threads and a high load are the
// same thing: a power curve that rises less at high load looks like threads that share. The two can
// be distinguished only if threads are placed on CPUs at random. docs/attribution.md has the
// figures.
func TestWhatTwoBusyThreadsDrawIsNotLearnedFromPower(t *testing.T) {
	for _, c := range []struct {
		pinned  int // of five tasks
		truth   float64
		learned bool // by a cubic, to 15 %
	}{{5, 1.2, true}, {5, 2, true}, {0, 1.2, false}, {0, 2, false}, {1, 1.2, false}, {1, 2, false}} {
		var lines, cubics []float64
		for _, curve := range simCurves(t) {
			seen := watchCores(t, curve, c.truth, c.pinned)
			lines = append(lines, estimateLine(t, seen))
			cubics = append(cubics, estimateCubic(t, seen))
		}
		off := func(estimate float64) bool { return math.Abs(estimate-c.truth) > 0.15*c.truth }
		t.Logf("%d of 5 tasks on CPUs by chance, truth %g: line %.2f, cubic %.2f", c.pinned, c.truth, lines, cubics)
		assert.True(t, slices.ContainsFunc(lines, off), "a line: %d of five tasks, truth %g: %g", c.pinned, c.truth, lines)
		assert.Equal(t, !c.learned, slices.ContainsFunc(cubics, off), "a cubic: %d of five tasks, truth %g: %g", c.pinned, c.truth, cubics)
	}
}
