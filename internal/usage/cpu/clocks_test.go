// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// watchClocks returns a simulated host whose clocks are read. It shows what numbers its kernel
// gives.
func watchClocks(t testing.TB) *watched {
	w := watch(t)
	w.clocks = NewSimulatedClocks(Options{Root: w.Root()}, w.CPUClock)
	w.LastPID, w.Created, w.MaxPID = 50, 50, 32768
	t.Cleanup(func() { assert.NoError(t, w.clocks.Close()) })
	return w
}

// fork adds a process that has just started, with the next number.
func (w *watched) fork(p hostsim.Process) (pid int32) {
	w.LastPID++
	w.Created++
	w.add(w.LastPID, p)
	return int32(w.LastPID)
}

// partly scans, and allows that rows of processes that did not run stay as they are.
func (w *watched) partly() {
	w.Helper()
	w.want.All = false
	w.scan()
	w.want.All = true
}

// pass lets a second pass.
func (w *watched) pass() { w.Run(time.Second, nil) }

func TestClocksCountInNanoseconds(t *testing.T) {
	w := watchClocks(t)
	pid := w.fork(hostsim.Process{Parent: 1, User: 3, Fraction: 5})
	w.scan()
	w.Processes[int(pid)].Fraction += 7
	w.pass()
	w.scan()
	assert.Equal(t, 3*Tick+12, w.process(pid).CPU)
	assert.Equal(t, units.CPUTime(7), w.used(pid))
	assert.Zero(t, w.used(1))
}

func TestFilesOfAProcessThatDidNotRunAreNotRead(t *testing.T) {
	w := watchClocks(t)
	sleeps, runs := w.fork(hostsim.Process{Parent: 1, Comm: "a"}), w.fork(hostsim.Process{Parent: 1, Comm: "a"})
	ran := w.fork(hostsim.Process{Parent: 1, Comm: "a"})
	w.scan()
	for _, pid := range []int32{sleeps, runs, ran} {
		w.Processes[int(pid)].Comm = "b"
	}
	comm := func(pid int32) string { p := w.process(pid); return p.Comm.String() }
	w.pass()
	w.Processes[int(runs)].Fraction++
	w.Processes[int(ran)].Fraction++
	w.partly()
	assert.Equal(t, units.CPUTime(1), w.used(runs))
	assert.Equal(t, "a", comm(runs), "it is not the last window of the collection")
	w.pass()
	w.Processes[int(runs)].Fraction++
	w.scan()
	assert.Equal(t, "b", comm(runs))
	assert.Equal(t, "b", comm(ran), "it ran since its files were read")
	assert.Equal(t, "a", comm(sleeps))
}

func TestTheCPUOnWhichAProcessRanLastIsReadInPartialScansOnRequest(t *testing.T) {
	w := watchClocks(t)
	pid := w.fork(hostsim.Process{Parent: 1, LastCPU: 2})
	w.scan()
	for _, fresh := range []bool{false, true} {
		w.want.LastCPU = fresh
		w.Processes[int(pid)].LastCPU = 3
		w.Processes[int(pid)].Fraction++
		w.pass()
		w.partly()
		assert.Equal(t, fresh, w.process(pid).LastCPU == 3)
	}
}

func TestFilesOfProcessesThatRanAreReadWhenTasksWereCreated(t *testing.T) {
	w := watchClocks(t)
	w.scan()
	w.pass()
	w.Created, w.LastPID = w.Created+1, w.LastPID+1 // a child that has ended
	w.spend(1, 4)
	w.Processes[1].Fraction++
	w.partly()
	assert.Equal(t, 4*Tick-1, beside(&w.table, w.process(1).Slot), "all that the process itself did not use")
}

func TestNewProcessesAreFoundByTheirNumbers(t *testing.T) {
	w := watchClocks(t)
	w.scan()
	w.scan()
	old := w.LastPID
	w.add(old-1, hostsim.Process{Parent: 1, Comm: "chosen"}) // by a privileged process
	w.pass()
	pid := w.fork(hostsim.Process{Parent: 1, Comm: "new", User: 2})
	w.LastPID++ // a thread
	w.Created++
	w.scan()
	assert.Equal(t, 2*Tick, w.used(pid))
	assert.Nil(t, w.table.Find(int32(old-1)), "not yet")
	w.Run(listAgain, nil)
	w.scan()
	w.process(int32(old - 1))
}

func TestATaskThatHadItsNumberBeforeItCouldBeFoundIsFoundByTheNextScan(t *testing.T) {
	w := watchClocks(t)
	w.scan()
	w.pass()
	w.LastPID++
	w.Created++
	w.scan()
	w.add(w.LastPID, hostsim.Process{Parent: 1, User: 1})
	w.pass()
	w.scan()
	assert.Equal(t, Tick, w.used(int32(w.LastPID)))
}

func TestNumbersAreARing(t *testing.T) {
	w := watchClocks(t)
	w.LastPID, w.Created = w.MaxPID-2, 90_000
	w.scan()
	w.pass()
	last := w.fork(hostsim.Process{Parent: 1})
	w.LastPID = 300
	first := w.fork(hostsim.Process{Parent: 1})
	w.scan()
	w.process(first)
	w.process(last)
}

func TestAReusedNumberIsAnotherProcess(t *testing.T) {
	for name, clock := range map[string]time.Duration{"less time": 1, "the same time": 5, "more time": 9} {
		t.Run(name, func(t *testing.T) {
			w := watchClocks(t)
			pid := int(w.fork(hostsim.Process{Parent: 1, Fraction: 5}))
			w.scan()
			w.pass()
			w.reap(pid)
			w.Processes[1].Fraction++
			w.Created += uint64(w.MaxPID / 3) // the ring came around
			w.LastPID = pid + 3
			w.add(pid, hostsim.Process{Parent: 1, Fraction: clock})
			w.partly()
			assert.Equal(t, units.CPUTime(clock), w.used(int32(pid)))
			assert.True(t, w.process(int32(pid)).Is(proc.Born))
			assert.Equal(t, units.CPUTime(5), w.ended(int32(pid)).CPU)
		})
	}
}

// A privileged process chose the number.
func TestAReusedNumberOutOfOrderIsAnotherProcess(t *testing.T) {
	for name, clock := range map[string]time.Duration{"less time": 9, "more time": 70} {
		t.Run(name, func(t *testing.T) {
			w := watchClocks(t)
			pid := int(w.fork(hostsim.Process{Parent: 1, Fraction: 50}))
			w.scan()
			w.pass()
			w.reap(pid)
			w.Created++
			w.add(pid, hostsim.Process{Parent: 1, Fraction: clock})
			w.partly()
			assert.Equal(t, units.CPUTime(clock), w.used(int32(pid)))
			w.ended(int32(pid))
		})
	}
}

func TestAllAreListedWhereNumbersAreUnknown(t *testing.T) {
	for name, hide := range map[string]func(*watched){
		"no count of tasks":         func(w *watched) { w.Created = 0 },
		"no last number":            func(w *watched) { w.LastPID = 0 },
		"the ring came around":      func(w *watched) { w.Created += uint64(w.MaxPID) },
		"the last number was set":   func(w *watched) { w.LastPID = 20 },
		"the ring became larger":    func(w *watched) { w.clocks.numbers.most = 50; w.LastPID++ },
		"many numbers were chosen":  func(w *watched) { w.Created += 2 * numbersSlack },
		"more numbers than to look": func(w *watched) { w.Created, w.LastPID = w.Created+2*maxProbes, w.LastPID+2*maxProbes },
	} {
		t.Run(name, func(t *testing.T) {
			w := watchClocks(t)
			w.scan()
			w.pass()
			w.scan()
			w.pass()
			w.add(40, hostsim.Process{Parent: 1, User: 1})
			hide(w)
			w.partly()
			assert.Equal(t, Tick, w.used(40))
		})
	}
}

func TestAnOrphanThatDidNotRunHasAnotherParent(t *testing.T) {
	w := watchClocks(t)
	parent := w.fork(hostsim.Process{Parent: 1})
	child := w.fork(hostsim.Process{Parent: int(parent)})
	w.scan()
	w.pass()
	w.Processes[int(child)].Parent = 1
	w.reap(int(parent))
	w.partly()
	assert.Equal(t, int32(1), w.process(child).Parent)
}

// The kernel shows the CPU time of a running process as of the last tick.
func TestAParentWhoseClockIsLateIsNotBilledForItsChildsLife(t *testing.T) {
	w := watchClocks(t)
	parent := w.fork(hostsim.Process{Parent: 1})
	child := w.fork(hostsim.Process{Parent: int(parent), User: 50})
	w.scan()
	w.pass()
	w.Processes[int(child)].User += 2
	w.CPU.User += 2
	w.reap(int(child))
	w.partly()
	assert.Equal(t, 2*Tick, w.ended(child).LastSlice)
	assert.Zero(t, w.table.Unseen.Untraced)
	assert.Zero(t, beside(&w.table, w.process(parent).Slot))
}

func TestChildTimesInTicksOfChildrenInNanosecondsAreNotCountedTwice(t *testing.T) {
	w := watchClocks(t)
	parent := int(w.fork(hostsim.Process{Parent: 1}))
	w.scan()
	const each = Tick / 4
	var waited, found units.CPUTime
	for range 40 {
		child := int(w.fork(hostsim.Process{Parent: parent, Fraction: time.Duration(each)}))
		w.CPU.User++
		w.pass()
		w.scan()
		found += w.used(int32(child))
		delete(w.Processes, child)
		waited += each
		w.Processes[parent].CUser = int64(waited / Tick)
		w.Processes[parent].Fraction++
		w.CPU.User++
		w.pass()
		w.scan()
		assert.Zero(t, w.table.Unseen.Untraced)
		found += beside(&w.table, w.process(int32(parent)).Slot) + w.ended(int32(child)).LastSlice
	}
	assert.Equal(t, waited, found)
}

func TestProcessesThatAreHiddenAreReported(t *testing.T) {
	w := watchClocks(t)
	w.scan()
	w.pass()
	pid := w.fork(hostsim.Process{Parent: 1, Threads: 2 * hiddenThreads})
	require.NoError(t, w.Render())
	require.NoError(t, os.Rename(w.path(pid), w.path("hidden"))) // hidepid=2: its clock can be read
	w.next()
	assert.Nil(t, w.table.Find(pid))
	assert.True(t, w.table.Unseen.Hidden)
}

func TestAProcessWhoseClockCannotBeReadIsHidden(t *testing.T) {
	w := watchClocks(t)
	refused := int32(0)
	w.clocks = NewSimulatedClocks(Options{Root: w.Root()}, func(pid int32) (time.Duration, error) {
		if pid == refused {
			return 0, syscall.EPERM
		}
		return w.CPUClock(pid)
	})
	pid := w.fork(hostsim.Process{Parent: 1, User: 7})
	w.scan()
	refused = pid
	w.Processes[int(pid)].User++
	w.pass()
	w.scan()
	assert.True(t, w.table.Unseen.Hidden)
	assert.Equal(t, 7*Tick, w.process(pid).CPU)
	refused = 0
	w.pass()
	w.scan()
	assert.False(t, w.table.Unseen.Hidden)
	assert.Equal(t, Tick, w.used(pid))
}

func TestATableFromElsewhereIsReadAnew(t *testing.T) {
	w := watchClocks(t)
	pid := w.fork(hostsim.Process{Parent: 1, Comm: "a"})
	w.scan()
	past := Past{Now: w.table.Now, Processes: w.table.AppendPast(nil)}
	table := proc.New(w.clocks.Traits().Traits)
	table.Resume(past.Processes, past.Now, past.Exact)
	w.Processes[int(pid)].Fraction += 3
	w.pass()
	require.NoError(t, w.Render())
	_, err := w.windows.read(w.clocks, table, Want{})
	require.NoError(t, err)
	p := table.Find(pid)
	assert.Equal(t, "a", p.Comm.String())
	assert.Equal(t, units.CPUTime(3), p.Used)
}

// Whatever happens on a host, each scan finds all processes with the time of their clocks, and all
// of it adds up to what ran.
func TestClocksFindAllThatRuns(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			findAll(t, seed)
		})
	}
}

func findAll(t *testing.T, seed uint64) {
	l := hostsim.NewLife(twoSockets(t, 2))
	if seed%2 == 0 {
		l.LimitPIDs(64)
	}
	source, table := NewSimulatedClocks(Options{Root: l.Host.Root()}, l.Host.CPUClock), &proc.Table{}
	windows := newWindows(t, l.Host.Root())
	defer func() { require.NoError(t, source.Close()) }()
	var found units.CPUTime
	ran, left, looked, late, scans := time.Duration(-1), 0, 0, 0, 0
	for _, e := range hostsim.NewHistory(seed, 3000, hostsim.CommonWeights()) {
		if l.Apply(e); e.Act != hostsim.Advance {
			continue
		}
		l.Step(time.Duration(e.A%3000) * time.Millisecond)
		l.Show()
		require.NoError(t, l.Render())
		all := e.B%3 == 0
		_, err := windows.read(source, table, Want{All: all})
		require.NoError(t, err)
		if ran < 0 {
			ran = l.Ran()
		}
		left, looked = left+len(source.gate.left), looked+table.Len()
		scans++
		if checkRows(t, l.Host, source, table, all) > 2*maxDebt {
			late++
		}
		found += table.Used(nil)
		most := units.CPUTime(l.Ran()-ran) + units.CPUTime(table.Len())*table.Traits().ChildRounding
		require.LessOrEqual(t, found, most)
	}
	assert.Greater(t, float64(found), 0.9*float64(l.Ran()-ran))
	assert.Greater(t, left, looked/20, "left out")
	assert.Less(t, late, scans/100, "scans that lacked more than the bound")
}

// checkRows compares a table with the host. It returns how much CPU time the table lacks. A process
// that was moved to another cgroup may run or end unnoticed for a while.
func checkRows(t *testing.T, h *hostsim.Host, source *Clocks, table *proc.Table, all bool) (late time.Duration) {
	t.Helper()
	for p := range table.All() {
		if h.Processes[int(p.PID)] == nil {
			require.False(t, source.gate.open, "process %d", p.PID)
			require.Zero(t, p.Used)
			continue
		}
		clock, err := h.CPUClock(p.PID)
		require.NoError(t, err)
		require.LessOrEqual(t, p.CPU, units.CPUTime(clock))
		late += clock - time.Duration(p.CPU)
		if source.gate.open {
			require.Equal(t, units.CPUTime(clock), p.CPU)
		}
		if source.gate.open && all {
			require.Equal(t, h.Processes[int(p.PID)].Parent, int(p.Parent))
		}
		require.Equal(t, time.Duration(h.Processes[int(p.PID)].Start)*hostsim.Tick, p.Start)
	}
	require.Subset(t, pidsOf(table), slices.Collect(maps.Keys(h.Processes)))
	return late
}

func pidsOf(t *proc.Table) (pids []int) {
	for i := range t.Rows {
		pids = append(pids, int(t.Rows[i].PID))
	}
	return pids
}
