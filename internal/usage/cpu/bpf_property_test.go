// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// life is one process of a simulated kernel.
type life struct {
	tasks.Process        // Run is the true CPU time
	shown         uint64 // the highest time that a list has shown
	reported      int    // the scan that reports its end
}

// randomKernel is a simulated kernel in which processes live at random. Its lists and ends are like
// those of a real one: late, out of order, and with steps back.
type randomKernel struct {
	testing.TB
	r        *rand.Rand
	source   *BPF
	table    proc.Table
	now      time.Duration
	scan     int
	nextPid  uint32
	living   []*life
	dead     []*life // their ends are not reported yet
	between  func()  // called after the list was read and before the ends are
	drainErr error
	lossy    bool
	drains   bool // between scans, too
	partial  bool // scans need not be of all processes

	used   uint64 // what all processes used since the first scan
	lost   uint64 // by processes whose end was lost, and not in any list
	shared uint64 // as the kernel reports of lost ends
	count  uint64
	billed units.CPUTime

	lostEnds uint64
}

func (w *randomKernel) List(bool) (tasks.Listing, error) {
	list := make([]tasks.Process, 0, len(w.living))
	for _, p := range w.living {
		row := p.Process
		switch w.r.IntN(8) {
		case 0: // it is on a CPU
			row.Run -= min(row.Run, w.r.Uint64N(4e6))
		case 1: // one of its threads is ending
			row.Run = w.r.Uint64N(row.Run + 1)
		}
		p.shown = max(p.shown, row.Run)
		list = append(list, row)
	}
	if w.between != nil {
		w.between()
	}
	return tasks.Listing{Processes: list}, nil
}

func (w *randomKernel) Drain(yield func(*tasks.Ended)) (tasks.Lost, error) {
	if w.drainErr != nil {
		return tasks.Lost{}, w.drainErr
	}
	w.dead = slices.DeleteFunc(w.dead, func(p *life) bool {
		if p.reported > w.scan {
			return false
		}
		if w.lossy && w.r.IntN(20) == 0 {
			w.lost += p.Run - p.shown
			w.count++
			w.lostEnds++
			w.shared += p.Run
		} else {
			yield(&tasks.Ended{Start: p.Start, Run: p.Run, Cgroup: p.Cgroup, Pid: p.Pid, Parent: p.Parent})
		}
		return true
	})
	lost := tasks.Lost{Count: w.count, Run: w.shared}
	w.count, w.shared = 0, 0
	return lost, nil
}

func (*randomKernel) Close() error { return nil }

func (w *randomKernel) spawn() {
	w.now += time.Duration(w.r.Int64N(1e6))
	w.nextPid++
	if w.nextPid > 300 { // numbers are reused, within one interval too
		w.nextPid = 2
	}
	if slices.ContainsFunc(w.living, func(p *life) bool { return p.Pid == w.nextPid }) {
		return
	}
	p := &life{Process: tasks.Process{
		Pid: w.nextPid, Start: uint64(w.now), Threads: 1 + w.r.Uint32N(3), Parent: 1 + w.r.Uint32N(300), Cgroup: 1 + w.r.Uint64N(6),
	}}
	i := len(w.living)
	if i > 0 && w.r.IntN(10) == 0 { // two are created at the same time
		i--
	}
	w.living = slices.Insert(w.living, i, p)
}

func (w *randomKernel) act() {
	switch n := w.r.IntN(10); {
	case n < 3 || len(w.living) < 5:
		w.spawn()
	case n < 5 && len(w.living) > 20:
		i := w.r.IntN(len(w.living))
		p := w.living[i]
		w.living = slices.Delete(w.living, i, i+1)
		p.reported = w.scan + w.r.IntN(4)
		w.dead = append(w.dead, p)
		if w.drains && w.r.IntN(4) == 0 { // the buffer is half full
			w.source.drainBetween()
		}
	default:
		p := w.living[w.r.IntN(len(w.living))]
		used := w.r.Uint64N(50e6)
		p.Run += used
		w.used += used
	}
}

// read scans and checks the invariants.
func (w *randomKernel) rescan() error {
	return scanFor(w.source, &w.table, Request{Want: Want{All: !w.partial}})
}

func (w *randomKernel) read() {
	w.Helper()
	w.now += time.Duration(w.r.Int64N(int64(time.Second)))
	w.scan++
	require.NoError(w, w.rescan())
	t := &w.table
	require.True(w, slices.IsSortedFunc(t.Rows, func(a, b proc.Process) int { return scan.ByAge(&a, &b) }))
	taken := map[int32]bool{}
	for i := range t.Rows {
		p := &t.Rows[i]
		require.False(w, taken[p.Slot], "slot %d is given to two", p.Slot)
		taken[p.Slot] = true
		w.billed += p.Used + p.ShortLived
	}
	for i := range t.Ended {
		require.False(w, taken[t.Ended[i].Slot], "slot %d of an ended process is reused in the same scan", t.Ended[i].Slot)
		taken[t.Ended[i].Slot] = true
		w.billed += t.Ended[i].LastSlice
	}
	w.billed += t.ShortLived
	require.LessOrEqual(w, uint64(w.billed), w.used, "scan %d: more than was used", w.scan)
}

// begin runs the kernel for a while before the first scan.
func begin(t testing.TB, seed uint64) *randomKernel {
	w := &randomKernel{TB: t, r: rand.New(rand.NewPCG(seed, 4)), now: time.Hour, nextPid: 1}
	w.source = newBPF(Options{Root: t.TempDir()}, w, w)
	w.source.bootNow = func() time.Duration { return w.now }
	for range 200 {
		w.act()
	}
	w.now += 20 * time.Millisecond
	r := w.r
	w.r = rand.New(&still{}) // the first list shows all earlier time
	w.used = 0
	for _, p := range w.dead {
		p.shown = p.Run
	}
	w.read()
	w.r = r
	require.Zero(t, w.billed)
	return w
}

// still is a random source that always selects the last choice.
type still struct{}

func (*still) Uint64() uint64 { return 1<<64 - 1 }

// settle reports all ends, and lists all CPU time.
func (w *randomKernel) settle() {
	w.Helper()
	w.between = nil
	w.scan += 10
	r := w.r
	w.r = rand.New(&still{})
	w.read()
	w.r = r
}

func TestBPFBillsAllCPUTimeOnceHoweverProcessesComeAndGo(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			w := begin(t, seed)
			for i := range 300 {
				w.between = nil
				w.drains = w.r.IntN(2) == 0
				if w.r.IntN(2) == 0 { // some of it happens during the scan
					w.between = func() {
						w.drains = false // a scan holds the lock
						for range w.r.IntN(10) {
							w.act()
						}
					}
				}
				for range w.r.IntN(80) {
					w.act()
				}
				if w.r.IntN(15) == 0 {
					w.drainErr = errors.New("refused")
					before := slices.Clone(w.table.Rows)
					require.Error(t, w.rescan())
					require.Equal(t, before, w.table.Rows, "the table is as it was")
					w.drainErr = nil
				}
				w.read()
				require.Zero(t, w.table.Unseen.Untraced)
				if i%10 == 9 {
					w.settle()
					require.Equal(t, w.used, uint64(w.billed), "scan %d", w.scan)
				}
			}
			w.settle()
			assert.Equal(t, w.used, uint64(w.billed))
			assert.Empty(t, w.source.ended)
			assert.Empty(t, w.source.missing)
			assert.Less(t, len(w.table.Rows), 400)
		})
	}
}

func TestOnlyLostEndsAreMissing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			w := begin(t, seed)
			w.lossy, w.drains = true, true
			var untraced units.CPUTime
			for range 200 {
				for range w.r.IntN(60) {
					w.act()
				}
				w.read()
				untraced += w.table.Unseen.Untraced
			}
			w.lossy = false
			w.settle()
			w.now += maxAwait // later ends are not reported any more
			w.settle()
			require.Positive(t, w.lost)
			assert.Equal(t, w.used-w.lost, uint64(w.billed))
			assert.GreaterOrEqual(t, uint64(untraced), w.lost, "the table says that much was not traced")
			assert.Zero(t, w.table.Awaited())
		})
	}
}

func TestParentsInACircleEndTheSearch(t *testing.T) {
	k, b, table := fakeBPF(t)
	start := uint64(k.now) + 1
	for i := range uint32(3) {
		k.ends = append(k.ends, tasks.Ended{Pid: 30 + i, Start: start, Run: 1, Cgroup: rootCgroup, Parent: 30 + (i+1)%3})
	}
	require.NoError(t, scanAll(b, table))
	assert.EqualValues(t, 3, unplaced(table))
}
