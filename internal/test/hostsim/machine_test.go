// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// rising returns a socket of 4 CPUs that draws 20 W at rest and 100 W at full load, and 3 W of
// DRAM.
func rising() *Socket {
	return &Socket{CPUs: 4, Idle: 20, DRAMIdle: 3, Curve: model.Curve{{Utilization: 0, Watts: 20}, {Utilization: 1, Watts: 100}}}
}

func machineOf(t testing.TB, sockets ...*Socket) *Machine { return NewMachine(t.TempDir(), sockets...) }

// task spawns a process on a socket that demands so many CPUs.
func task(m *Machine, socket int, demand float64) *Task {
	t := m.Init().Spawn()
	t.Socket, t.Demand = socket, demand
	return t
}

func TestPowerAtRestDriftsAndFollowsTheTemperature(t *testing.T) {
	s := rising()
	s.Drift = func(at time.Duration) float64 { return at.Hours() }
	s.Leakage = &Leakage{Share: 0.05, Constant: time.Minute}
	m := machineOf(t, s)
	load := task(m, 0, 4)
	rest := func() float64 {
		before := s.Idled.Package
		m.Step(time.Millisecond)
		return (s.Idled.Package - before) / 1e3
	}
	hours := m.Now().Hours()
	assert.InDelta(t, 20+hours, rest(), 1e-6)
	m.Step(time.Hour)
	assert.InDelta(t, 20+hours+1+4, rest(), 1e-4, "5 % of 80 W")
	assert.InDelta(t, s.Energy.Package, s.Idled.Package+load.Energy.Package, 1, "leakage is no task's")
	load.Demand = 0
	m.Step(time.Minute)
	assert.InDelta(t, 20+hours+1+1./60+4/math.E, rest(), 1e-3)
}

func TestPowerFollowsTheCurve(t *testing.T) {
	for load, watts := range map[float64]float64{0: 15, 0.25: 15 + 30, 0.5: 15 + 60, 0.75: 15 + 65, 1: 15 + 70} {
		s := &Socket{CPUs: 4, Idle: 15, Curve: model.Curve{{Utilization: 0, Watts: 10}, {Utilization: 0.5, Watts: 70}, {Utilization: 1, Watts: 80}}}
		m := machineOf(t, s)
		task(m, 0, 4*load)
		m.Step(10 * time.Second)
		assert.InDelta(t, watts, s.Energy.Package/10e6, 1e-9, "W at a load of %v", load)
	}
}

func TestPowerIsProportionalToTheCubeOfTheClockRate(t *testing.T) {
	s := rising()
	s.Frequency = func(u float64) float64 {
		if u == 0 {
			return 0.4
		}
		assert.InDelta(t, 0.5, u, 1e-12)
		return 0.5
	}
	m := machineOf(t, s, rising())
	a := task(m, 0, 2)
	m.Show()
	assert.Equal(t, map[int]int64{0: 1_200_000, 1: 1_200_000, 2: 1_200_000, 3: 1_200_000}, m.Host.Clocks,
		"at rest, and the other socket's CPUs have no entry")
	m.Step(time.Second)
	assert.InDelta(t, 40e6/8, a.Energy.Package, 1e-3)
	assert.Equal(t, 2*time.Second, a.Used, "CPU time does not")
	m.Show()
	assert.EqualValues(t, 1_500_000, m.Host.Clocks[3])
}

func TestACgroupIsChargedWithTheMemoryOfAllBelowIt(t *testing.T) {
	m := machineOf(t, rising())
	a, b := task(m, 0, 0), task(m, 0, 0)
	a.Move("/x/y")
	b.Move("/x")
	a.Resident, b.Resident = 5*page, 2*page
	require.NoError(t, m.Render())
	assert.Equal(t, map[string]uint64{"/x/y": 5 * page, "/x": 7 * page, "/": 7 * page}, m.Host.Memory)
	assert.EqualValues(t, 5, a.Shown().Resident)
	a.Exit()
	a.Reap(false)
	require.NoError(t, m.Render())
	assert.Equal(t, 2*page, m.Host.Memory["/x"])
	assert.Equal(t, "0\n", text(t, m.Host, "sys/fs/cgroup/x/y/memory.current"), "nothing is left")
	m.RemoveCgroup("/x/y")
	require.NoError(t, m.Render())
	assert.Equal(t, map[string]uint64{"/x": 2 * page, "/": 2 * page}, m.Host.Memory)
}

func TestPowerAboveTheNominalLoadIsExtrapolated(t *testing.T) {
	s := rising()
	m := machineOf(t, s)
	a := task(m, 0, 4)
	a.Intensity = 1.5
	m.Step(time.Second)
	assert.InDelta(t, 1.5*80e6, a.Energy.Package, 1e-3)
}

func TestTaskEnergyFollowsIntensityMemoryAndTime(t *testing.T) {
	m := machineOf(t, rising(), rising())
	base, intense, alone := task(m, 0, 1), task(m, 0, 1), task(m, 1, 0.5)
	intense.Intensity, intense.Memory = 2, 6
	m.Step(2 * time.Second)
	assert.InDelta(t, 2*base.Energy.Package, intense.Energy.Package, 1e-3)
	assert.InDelta(t, 2*20e6, base.Energy.Package, 1e-3, "a CPU of 4, for 2 s")
	assert.Zero(t, base.Energy.DRAM)
	assert.InDelta(t, 2*6e6, intense.Energy.DRAM, 1e-3)
	assert.InDelta(t, 20e6, alone.Energy.Package, 1e-3, "its own socket's")
	assert.InDelta(t, 2*(3e6+6e6), m.Sockets[0].Energy.DRAM, 1e-3)
}

func TestCPUTimesAddUpToElapsedTime(t *testing.T) {
	m := machineOf(t, rising())
	sum := func() CPU {
		m.Show()
		return m.Host.CPU
	}
	before := sum()
	m.Steal, m.IRQ, m.IOWait = 0.1, 0.05, 0.2
	a := task(m, 0, 1.6)
	m.Step(100 * time.Second)
	after := sum()
	ran := after.User + after.System - before.User - before.System
	assert.Equal(t, int64(a.Used/Tick), ran)
	assert.Equal(t, int64(16_000), ran)
	assert.Equal(t, int64(4_000), after.Steal-before.Steal)
	assert.Equal(t, int64(2_000), after.IRQ-before.IRQ)
	assert.Equal(t, int64(8_000), after.IOWait-before.IOWait)
	assert.Equal(t, int64(10_000), after.Idle-before.Idle)
	m.Hidden = CPU{Idle: 500, User: 10}
	hidden := sum()
	assert.Equal(t, after.Idle-500, hidden.Idle, "an offline CPU's are not shown")
	assert.Equal(t, after.User-10, hidden.User)
	assert.InDelta(t, 1100, m.Now().Seconds(), 0)
}

func TestParentsGetTheTimesOfReapedChildren(t *testing.T) {
	m := machineOf(t, rising())
	parent := task(m, 0, 0)
	child := func() *Task {
		c := parent.Spawn()
		c.Demand = 1
		m.Step(time.Second)
		c.Exit()
		return c
	}
	child().Reap(true)
	assert.Zero(t, parent.Waited, "it ignored its end")
	zombie := child()
	m.Step(time.Second)
	assert.Equal(t, time.Second, zombie.Used, "a zombie runs no more")
	assert.Same(t, zombie, m.Find(zombie.PID))
	zombie.Reap(false)
	assert.Equal(t, time.Second, parent.Waited)
	assert.Nil(t, m.Find(zombie.PID))
	m.Show()
	assert.Equal(t, int64(100), m.Host.Processes[parent.PID].CUser+m.Host.Processes[parent.PID].CSystem)
	parent.Exit()
	parent.Reap(false)
	assert.Equal(t, time.Second, m.Init().Waited, "with those of its own")
}

func TestOrphansAreAdoptedByInit(t *testing.T) {
	m := machineOf(t, rising())
	parent := task(m, 0, 0)
	child := parent.Spawn()
	parent.Exit()
	assert.Equal(t, 1, child.Parent)
	assert.True(t, child.Adopted)
	assert.Equal(t, 1, m.Host.Processes[child.PID].Parent)
}

func TestChildrenInheritCgroupAndProgram(t *testing.T) {
	m := machineOf(t, rising(), rising())
	parent := task(m, 1, 1)
	parent.Move("/a.slice/b.scope")
	parent.Exec("/usr/bin/a-program-with-a-long-name", "x", "y")
	m.Step(1500 * time.Millisecond)
	child := parent.Spawn()
	assert.Equal(t, "/a.slice/b.scope", child.Cgroup)
	assert.Equal(t, 1, child.Socket)
	assert.Zero(t, child.Demand)
	assert.Equal(t, m.Now(), child.Born)
	m.Show()
	p := m.Host.Processes[child.PID]
	assert.Equal(t, "a-program-with-", p.Comm, "15 bytes")
	assert.Equal(t, "/usr/bin/a-program-with-a-long-name", p.Exe)
	assert.Equal(t, int64(m.Now()/Tick), p.Start)
	assert.Zero(t, p.User+p.System)
	assert.Equal(t, "0::/a.slice/b.scope", p.Cgroup)
}

func TestCgroupsCountTheTimeOfAllBelowThem(t *testing.T) {
	m := machineOf(t, rising())
	a := task(m, 0, 1)
	a.Move("/a/b")
	m.Step(time.Second)
	a.Move("/a/c")
	m.Step(2 * time.Second)
	m.Show()
	assert.Equal(t, map[string]time.Duration{
		"/": 3*time.Second + time.Microsecond, "/init.scope": time.Microsecond, // it created a process
		"/a": 3 * time.Second, "/a/b": time.Second, "/a/c": 2 * time.Second,
	}, m.Host.Cgroups)
	m.RemoveCgroup("/a/c")
	m.RemoveCgroup("/a/b")
	m.Show()
	assert.Contains(t, m.Host.Cgroups, "/a/c", "one with tasks stays")
	assert.NotContains(t, m.Host.Cgroups, "/a/b")
}

func TestCountersWrap(t *testing.T) {
	s := rising()
	m := machineOf(t, s)
	s.Package.Max = 50e6
	m.Step(3 * time.Second) // 60 J
	assert.Equal(t, uint64(10e6), s.Package.Energy)
	assert.InDelta(t, 60e6, s.Energy.Package, 1e-3)
}

func TestNoPartOfANanosecondIsLost(t *testing.T) {
	m := machineOf(t, rising())
	a := task(m, 0, 0.3)
	for range 1000 {
		m.Step(1)
	}
	assert.InDelta(t, 300, float64(a.Used), 1)
}

func TestThePlatformZoneCountsEverything(t *testing.T) {
	m := machineOf(t, rising(), rising())
	m.AddPlatform(12)
	task(m, 0, 2).Memory = 1
	m.Step(10 * time.Second)
	assert.Equal(t, uint64(10e6*(12+2*23+40+2)), m.Host.Zones["intel-rapl:2"].Energy)
}

func TestProcessIDsAreUsedAgain(t *testing.T) {
	m := machineOf(t, rising())
	m.LimitPIDs(3)
	a, b := task(m, 0, 0), task(m, 0, 0)
	assert.Equal(t, 2, a.PID)
	assert.Equal(t, 3, b.PID)
	assert.Nil(t, m.Init().Spawn(), "none is free")
	a.Exit()
	assert.Nil(t, m.Init().Spawn(), "nor a zombie's")
	a.Reap(false)
	assert.Equal(t, 2, m.Init().Spawn().PID)
}

func TestAMachineRendersItsState(t *testing.T) {
	m := machineOf(t, rising())
	a := task(m, 0, 1)
	a.Move("/a")
	m.Step(4 * time.Second)
	require.NoError(t, m.Render())
	m.Step(4 * time.Second)
	require.NoError(t, m.Render())
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(m.Host.Root(), name))
		require.NoError(t, err)
		return string(b)
	}
	assert.Equal(t, "320000000\n", read("sys/class/powercap/intel-rapl:0/energy_uj"), "8 s of 40 W")
	assert.Equal(t, "120000000\n", read("sys/class/powercap/intel-rapl:0:0/energy_uj"), "8 s of 15 W of cores")
	assert.Equal(t, "24000000\n", read("sys/class/powercap/intel-rapl:0:1/energy_uj"), "8 s of 3 W of memory")
	assert.Equal(t, "core\n", read("sys/class/powercap/intel-rapl:0:0/name"))
	stat := strings.Fields(read("proc/2/stat"))
	assert.Equal(t, []string{"600", "200"}, stat[13:15], "user and system ticks")
	assert.Contains(t, read("sys/fs/cgroup/a/cpu.stat"), "usage_usec 8000000\n")
	assert.True(t, strings.HasPrefix(read("proc/uptime"), "1008.00 "))
}
