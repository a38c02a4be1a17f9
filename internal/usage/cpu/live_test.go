// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// unattributed makes the node use CPU time that no process shows.
func (w *watched) unattributed(n int64) { w.CPU.User += n }

// Children of less than a tick show no time when they are scanned, so nothing is missing when they
// end.
func TestShortChildrenOfAParentThatIgnoresSIGCHLDAreUntraced(t *testing.T) {
	for _, ignores := range []bool{true, false} {
		w := watch(t)
		w.add(42, hostsim.Process{Parent: 1, IgnoresSIGCHLD: ignores})
		w.add(43, hostsim.Process{Parent: 42})
		w.scan()
		untraced := func() {
			t.Helper()
			want := units.CPUTime(0)
			if ignores {
				want = proc.Unbounded
			}
			assert.Equal(t, want, w.table.Unseen.Untraced)
		}
		assert.Zero(t, w.table.Unseen.Untraced, "no child has ended yet")
		w.Run(10*time.Second, nil)
		delete(w.Processes, 43)
		w.unattributed(500)
		w.scan()
		untraced()
		w.Run(10*time.Second, nil)
		w.unattributed(500)
		w.scan()
		untraced() // as long as it lives, whether or not a scan sees a child

		w.Run(10*time.Second, nil)
		w.spend(42, 5)
		w.scan()
		assert.Zero(t, w.table.Unseen.Untraced, "it waits now")
	}
}

func TestProcessWhoseFirstThreadEndedGoesOn(t *testing.T) {
	w := watch(t)
	w.add(43, hostsim.Process{Parent: 1, State: 'Z', Threads: 3})
	w.Run(100*time.Second, map[int]int64{43: 500})
	w.scan()
	w.Run(10*time.Second, map[int]int64{43: 700})
	w.reap(43)
	w.scan()
	assert.Equal(t, 700*Tick, w.ended(43).LastSlice)
}

// world is a host whose processes live at random, and whose true CPU time is known.
type world struct {
	*watched
	r       *rand.Rand
	living  []int
	nextPid int
	truth   int64 // ticks used by all processes but kernel threads
}

func (w *world) spawn(parent int) int {
	pid := w.nextPid
	w.nextPid++
	if w.nextPid > 1500 { // numbers are soon reused
		w.nextPid = 100
	}
	if w.Processes[pid] != nil {
		return 0
	}
	w.add(pid, hostsim.Process{Parent: parent, Comm: "p" + strconv.Itoa(pid), Threads: 1 + w.r.IntN(4)})
	w.living = append(w.living, pid)
	return pid
}

// running returns a running process other than init.
func (w *world) running() int {
	for range 20 {
		if len(w.living) == 0 {
			break
		}
		if pid := w.living[w.r.IntN(len(w.living))]; w.Processes[pid].State == 0 {
			return pid
		}
	}
	return 0
}

// exit ends a process. Init adopts its children, and its parent waits for it, now or later.
func (w *world) exit(pid int) {
	for _, q := range w.living {
		if w.Processes[q].Parent == pid {
			w.Processes[q].Parent = 1
			if w.Processes[q].State == 'Z' { // init waits at once
				w.collect(q)
			}
		}
	}
	w.Processes[pid].State = 'Z'
	w.Processes[pid].Threads = 1
	if w.Processes[pid].Parent == 1 || w.r.IntN(4) > 0 {
		w.collect(pid)
	}
}

func (w *world) collect(pid int) {
	w.reap(pid)
	w.living = slices.Clone(slices.DeleteFunc(slices.Clone(w.living), func(q int) bool { return q == pid }))
}

func (w *world) act() {
	switch n := w.r.IntN(10); {
	case n < 3:
		parent := 1
		if w.r.IntN(3) > 0 {
			parent = max(w.running(), 1)
		}
		if len(w.living) < 60 {
			w.spawn(parent)
		}
	case n < 5:
		if pid := w.running(); pid != 0 && len(w.living) > 10 {
			w.exit(pid)
		}
	case n < 6:
		for _, pid := range w.living {
			if w.Processes[pid].State == 'Z' {
				w.collect(pid)
				break
			}
		}
	default:
		pid := max(w.running(), 1)
		used := int64(1 + w.r.IntN(50))
		w.Processes[pid].User += used / 2
		w.Processes[pid].System += used - used/2
		w.CPU.User += used / 2
		w.CPU.System += used - used/2
		w.truth += used
	}
	if w.r.IntN(3) == 0 {
		w.Uptime += hostsim.Tick
		w.CPU.Idle++
	}
}

// live runs a world for some scans and checks that all its CPU time is counted once. If restarts is
// not 0, another source and table go on after one of so many scans on average.
func live(t *testing.T, seed uint64, scans, restarts int) {
	w := &world{watched: watch(t), r: rand.New(rand.NewPCG(seed, 99)), nextPid: 100}
	restarted := false
	for range 30 {
		w.spawn(max(w.running(), 1))
	}
	w.scan()
	var billed units.CPUTime
	rounding, ended, shortLived := 0, 0, 0
	for i := range scans {
		before := w.node.Process
		for range w.r.IntN(60) {
			w.act()
		}
		w.scan()
		interval := w.table.Used(nil)
		shortLived += len(w.table.Charges)
		require.LessOrEqual(t, interval, w.node.Process-before, "scan %d: beyond what the node used", i)
		if !restarted {
			require.Zero(t, w.table.Unseen.Untraced, "scan %d: every end can be traced", i)
		}
		restarted = false
		require.False(t, w.table.Unseen.Hidden)
		billed += interval
		for j := range w.table.Ended {
			rounding++ // shares of a last slice are rounded down
			if w.table.Ended[j].LastSlice > 0 {
				ended++
			}
		}
		truth := units.CPUTime(w.truth) * Tick
		require.LessOrEqual(t, billed, truth, "scan %d", i)
		require.InDelta(t, float64(truth), float64(billed), float64(rounding), "scan %d", i)
		if restarts > 0 && w.r.IntN(restarts) == 0 {
			restarted = true
			w.restart()
		}
	}
	assert.Greater(t, ended, scans/5, "last slices")
	assert.Greater(t, shortLived, scans/15, "children between two scans")
	assert.Less(t, len(w.table.Rows), 200)
}

func TestProcfsBillsAllCPUTimeOnceHoweverProcessesComeAndGo(t *testing.T) {
	t.Parallel()
	live(t, 1, 120, 0)
}
