// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"math/rand/v2"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// gated is a simulated host with a process in each of two cgroups, whose counters the gate reads.
type gated struct {
	*watched
	a, b   int
	read   map[int32]int   // how often each clock was read since the last scan
	before func(pid int32) // is called before a clock is read
}

func watchGate(t *testing.T) *gated {
	g := &gated{watched: watchClocks(t), read: map[int32]int{}, before: func(int32) {}}
	g.clocks = NewSimulatedClocks(Options{Root: g.Root()}, func(pid int32) (time.Duration, error) {
		g.read[pid]++
		g.before(pid)
		return g.CPUClock(pid)
	})
	t.Cleanup(func() { assert.NoError(t, g.clocks.Close()) })
	g.Cgroups["/slice"], g.Cgroups["/slice/a"], g.Cgroups["/slice/b"] = 0, 0, 0
	g.a = int(g.fork(hostsim.Process{Parent: 1, Cgroup: "0::/slice/a"}))
	g.b = int(g.fork(hostsim.Process{Parent: 1, Cgroup: "0::/slice/b"}))
	g.scan()
	g.settle()
	return g
}

// settle scans until all processes are in their cgroups and the next sweep is far.
func (g *gated) settle() {
	g.Helper()
	for range placedFrom/time.Second + 2 {
		g.second()
	}
	for !g.clocks.gate.open {
		g.second()
	}
	g.ran(0)
}

// ran makes the gate assume that each process last ran the given number of scans ago.
func (g *gated) ran(ago uint32) {
	for slot := range g.clocks.gate.places {
		g.clocks.gate.places[slot].ran = g.clocks.gate.number - ago
	}
}

// second scans after a second.
func (g *gated) second() {
	g.Helper()
	g.pass()
	clear(g.read)
	g.scan()
}

// use makes a process use CPU time, which the counter of a cgroup shows.
func (g *gated) use(pid int, d time.Duration, cgroup string) {
	g.Processes[pid].Fraction += d
	g.Cgroups[cgroup] += d
	g.Cgroups["/slice"] += d
}

func TestClocksOfACgroupThatStoodStillAreNotRead(t *testing.T) {
	g := watchGate(t)
	g.use(g.a, time.Millisecond, "/slice/a")
	g.second()
	assert.Equal(t, ms, g.used(int32(g.a)))
	assert.Zero(t, g.used(int32(g.b)))
	assert.Zero(t, g.read[int32(g.b)])
	assert.Equal(t, 1, g.read[1], "init is in the root")
}

func TestWhatRunsWhileClocksAreReadIsNoDebt(t *testing.T) {
	for _, all := range []bool{false, true} {
		g := watchGate(t)
		g.before = func(pid int32) {
			if pid == int32(g.a) {
				g.use(g.a, 3*maxDebt, "/slice/a")
				assert.NoError(t, g.Render())
			}
		}
		g.use(g.a, time.Millisecond, "/slice/a") // its clock is to be read
		if all {
			g.clocks.gate.scans = sweepEvery
		}
		g.second()
		assert.Equal(t, all, g.clocks.gate.open)
		assert.Equal(t, ms+units.CPUTime(3*maxDebt), g.used(int32(g.a)), "its clock is ahead of the counter")
		g.before = func(int32) {}
		for range 3 {
			g.second()
			assert.False(t, g.clocks.gate.open)
			assert.Zero(t, g.read[int32(g.b)])
		}
		g.Processes[g.b].Cgroup = "0::/slice/a"
		g.use(g.b, maxDebt+time.Microsecond, "/slice/a")
		g.second()
		assert.Equal(t, units.CPUTime(maxDebt+time.Microsecond), g.used(int32(g.b)), "it hides nothing later")
		g.use(g.b, 1000, "/slice/a")
		g.second()
		assert.Equal(t, units.CPUTime(1000), g.used(int32(g.b)), "its cgroup is read again")
	}
}

func TestAProcessThatWasMovedToTheRootIsFoundByTheNextSweep(t *testing.T) {
	g := watchGate(t)
	g.Processes[g.b].Fraction += time.Millisecond
	scans := 0
	for g.second(); g.used(int32(g.b)) == 0; g.second() {
		scans++
	}
	assert.Equal(t, ms, g.used(int32(g.b)))
	assert.Less(t, scans, sweepEvery)
}

// useBelow makes a process use CPU time, which the counters of its cgroup and of those around it show.
func (g *gated) useBelow(pid int, d time.Duration) {
	g.Processes[pid].Fraction += d
	g.CPU.User += int64(d/hostsim.Tick) + 1
	for up := strings.TrimPrefix(g.Processes[pid].Cgroup, "0::"); up != "/"; up = path.Dir(up) {
		g.Cgroups[up] += d
	}
}

func TestAScanMissesAtMostTheBoundWhateverCgroupsComeAndGo(t *testing.T) {
	g, random := watchGate(t), rand.New(rand.NewPCG(1, 2))
	pids := []int{g.a, g.b}
	for range 4 {
		pids = append(pids, int(g.fork(hostsim.Process{Parent: 1, Cgroup: "0::/slice/a"})))
	}
	g.settle()
	left := 0
	for i := range 250 {
		if random.IntN(16) == 0 {
			g.moveToAnyCgroup(random, pids[random.IntN(len(pids))])
			g.removeEmptyCgroups()
		}
		g.useBelow(pids[random.IntN(len(pids))], time.Duration(random.Int64N(int64(10*maxDebt))))
		g.second()
		left += len(g.clocks.gate.left)
		var missed time.Duration
		for _, pid := range pids {
			clock, err := g.CPUClock(int32(pid))
			require.NoError(t, err)
			missed += clock - time.Duration(g.process(int32(pid)).CPU)
		}
		require.LessOrEqual(t, missed, 2*maxDebt, "scan %d", i)
	}
	assert.Greater(t, left, 150, "clocks that were not read")
}

// moveToAnyCgroup moves a process to a cgroup, which may be new, one to four levels below the root.
func (g *gated) moveToAnyCgroup(random *rand.Rand, pid int) {
	cgroup := ""
	for range 1 + random.IntN(4) {
		cgroup += "/" + string(rune('a'+random.IntN(4)))
		if _, ok := g.Cgroups[cgroup]; !ok {
			g.Cgroups[cgroup] = 0
		}
	}
	g.Processes[pid].Cgroup = "0::" + cgroup
}

// removeEmptyCgroups removes the cgroups that have no process in or below them.
func (g *gated) removeEmptyCgroups() {
	for cgroup := range g.Cgroups {
		empty := true
		for _, p := range g.Processes {
			empty = empty && !strings.HasPrefix(p.Cgroup+"/", "0::"+cgroup+"/")
		}
		if empty {
			delete(g.Cgroups, cgroup)
		}
	}
}

func TestAReusedNumberOfAProcessThatWasMovedIsAnotherProcess(t *testing.T) {
	g := watchGate(t)
	g.Processes[g.b].Cgroup = "0::/slice/a"
	g.reap(g.b)
	g.pass()
	g.add(g.b, hostsim.Process{Parent: 1, Cgroup: "0::/slice/a"}) // a privileged process chose the number
	g.use(g.b, maxDebt+time.Millisecond, "/slice/a")
	g.scan()
	assert.Equal(t, units.CPUTime(maxDebt+time.Millisecond), g.used(int32(g.b)))
	assert.True(t, g.process(int32(g.b)).Is(proc.Born))
	g.ended(int32(g.b))
}

func TestCPUTimeOfExitedProcessesIsNoDebt(t *testing.T) {
	g := watchGate(t)
	child := int(g.fork(hostsim.Process{Parent: g.a, Cgroup: "0::/slice/a"}))
	g.second()
	g.use(g.a, time.Microsecond, "/slice/a")
	g.Processes[child].User += 5
	g.Cgroups["/slice/a"] += 5 * hostsim.Tick
	g.Cgroups["/slice"] += 5 * hostsim.Tick
	g.CPU.User += 6
	g.reap(child)
	g.LastPID++ // another one
	g.Created++
	g.second()
	assert.Equal(t, 5*Tick, g.ended(int32(child)).LastSlice)
	assert.False(t, g.clocks.gate.open)
	assert.Zero(t, g.read[int32(g.b)])
}

func TestTheNumberOfAnExitedProcessIsReusedWithoutHidingCPUTime(t *testing.T) {
	g := watchGate(t)
	child := int(g.fork(hostsim.Process{Parent: g.a, Cgroup: "0::/slice/a", User: 500}))
	g.second()
	g.LastPID = child - 1 // the ring came around
	g.settle()
	g.use(g.a, time.Microsecond, "/slice/a")
	g.reap(child)
	g.add(child, hostsim.Process{Parent: 1})
	g.CPU.User += 500
	g.LastPID, g.Created = child, g.Created+1
	g.use(g.b, maxDebt+time.Millisecond, "/slice/a")
	g.Processes[g.b].Cgroup = "0::/slice/a"
	g.second()
	assert.Equal(t, units.CPUTime(maxDebt+time.Millisecond), g.used(int32(g.b)))
}

// A child without a row used the time that the child times of its parent show.
func TestCPUTimeThatIsExplainedTooEarlyHidesNoMoreThanTheBound(t *testing.T) {
	g := watchGate(t)
	g.use(g.a, time.Microsecond, "/slice/a")
	g.Processes[g.a].CUser += 500
	g.second()
	g.Processes[g.b].Cgroup = "0::/slice/a"
	g.use(g.b, 2*maxDebt+time.Millisecond, "/slice/a")
	g.second()
	assert.Equal(t, units.CPUTime(2*maxDebt)+ms, g.used(int32(g.b)))
}

func TestAZombieIsWaitedForThoughItsCgroupStandsStill(t *testing.T) {
	g := watchGate(t)
	g.Processes[g.b].State = 'Z'
	g.use(g.b, time.Microsecond, "/slice/b")
	g.second()
	delete(g.Processes, g.b)
	g.second()
	g.ended(int32(g.b))
}

func TestAProcessThatEndedElsewhereIsNotBilledToItsParent(t *testing.T) {
	g := watchGate(t)
	child := int(g.fork(hostsim.Process{Parent: g.a, Cgroup: "0::/slice/b", User: 300}))
	g.settle()
	g.use(g.a, time.Microsecond, "/slice/a")
	g.reap(child) // in a cgroup that it was moved to
	g.CPU.User += 300
	g.second()
	g.ended(int32(child))
	assert.Zero(t, charged(&g.table, g.process(int32(g.a)).Slot))
}

func TestAllClocksAreReadWithoutCounters(t *testing.T) {
	for name, hide := range map[string]func(*gated){
		"its own is gone":      func(g *gated) { delete(g.Cgroups, "/slice/b") },
		"an outer one is gone": func(g *gated) { delete(g.Cgroups, "/slice") },
		"the cgroup is small":  func(g *gated) { g.clocks.gate.from = 2; g.settle() },
	} {
		g := watchGate(t)
		hide(g)
		g.second()
		assert.Equal(t, 1, g.read[int32(g.b)], name)
	}
}

func TestCgroupsAreFoundAgainWhenTheTableShrinks(t *testing.T) {
	g := watchGate(t)
	g.reap(g.a)
	g.Cgroups["/slice/a"] += time.Microsecond // so that its end is found
	g.second()
	g.ended(int32(g.a))
	c := int(g.fork(hostsim.Process{Parent: 1, Cgroup: "0::/slice/a"}))
	g.settle()
	g.table.Shrink()
	g.use(c, time.Millisecond, "/slice/a")
	g.second()
	assert.Equal(t, ms, g.used(int32(c)))
	g.settle()
	g.second()
	assert.Zero(t, g.read[int32(c)])
	for pid := range g.Processes {
		if pid != 1 {
			g.reap(pid)
		}
	}
	g.settle()
	assert.False(t, g.clocks.gate.tree.Hold("/slice/b").StoodStill(), "no process is in its cgroup any more")
}
