// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"os"
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
	assert.Equal(t, 4*Tick-1, charged(&w.table, w.process(1).Slot), "all that the process itself did not use")
}

func TestNewProcessesAreFoundByTheirNumbers(t *testing.T) {
	w := watchClocks(t)
	w.LastPID, w.Created = w.MaxPID-2, 90_000
	w.scan()
	w.scan()
	w.add(w.LastPID-1, hostsim.Process{Parent: 1}) // by a privileged process
	w.pass()
	last := w.fork(hostsim.Process{Parent: 1, User: 2})
	w.LastPID = 300 // the numbers are a ring
	first := w.fork(hostsim.Process{Parent: 1, User: 3})
	w.LastPID++ // a task has its number before it can be found
	w.Created++
	late := w.LastPID
	w.scan()
	assert.Equal(t, 2*Tick, w.used(last))
	assert.Equal(t, 3*Tick, w.used(first))
	assert.Len(t, w.pids(), 3)
	w.add(late, hostsim.Process{Parent: 1, User: 1})
	w.pass()
	w.scan()
	assert.Equal(t, Tick, w.used(int32(late)))
	assert.Len(t, w.pids(), 4)
	w.Run(listAgain, nil)
	w.scan()
	assert.Len(t, w.pids(), 5, "the one whose number was chosen")
}

func TestAReusedNumberIsAnotherProcess(t *testing.T) {
	for name, ring := range map[string]bool{"the ring came around": true, "a privileged process chose the number": false} {
		for _, clock := range []time.Duration{1, 5, 9} { // less time than the earlier process had, as much, and more
			if clock == 5 && !ring {
				continue // its clock stands still
			}
			w := watchClocks(t)
			pid := int(w.fork(hostsim.Process{Parent: 1, Fraction: 5}))
			w.scan()
			w.pass()
			w.reap(pid)
			w.Processes[1].Fraction++
			w.Created++
			if ring {
				w.Created += uint64(w.MaxPID / 3)
				w.LastPID = pid + 3
			}
			w.add(pid, hostsim.Process{Parent: 1, Fraction: clock})
			w.partly()
			assert.Equal(t, units.CPUTime(clock), w.used(int32(pid)), name)
			assert.True(t, w.process(int32(pid)).Is(proc.Born), name)
			assert.Equal(t, units.CPUTime(5), w.ended(int32(pid)).CPU, name)
		}
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
	assert.Zero(t, charged(&w.table, w.process(parent).Slot))
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
		found += charged(&w.table, w.process(int32(parent)).Slot) + w.ended(int32(child)).LastSlice
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
