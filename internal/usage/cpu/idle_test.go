// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// watchIdle returns a simulated host whose processes are idle, except for an active one.
func watchIdle(t *testing.T) (g *gated, active, idle int) {
	g = watchGate(t)
	idle = int(g.fork(hostsim.Process{Parent: 1, Cgroup: "0::/slice/a"}))
	g.settle()
	g.ran(idleFrom)
	g.use(g.a, 2*time.Millisecond, "/slice/a")
	g.second()
	return g, g.a, idle
}

func TestClocksOfIdleProcessesAreNotReadWhileTheOthersExplainTheCPUTime(t *testing.T) {
	g, active, idle := watchIdle(t)
	for range idleFrom {
		g.use(active, time.Second, "/slice/a")
		g.second()
		assert.Equal(t, units.CPUTime(time.Second), g.used(int32(active)))
		assert.Zero(t, g.read[int32(idle)])
	}
}

func TestAnIdleProcessIsFoundInTheLastScanOfACollection(t *testing.T) {
	g, active, idle := watchIdle(t)
	g.use(idle, maxDebt, "/slice/a")
	g.use(active, time.Millisecond, "/slice/a")
	g.pass()
	g.partly()
	assert.Zero(t, g.used(int32(idle)))
	g.second()
	assert.Equal(t, units.CPUTime(maxDebt), g.used(int32(idle)))
	assert.Zero(t, g.read[int32(g.b)], "its cgroup stood still")
	g.use(idle, time.Microsecond, "/slice/a")
	g.second()
	assert.Equal(t, units.CPUTime(1000), g.used(int32(idle)), "it is not idle any more")
}

func TestAnIdleProcessIsFoundBeforeTheDebtExceedsTheBound(t *testing.T) {
	g, _, idle := watchIdle(t)
	for used := units.CPUTime(0); used == 0; used = g.used(int32(idle)) {
		require.LessOrEqual(t, g.Processes[idle].Fraction, maxDebt)
		g.use(idle, 3*time.Millisecond, "/slice/a")
		g.pass()
		g.partly()
	}
	assert.Equal(t, 12*ms, g.used(int32(idle)))
}

func TestReadingStopsWhenTheIdleProcessThatRanLastExplainsTheCPUTime(t *testing.T) {
	g, _, idle := watchIdle(t)
	g.clocks.gate.places[g.process(int32(idle)).Slot].ran++
	g.use(idle, 2*time.Millisecond, "/slice/a")
	other := int(g.fork(hostsim.Process{Parent: 1, Cgroup: "0::/slice/a"}))
	g.settle()
	g.ran(idleFrom + 1)
	g.clocks.gate.places[g.process(int32(other)).Slot].ran++
	g.use(other, 2*time.Millisecond, "/slice/a")
	g.second()
	assert.Equal(t, 2*ms, g.used(int32(other)))
	assert.Zero(t, g.read[int32(idle)])
}

func TestTheExitOfAnIdleProcessIsFoundByTheNumberOfTasks(t *testing.T) {
	g, _, idle := watchIdle(t)
	g.use(idle, time.Microsecond, "/slice/a") // so that the cgroup did not stand still
	delete(g.Processes, idle)
	g.second()
	g.ended(int32(idle))
}

func TestAChildOfAnIdleParentIsNotBilledToTheParent(t *testing.T) {
	g, active, _ := watchIdle(t)
	child := int(g.fork(hostsim.Process{Parent: active, Cgroup: "0::/slice/a", User: 300}))
	g.settle()
	g.ran(idleFrom)
	g.clocks.gate.places[g.process(int32(child)).Slot].ran = g.clocks.gate.number
	g.use(active, time.Microsecond, "/slice/a") // it waits for its child
	g.reap(child)
	g.CPU.User += 300
	g.second()
	g.ended(int32(child))
	assert.Zero(t, charged(&g.table, g.process(int32(active)).Slot))
	assert.Zero(t, g.read[int32(g.b)], "the debt is explained")
}

func TestMembersOfACgroupArePlacedByItsList(t *testing.T) {
	g := watchGate(t)
	var list strings.Builder
	last := int32(0)
	for range listedFrom + 2 {
		last = g.fork(hostsim.Process{Parent: 1, Cgroup: "0::/slice/c"})
		fmt.Fprintln(&list, last)
	}
	g.Cgroups["/slice/c"] = 0
	file := filepath.Join(g.Root(), "sys/fs/cgroup/slice/c/cgroup.procs")
	g.scan()
	require.NoError(t, os.WriteFile(file, []byte(list.String()), 0o600))
	defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if path == g.path(last, "cgroup") {
			return nil, syscall.EACCES
		}
		return got, err
	})()
	for range placedFrom/time.Second + 1 {
		g.pass()
		g.scan()
	}
	gate := &g.clocks.gate
	assert.Equal(t, "/slice/c", gate.groupOf(g.process(last)).Path())
	assert.Same(t, gate.groupOf(g.process(last)), gate.groupOf(g.process(last-1)))
	gate.reset()
	assert.Empty(t, gate.tree.Nodes())
}

func TestThreadsThatExitDoNotHideTheExitOfAnIdleProcess(t *testing.T) {
	g, active, idle := watchIdle(t)
	pool := int(g.fork(hostsim.Process{Parent: 1, Cgroup: "0::/slice/b", Threads: 6}))
	g.settle()
	g.ran(idleFrom)
	g.Processes[pool].Threads = 1
	delete(g.Processes, g.b) // an exit that is not found before all clocks are read
	g.use(pool, 100*time.Microsecond, "/slice/b")
	g.second()
	assert.EqualValues(t, 1, g.process(int32(pool)).Threads)
	assert.Zero(t, g.clocks.gate.excess)
	g.ran(idleFrom)
	g.use(active, time.Microsecond, "/slice/a")
	delete(g.Processes, idle)
	g.second()
	g.ended(int32(idle))
}

// The clocks of an active process on many CPUs explain CPU time that idle processes used.
func TestIdleProcessesMissAtMostTheBoundIfTheNodeUsesMoreWhileClocksAreRead(t *testing.T) {
	g, active, _ := watchIdle(t)
	idle := int(g.fork(hostsim.Process{Parent: 1, Cgroup: "0::/slice/c"}))
	g.Cgroups["/slice/c"] = 0
	g.settle()
	g.ran(idleFrom)
	ahead := time.Duration(0)
	g.before = func(pid int32) {
		if pid == int32(active) {
			g.use(active, ahead, "/slice/a")
			ahead = 0
			assert.NoError(t, g.Render())
		}
	}
	for i := range 50 {
		ahead = 300 * time.Millisecond
		if i%10 < 5 {
			ahead = maxAhead
		}
		g.ran(idleFrom)
		g.clocks.gate.places[g.process(int32(active)).Slot].ran++
		g.use(active, time.Second, "/slice/a")
		g.use(idle, time.Duration(15+i%4*15)*time.Millisecond, "/slice/c")
		g.second()
		clock, err := g.CPUClock(int32(idle))
		require.NoError(t, err)
		require.LessOrEqual(t, units.CPUTime(clock)-g.process(int32(idle)).CPU, lateInCgroup)
	}
}

func TestIdleProcessesAreLeftOutAgainAfterAScanThatTookLong(t *testing.T) {
	g, active, idle := watchIdle(t)
	g.before = func(pid int32) {
		if pid == int32(idle) { // reading many clocks takes long
			g.use(active, 300*time.Millisecond, "/slice/a")
			assert.NoError(t, g.Render())
		}
	}
	second := func() {
		g.ran(idleFrom)
		g.clocks.gate.places[g.process(int32(active)).Slot].ran++
		g.use(active, time.Second, "/slice/a")
		g.second()
	}
	g.clocks.gate.scans = sweepEvery
	second()
	assert.Greater(t, g.clocks.gate.ahead, maxAhead)
	second()
	assert.Equal(t, 1, g.read[int32(idle)])
	second()
	assert.Zero(t, g.read[int32(idle)])
}
