// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide/dividetest"
)

func topologyOf(t testing.TB, root string) *divide.Topology {
	t.Helper()
	topology, err := divide.OpenTopology(root)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, topology.Close()) })
	return topology
}

// twoSockets returns a simulated machine of two sockets with so many CPUs each.
func twoSockets(t *testing.T, cpus int) *hostsim.Machine {
	m := hostsim.NewMachine(t.TempDir(), &hostsim.Socket{CPUs: cpus}, &hostsim.Socket{CPUs: cpus})
	require.NoError(t, m.Render())
	return m
}

// statClockOf returns the clock of a machine, whose packages it divides.
func statClockOf(t testing.TB, root string) *StatClock {
	clock := NewStatClock(root)
	t.Cleanup(func() { assert.NoError(t, clock.Close()) })
	clock.divide(topologyOf(t, root))
	return clock
}

// run adds a process to a socket.
func run(m *hostsim.Machine, socket int, demand float64) *hostsim.Task {
	task := m.Init().Spawn()
	task.Socket, task.Demand = socket, demand
	return task
}

func TestDomainsHaveTheCPUTimeOfTheirOwnCPUs(t *testing.T) {
	m := twoSockets(t, 2)
	run(m, 0, 1.5)
	run(m, 1, 0.25)
	clock := statClockOf(t, m.Host.Root())
	times, err := clock.Read(time.Time{})
	require.NoError(t, err)
	assert.Equal(t, []Node{{}, {}}, times.Domains, "the baseline")
	m.Step(10 * time.Second)
	require.NoError(t, m.Render())
	times, err = clock.Read(time.Time{})
	require.NoError(t, err)
	domains := times.Domains
	for i, busy := range []units.CPUTime{15 * units.Second, 2500 * ms} {
		assert.InDelta(t, float64(busy), float64(domains[i].Busy), float64(10*Tick), "domain %d", i)
		assert.InDelta(t, float64(20*units.Second), float64(domains[i].Total), float64(10*Tick), "domain %d", i)
	}
	assert.InDelta(t, float64(times.Node.Total), float64(domains[0].Total+domains[1].Total), float64(20*Tick))
}

func TestTimeOfAnOfflineCPUIsKept(t *testing.T) {
	m := twoSockets(t, 2)
	h := m.Host
	h.EachCPU = []hostsim.CPU{{User: 100}, {User: 200}, {User: 300}, {User: 400}}
	clock := statClockOf(t, h.Root())
	read := func(cpus int) (busy []units.CPUTime) {
		t.Helper()
		h.CPUs = cpus
		require.NoError(t, h.Render())
		times, err := clock.Read(time.Time{})
		require.NoError(t, err)
		for _, d := range times.Domains {
			busy = append(busy, d.Busy/Tick)
		}
		return busy
	}
	read(4)
	h.EachCPU[3].User += 10
	h.EachCPU[0].User += 5
	assert.Equal(t, []units.CPUTime{5, 0}, read(3))
	assert.Equal(t, []units.CPUTime{5, 10}, read(4), "late, not lost")
	h.EachCPU[3].User = 3
	assert.Equal(t, []units.CPUTime{5, 10}, read(4), "never back")
}

func TestATruncatedCPULineIsAnErrorAndChangesNothing(t *testing.T) {
	m := twoSockets(t, 1)
	clock := statClockOf(t, m.Host.Root())
	text := "cpu  10 0 0 10\ncpu0 5 0 0 5\ncpu1 5 0 0 5\nbtime 1\n"
	write := func(text string) { dividetest.Put(t, m.Host.Root(), map[string]string{"proc/stat": text}) }
	write(text)
	_, err := clock.Read(time.Time{})
	require.NoError(t, err)
	later := strings.NewReplacer("10", "30", "5", "15").Replace(text)
	for _, bad := range []string{later[:len("cpu  30 0 0 30\ncpu0 15 0 0 15\ncpu1 1")], strings.Replace(later, "cpu1", "cpux", 1), strings.Replace(later, "cpu1 15", "cpu1 -15", 1)} {
		write(bad)
		times, err := clock.Read(time.Time{})
		require.Error(t, err, bad)
		assert.Equal(t, Times{Domains: []Node{{}, {}}}, times)
	}
	write(later)
	times, err := clock.Read(time.Time{})
	require.NoError(t, err)
	half := Node{Busy: 10 * Tick, Total: 20 * Tick, Process: 10 * Tick}
	assert.Equal(t, Times{Node: half.plus(half), Domains: []Node{half, half}}, times)
}

// statOf is a /proc/stat with a line for each CPU, which was busy for so many ticks.
func statOf(busy ...int) string {
	var b strings.Builder
	b.WriteString("cpu  1 0 0 0 0 0 0 0 0 0\n")
	for cpu, ticks := range busy {
		if ticks >= 0 {
			fmt.Fprintf(&b, "cpu%d %d 0 %d 1000 5 0 0 77 0 0\n", cpu, ticks/2, ticks-ticks/2)
		}
	}
	b.WriteString("intr 12345\nctxt 1\n")
	return b.String()
}

func TestTheBusyTimeOfEachCPUIsCountedIfAskedFor(t *testing.T) {
	root := t.TempDir()
	clock := NewStatClock(root)
	t.Cleanup(func() { _ = clock.Close() })
	read := func(busy ...int) []units.CPUTime {
		dividetest.Put(t, root, map[string]string{"proc/stat": statOf(busy...)})
		times, err := clock.Read(time.Time{})
		require.NoError(t, err)
		return times.CPUs
	}
	assert.Nil(t, read(5, 5))
	clock.perCPU = true
	assert.Equal(t, []units.CPUTime{0, 0}, read(10, 20))
	assert.Equal(t, []units.CPUTime{10 * Tick, 0}, read(20, 20))
	assert.Equal(t, []units.CPUTime{10 * Tick, 0}, read(20, -1), "offline")
	assert.Equal(t, []units.CPUTime{11 * Tick, 5 * Tick}, read(21, 25))
}

// The first buffer has room for some hundred lines, and the text may be cut within any of them.
func TestAllCPUsAreCountedHoweverManyThereAre(t *testing.T) {
	for _, cpus := range []int{100, 113, 120, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 1024} {
		root := t.TempDir()
		clock := NewStatClock(root)
		t.Cleanup(func() { _ = clock.Close() })
		clock.perCPU = true
		dividetest.Put(t, root, map[string]string{"proc/stat": statOf(make([]int, cpus)...) + strings.Repeat("x", 1<<16)})
		times, err := clock.Read(time.Time{})
		require.NoError(t, err)
		assert.Len(t, times.CPUs, cpus)
		clock.perCPU = false
		require.NoError(t, clock.read(), "the first line suffices")
	}
}
