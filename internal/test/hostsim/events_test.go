// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// counting returns a machine of sockets with 10 CPUs, 10 W at rest and 110 W at full load, that
// counts events.
func counting(t *testing.T, sockets int, seed uint64) *Machine {
	var all []*Socket
	for range sockets {
		all = append(all, &Socket{CPUs: 10, Idle: 10, Curve: model.Curve{{Utilization: 0, Watts: 10}, {Utilization: 1, Watts: 110}}})
	}
	m := NewMachine(t.TempDir(), all...)
	m.PMU = &PMU{Seed: seed}
	return m
}

func running(m *Machine, exe string, demand, intensity, memory float64) *Task {
	t := m.Init().Spawn()
	t.Exec(exe)
	t.Demand, t.Intensity, t.Memory = demand, intensity, memory
	return t
}

// deviation returns the median of logarithms, as a number, and their standard deviation.
func deviation(logs []float64) (median, sd float64) {
	mean := 0.0
	for _, x := range logs {
		mean += x / float64(len(logs))
	}
	for _, x := range logs {
		sd += (x - mean) * (x - mean) / float64(len(logs))
	}
	return math.Exp(slices.Sorted(slices.Values(logs))[len(logs)/2]), math.Sqrt(sd)
}

func TestProgramsDifferInEventsAsMeasuredOnesDo(t *testing.T) {
	m := counting(t, 1, 1)
	r := rand.New(rand.NewPCG(1, 1))
	var tasks []*Task
	for i := range 2000 {
		tasks = append(tasks, running(m, fmt.Sprintf("/bin/%d", i), 0.1, math.Exp(0.21*r.NormFloat64()), 5))
	}
	m.Step(time.Second)
	var ipcs, intensities, joules []float64
	for _, task := range tasks {
		ipcs = append(ipcs, math.Log(task.Events.Instructions/task.Events.Cycles))
		intensities = append(intensities, math.Log(task.Intensity))
		joules = append(joules, math.Log(task.Energy.DRAM/1e6/task.Events.Misses))
	}
	median, sd := deviation(ipcs)
	assert.InDelta(t, 0.65, median, 0.03)
	assert.InDelta(t, 0.42, sd, 0.02)
	median, sd = deviation(joules)
	assert.InDelta(t, 46e-9, median, 2e-9, "at full load")
	assert.InDelta(t, 0.41, sd, 0.02)
	covariance := 0.0
	for i := range ipcs {
		covariance += (ipcs[i] - math.Log(0.65)) * intensities[i] / float64(len(ipcs))
	}
	assert.InDelta(t, 0.5, covariance/0.42/0.21, 0.05, "correlation of IPC and power")
}

func TestEventsFollowTheSeedAndTheProgram(t *testing.T) {
	events := func(seed uint64, exe string) Events {
		m := counting(t, 1, seed)
		task := running(m, exe, 2, 1, 3)
		m.Step(time.Second)
		assert.InDelta(t, 6e9, task.Events.Cycles, 1)
		return task.Events
	}
	first := events(1, "/bin/a")
	assert.Equal(t, first, events(1, "/bin/a"))
	assert.NotEqual(t, first, events(2, "/bin/a"))
	assert.NotEqual(t, first, events(1, "/bin/b"))
}

func TestAMissCostsMoreAtLowLoadAndAnEventMayChangeItsMeaning(t *testing.T) {
	m := counting(t, 1, 1)
	task := running(m, "/bin/a", 10, 1, 4)
	misses := func(demand float64) float64 {
		task.Demand = demand
		before, energy := task.Events.Misses, task.Energy.DRAM
		m.Step(time.Second)
		return (task.Events.Misses - before) / (task.Energy.DRAM - energy)
	}
	assert.InEpsilon(t, 5, misses(10)/misses(0.001), 0.01)
	once := misses(5)
	m.PMU.Scale = func(time.Duration) float64 { return 100 }
	assert.InEpsilon(t, 100, misses(5)/once, 1e-9)
}

func TestSpinningRetiresFewInstructionsAndThreadsShareACore(t *testing.T) {
	m := counting(t, 1, 1)
	task := running(m, "/bin/a", 1, 1, 0)
	ipc := func() float64 {
		before := task.Events
		m.Step(time.Second)
		return (task.Events.Instructions - before.Instructions) / (task.Events.Cycles - before.Cycles)
	}
	works := ipc()
	task.Intensity, task.IPC = 0.25, 0.3
	assert.InEpsilon(t, 0.075, ipc()/works, 1e-9)

	s := &Socket{CPUs: 2, Threads: 2, Siblings: 1.2, Curve: model.Curve{{Utilization: 0}, {Utilization: 1, Watts: 10}}}
	m = NewMachine(t.TempDir(), s)
	m.PMU = &PMU{}
	task = running(m, "/bin/a", 1, 1, 0)
	m.Step(time.Second)
	alone := task.Events.Instructions
	task.Demand = 2
	m.Step(time.Second)
	assert.InEpsilon(t, 1.24, task.Events.Instructions/alone-1, 1e-9, "both threads together")
}

func TestTheUncoreOfAnIdleSocketRisesWithABusyOne(t *testing.T) {
	m := counting(t, 2, 1)
	m.Uncore = 7
	m.Step(time.Second)
	assert.InDelta(t, 10e6, m.Sockets[1].Energy.Package, 1, "at rest")
	task := running(m, "/bin/a", 2, 1, 0)
	m.Step(time.Second)
	assert.InDelta(t, 27e6, m.Sockets[1].Energy.Package, 1)
	assert.InDelta(t, 47e6, m.Sockets[0].Energy.Package, 1)
	assert.InDelta(t, 34e6, task.Energy.Package, 1)
	assert.InDelta(t, 27e6, float64(m.Sockets[1].Package.Counted), 1)
}
