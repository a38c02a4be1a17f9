// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// paired returns a socket of 2 cores with 2 threads each. Two busy siblings draw 1.2 times the
// power of one. A core with two busy threads draws 40 W of the socket's 80 W.
func paired() *Socket {
	return &Socket{
		CPUs: 4, Threads: 2, Siblings: 1.2, Idle: 20, DRAMIdle: 3,
		Curve: model.Curve{{Utilization: 0, Watts: 20}, {Utilization: 1, Watts: 100}},
	}
}

func pinned(m *Machine, socket, cpu int, demand float64) *Task {
	t := task(m, socket, demand)
	t.Pin(cpu)
	return t
}

const (
	wholeCore = 40e6       // µJ in a second, of both threads
	oneThread = 40e6 / 1.2 // while the other is at rest
)

func TestTwoBusySiblingsDrawThePowerOfSiblings(t *testing.T) {
	type on struct {
		cpu    int
		demand float64
		energy float64 // µJ in a second
	}
	for name, tasks := range map[string][]on{
		"one thread":                    {{0, 1, oneThread}},
		"two cores":                     {{0, 1, oneThread}, {1, 1, oneThread}},
		"a pair":                        {{0, 1, wholeCore / 2}, {2, 1, wholeCore / 2}},
		"a pair and a thread alone":     {{0, 1, wholeCore / 2}, {2, 1, wholeCore / 2}, {3, 1, oneThread}},
		"half of the time":              {{1, 0.5, oneThread / 2}},
		"siblings that overlap in part": {{0, 0.5, oneThread * 0.5 * (0.6 + 0.4*0.6)}, {2, 0.4, oneThread * 0.4 * (0.5 + 0.5*0.6)}},
		"two tasks on one thread":       {{0, 1, oneThread / 2}, {0, 1, oneThread / 2}},
		"everything":                    {{0, 1, 20e6}, {1, 1, 20e6}, {2, 1, 20e6}, {3, 1, 20e6}},
	} {
		m := machineOf(t, paired())
		var all []*Task
		for _, on := range tasks {
			all = append(all, pinned(m, 0, on.cpu, on.demand))
		}
		m.Step(time.Second)
		sum := 0.0
		for i, on := range tasks {
			assert.InDelta(t, on.energy, all[i].Energy.Package, 1, "%s: task %d", name, i)
			sum += on.energy
		}
		assert.InDelta(t, 20e6+sum, m.Sockets[0].Energy.Package, 1, name)
	}
}

func TestInterruptsKeepSiblingsBusy(t *testing.T) {
	m := machineOf(t, paired())
	m.IRQ = 0.25
	a := pinned(m, 0, 0, 0.5)
	m.Step(time.Second)
	// The weights of a CPU's sibling, without and with the task.
	alone, withTask := 0.75+0.25*0.6, 0.25+0.75*0.6
	assert.InDelta(t, oneThread*0.5*alone, a.Energy.Package, 1)
	assert.InDelta(t, oneThread*0.25*(3*alone+withTask), m.Sockets[0].Interrupts, 1)
	assert.InDelta(t, 20e6+a.Energy.Package+m.Sockets[0].Interrupts, m.Sockets[0].Energy.Package, 1)
}

func TestThreadsWithoutSharedPowerAreCores(t *testing.T) {
	alike := paired()
	alike.Siblings = 0
	m, cores := machineOf(t, alike), machineOf(t, rising())
	for _, m := range []*Machine{m, cores} {
		for cpu := range 4 {
			pinned(m, 0, cpu, 0.2*float64(cpu+1)).Intensity = float64(cpu + 1)
		}
		m.IRQ = 0.1
		m.Step(time.Second)
	}
	for i, task := range m.Tasks {
		assert.InDelta(t, cores.Tasks[i].Energy.Package, task.Energy.Package, 1e-3)
	}
	assert.InDelta(t, cores.Sockets[0].Energy.Package, m.Sockets[0].Energy.Package, 1e-3)
}

func TestTasksAreSpreadOverFreeCoresFirst(t *testing.T) {
	m := machineOf(t, paired())
	own := pinned(m, 0, 2, 1)
	a, b, c := task(m, 0, 1), task(m, 0, 0.5), task(m, 0, 0.3)
	m.Step(time.Second)
	assert.Equal(t, []Slice{{2, time.Second}}, own.Slices())
	assert.Equal(t, []Slice{{1, time.Second}}, a.Slices(), "the core without a pinned task")
	assert.Equal(t, []Slice{{0, 500 * time.Millisecond}}, b.Slices(), "first core with one busy thread")
	assert.Equal(t, []Slice{{3, 300 * time.Millisecond}}, c.Slices())
	m.Show()
	for task, cpu := range map[*Task]int{own: 2, a: 1, b: 0, c: 3} {
		assert.Equal(t, cpu, task.Shown().LastCPU)
	}

	m = machineOf(t, paired())
	many := task(m, 0, 2.5)
	m.Step(2 * time.Second)
	assert.Equal(t, []Slice{{0, 2 * time.Second}, {1, 2 * time.Second}, {2, time.Second}}, many.Slices(), "three threads")
}

func TestOverloadedCPUsAreSharedAmongPinnedTasksAndTheRest(t *testing.T) {
	m := machineOf(t, paired())
	m.Steal, m.IRQ = 0.25, 0.25
	a, b := pinned(m, 0, 0, 3), pinned(m, 0, 0, 1)
	c, d := task(m, 0, 4), task(m, 0, 1)
	m.Step(8 * time.Second)
	assert.Equal(t, 3*time.Second, a.Used)
	assert.Equal(t, time.Second, b.Used)
	assert.InDelta(t, 9.6, c.Used.Seconds(), 1e-8, "4 of 5 parts of 12 s")
	assert.InDelta(t, 2.4, d.Used.Seconds(), 1e-8)
}

func TestEnergyOfTasksInterruptsAndIdleIsTheCounters(t *testing.T) {
	for _, pins := range []bool{false, true} {
		bent := &Socket{
			CPUs: 8, Idle: 30, DRAMIdle: 2,
			Curve:     model.Curve{{Utilization: 0.02, Watts: 31}, {Utilization: 0.4, Watts: 90}, {Utilization: 0.9, Watts: 85}},
			Frequency: func(u float64) float64 { return 0.4 + 0.8*u },
		}
		if pins {
			bent.Threads, bent.Siblings = 2, 1.3
		}
		m := machineOf(t, rising(), bent, rising())
		m.AddPlatform(10)
		var all []*Task
		r := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			switch {
			case len(m.Tasks) < 12:
				task := task(m, r.IntN(3), 3*r.Float64())
				task.Intensity, task.Memory, task.MemorySocket = 0.5+r.Float64(), 5*r.Float64(), r.IntN(4)-1
				all = append(all, task)
			case r.IntN(3) == 0:
				task := m.Tasks[1+r.IntN(len(m.Tasks)-1)]
				task.Exit()
				task.Reap(false)
			case pins:
				task := m.Tasks[1+r.IntN(len(m.Tasks)-1)]
				task.Socket = r.IntN(3)
				task.Pin(r.IntN(8) - 4)
			}
			m.IRQ, m.Steal = 0.1*r.Float64(), 0.3*r.Float64()
			m.Step(time.Duration(r.IntN(100_000_000)))
		}
		var tasks, idle, sum Energies
		var used time.Duration
		for _, task := range all {
			tasks.Add(task.Energy)
			used += task.Used
			slices := time.Duration(0)
			for _, s := range task.Slices() {
				slices += s.Used
			}
			require.Equal(t, task.Used, slices)
		}
		assert.Equal(t, m.Ran(), used)
		for _, s := range m.Sockets {
			require.Equal(t, pins, s.cores != nil)
			assert.Positive(t, s.Interrupts)
			idle.Add(s.Idled)
			tasks.Package += s.Interrupts
			sum.Add(s.Energy)
			assert.InDelta(t, s.Energy.Package, float64(s.Package.Counted), 2, "the counter, in µJ")
			assert.InDelta(t, s.Energy.DRAM, float64(s.DRAM.Counted), 2)
			assert.InDelta(t, 0.75*(s.Energy.Package-s.Idled.Package), float64(s.Core.Counted), 2)
		}
		assert.InEpsilon(t, sum.Package, tasks.Package+idle.Package, 1e-9)
		assert.InEpsilon(t, sum.DRAM, tasks.DRAM+idle.DRAM, 1e-9)
	}
}

func TestMigrationDoesNotMoveEarlierEnergy(t *testing.T) {
	m := machineOf(t, rising(), rising())
	a := task(m, 0, 1)
	a.Memory = 6
	m.Step(time.Second)
	a.Socket = 1
	m.Step(2 * time.Second)
	a.MemorySocket = 0
	m.Step(4 * time.Second)
	above := func(i int) Energies {
		s := m.Sockets[i]
		return Energies{s.Energy.Package - s.Idled.Package, s.Energy.DRAM - s.Idled.DRAM}
	}
	assert.InDelta(t, 20e6, above(0).Package, 1)
	assert.InDelta(t, 6*20e6, above(1).Package, 1)
	assert.InDelta(t, 5*6e6, above(0).DRAM, 1)
	assert.InDelta(t, 2*6e6, above(1).DRAM, 1, "memory moves along unless it belongs to a socket")
	assert.InDelta(t, 7*20e6, a.Energy.Package, 1)
	assert.InDelta(t, 7*6e6, a.Energy.DRAM, 1)
	first := a.PID % 4
	assert.Equal(t, []Slice{{first, time.Second}, {4 + first, 6 * time.Second}}, a.Slices())
}

func TestEachCPUHasItsOwnTimesIfTasksArePinned(t *testing.T) {
	m := machineOf(t, rising())
	m.Step(10 * time.Second)
	m.Show()
	assert.Empty(t, m.Host.EachCPU)
	task := task(m, 0, 0.5)
	task.Pin(3)
	m.IRQ = 0.25
	m.Step(8 * time.Second)
	m.Show()
	require.Len(t, m.Host.EachCPU, 4)
	idle := int64(101_000)
	assert.Equal(t, CPU{Idle: idle + 600, IRQ: 200}, m.Host.EachCPU[0])
	assert.Equal(t, CPU{User: 300, System: 100, Idle: idle + 200, IRQ: 200}, m.Host.EachCPU[3])
	child := task.Spawn()
	child.Demand = 1
	m.Step(time.Second)
	assert.Equal(t, 3, child.Slices()[0].CPU, "children inherit the CPU")
	child.Pin(-1)
	m.Step(time.Second)
	assert.Equal(t, 0, child.Slices()[1].CPU)
}

func TestAMachineRendersItsTopology(t *testing.T) {
	m := machineOf(t, paired(), paired(), rising())
	a, b := task(m, 0, 0), task(m, 1, 0)
	a.Move("/x/y")
	b.Move("/x")
	a.Resident, b.Resident, a.MemorySocket = 5*page, 2*page, 2
	require.NoError(t, m.Render())
	cpu := func(name string) string { return text(t, m.Host, "sys/devices/system/cpu/"+name) }
	for name, want := range map[string]string{
		"cpu1/topology/thread_siblings_list": "1,3\n", "cpu3/topology/thread_siblings_list": "1,3\n",
		"cpu4/topology/core_cpus_list": "4,6\n", "cpu6/topology/core_cpus_list": "4,6\n",
		"cpu9/topology/thread_siblings_list": "9\n",
		"cpu1/topology/core_id":              "1\n", "cpu3/topology/core_id": "1\n", "cpu7/topology/core_id": "1\n", "cpu9/topology/core_id": "1\n",
		"cpu7/topology/physical_package_id": "1\n",
	} {
		assert.Equal(t, want, cpu(name), name)
	}
	assert.Equal(t, "0-2\n", text(t, m.Host, "sys/devices/system/node/online"))
	assert.Equal(t, "4-7\n", text(t, m.Host, "sys/devices/system/node/node1/cpulist"))
	assert.Contains(t, text(t, m.Host, "sys/fs/cgroup/x/memory.numa_stat"), "anon N0=0 N1=8192 N2=20480\nfile N0=0 N1=0 N2=0\n")
	assert.Contains(t, text(t, m.Host, "sys/fs/cgroup/x/y/memory.numa_stat"), "anon N0=0 N1=0 N2=20480\n")
	a.MemorySocket = 0
	require.NoError(t, m.Render())
	assert.Contains(t, text(t, m.Host, "sys/fs/cgroup/x/y/memory.numa_stat"), "anon N0=20480 N1=0 N2=0\n")

	m.Host.CPUs = 11 // the last is offline
	require.NoError(t, m.Render())
	assert.Equal(t, "8-10\n", text(t, m.Host, "sys/devices/system/node/node2/cpulist"))
}

func TestCPUListsHaveTheKernelsFormat(t *testing.T) {
	for want, numbers := range map[string][]int{
		"\n": nil, "0\n": {0}, "0-1\n": {0, 1}, "0,2\n": {0, 2}, "0-3,8,10-11\n": {0, 1, 2, 3, 8, 10, 11},
	} {
		assert.Equal(t, want, cpuList(numbers))
	}
}
