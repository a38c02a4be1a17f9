// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
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
	visited       uint64 // the time when it was visited last, plus 1
	reported      int    // the scan that reports its end
}

// randomKernel is a simulated kernel in which processes live at random. Its lists and ends are like
// those of a real one: late, out of order, and with steps back. It reports which processes changed,
// as the task scan does, and which ran, as the hook on context switches does.
type randomKernel struct {
	testing.TB
	noKernel
	r       *rand.Rand
	source  *BPF
	table   proc.Table
	now     time.Duration
	scan    int
	nextPid uint32
	living  []*life
	dead    []*life // their ends are not reported yet

	lossy    bool
	busy     bool // something happens between the list and the ends
	drains   bool // between scans, too
	partial  bool // scans need not be of all processes
	drainErr error

	listed []tasks.Process // the scan's array; unchanged elements are old
	slices []tasks.Slice
	visits int // that were not too many
	split  int // how many rows had several slices

	used   uint64     // what all processes used since the first scan
	lost   uint64     // by processes whose end was lost, and not in any list
	unread tasks.Lost // losses that no scan has read yet
	billed units.CPUTime
}

// show returns a process as a list may show it.
func (w *randomKernel) show(p *life) tasks.Process {
	row := p.Process
	row.Cgroups = row.Cgroup
	switch w.r.IntN(8) {
	case 0: // it is on a CPU
		row.Run -= min(row.Run, w.r.Uint64N(4e6))
	case 1: // one of its threads is ending
		row.Run = w.r.Uint64N(row.Run + 1)
	}
	p.shown = max(p.shown, row.Run)
	return row
}

func (w *randomKernel) List(all bool) (tasks.Listing, error) {
	executing := -1 // exec makes another thread the first: the process is missing once
	if w.r.IntN(10) == 0 {
		executing = len(w.living) - 1 - w.r.IntN(2)*w.r.IntN(len(w.living))
	}
	l := tasks.Listing{Same: len(w.living)}
	n := 0
	for i, p := range w.living {
		if i == executing {
			continue
		}
		row := w.show(p)
		if n == len(w.listed) {
			w.listed = append(w.listed, tasks.Process{})
		}
		was := &w.listed[n]
		if was.Pid != row.Pid || was.Start != row.Start {
			l.Same = min(l.Same, n)
		}
		if all || l.Same <= n || was.Run != row.Run || was.Cgroup != row.Cgroup {
			*was = row
			l.Changed = append(l.Changed, uint64(n))
		}
		n++
	}
	w.listed = w.listed[:n]
	l.Processes, l.Same = w.listed, min(l.Same, n)
	l.Slices = w.slice(l.Processes)
	w.meanwhile()
	return l, nil
}

// Visit lists the processes that ran since the previous call.
func (w *randomKernel) Visit(most int) (tasks.Listing, int, error) {
	var ran []tasks.Process
	for _, p := range w.living {
		if p.visited == p.Run+1 {
			continue
		}
		if w.r.IntN(8) == 0 { // no switch showed it
			p.visited = p.Run + 1
			continue
		}
		row := w.show(p)
		p.visited = row.Run + 1 // if it is on a CPU, it is marked again
		ran = append(ran, row)
	}
	w.r.Shuffle(len(ran), func(i, j int) { ran[i], ran[j] = ran[j], ran[i] })
	w.meanwhile()
	if len(ran) > most {
		return tasks.Listing{}, len(ran), nil
	}
	w.visits++
	return tasks.Listing{Processes: ran, Slices: w.slice(ran)}, len(ran), nil
}

// slice gives processes slices as they come, of a CPU that has the number of the process. Some do
// not fit, and some are of processes that used nothing.
func (w *randomKernel) slice(listed []tasks.Process) []tasks.Slice {
	w.slices = append(w.slices[:0], tasks.Slice{})
	for i := range listed {
		p := &listed[i]
		p.Slice = 0
		for range w.r.IntN(4) {
			w.slices = append(w.slices, tasks.Slice{Cpu: p.Pid, Run: w.r.Uint64N(1 << w.r.IntN(64)), Next: p.Slice})
			p.Slice = uint32(len(w.slices) - 1)
		}
		if w.r.IntN(20) == 0 {
			p.Slice = uint32(len(w.slices) + 1_000_000)
		}
	}
	return w.slices
}

// meanwhile goes on during a scan.
func (w *randomKernel) meanwhile() {
	if !w.busy || w.r.IntN(2) > 0 {
		return
	}
	drains := w.drains
	w.drains = false // a scan holds the lock
	for range w.r.IntN(10) {
		w.act()
	}
	w.drains = drains
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
			w.unread.Count++
			w.unread.Run += p.Run
		} else {
			yield(&tasks.Ended{Start: p.Start, Run: p.Run, Cgroup: p.Cgroup, Pid: p.Pid, Parent: p.Parent})
		}
		return true
	})
	lost := w.unread
	w.unread = tasks.Lost{}
	return lost, nil
}

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
	if w.r.IntN(8) == 0 { // it took its start time before others that are already listed
		p.Start -= w.r.Uint64N(5e6)
	}
	i := len(w.living)
	if i > 0 && w.r.IntN(10) == 0 { // two are created at the same time
		i--
	}
	w.living = slices.Insert(w.living, i, p)
}

func (w *randomKernel) act() {
	switch n := w.r.IntN(20); {
	case n < 6 || len(w.living) < 5:
		w.spawn()
	case n < 10 && len(w.living) > 20:
		i := w.r.IntN(len(w.living))
		p := w.living[i]
		w.living = slices.Delete(w.living, i, i+1)
		p.reported = w.scan + w.r.IntN(4)
		w.dead = append(w.dead, p)
		if w.drains && w.r.IntN(4) == 0 { // the buffer is half full
			w.source.ends.drainBetween()
		}
	case n == 10: // it moves and does not run
		w.living[w.r.IntN(len(w.living))].Cgroup = 1 + w.r.Uint64N(6)
	default:
		p := w.living[w.r.IntN(len(w.living))]
		used := w.r.Uint64N(50e6)
		p.Run += used
		w.used += used
	}
}

// read scans and checks what it found.
func (w *randomKernel) read() {
	w.Helper()
	w.now += time.Duration(w.r.Int64N(int64(time.Second)))
	w.scan++
	require.NoError(w, scanFor(w.source, &w.table, Request{Want: Want{All: !w.partial}}))
	w.billed += w.table.Used(nil)
	require.LessOrEqual(w, uint64(w.billed), w.used, "scan %d: more than was used", w.scan)
	w.requireSlices()
}

// requireSlices checks that the slices of each row are its own and add up to what it used.
func (w *randomKernel) requireSlices() {
	w.Helper()
	for p := range w.table.All() {
		var sum units.CPUTime
		of := w.table.Splits.Slices(p.Split, p.Used, p.LastCPU)
		for _, s := range of {
			sum += s.Used
			if len(of) > 1 || s.CPU != p.LastCPU {
				require.Equal(w, p.PID, s.CPU, "a slice of another process")
			}
		}
		if len(of) > 1 {
			w.split++
		}
		require.Equal(w, p.Used, sum)
	}
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
	w.used = 0
	for _, p := range w.dead {
		p.shown = p.Run
	}
	w.still(w.read) // the first list shows all earlier time
	require.Zero(t, w.billed)
	return w
}

// lastChoice is a random source that always selects the last choice.
type lastChoice struct{}

func (lastChoice) Uint64() uint64 { return 1<<64 - 1 }

// still does something while nothing happens by chance.
func (w *randomKernel) still(do func()) {
	r := w.r
	w.r = rand.New(lastChoice{})
	do()
	w.r = r
}

// settle reports all ends, and lists all CPU time.
func (w *randomKernel) settle() {
	w.Helper()
	w.scan += 10
	partial := w.partial
	w.partial = false
	w.still(w.read)
	w.partial = partial
}

// requireRows checks the rows after a scan that showed everything.
func (w *randomKernel) requireRows() {
	w.Helper()
	require.Equal(w, len(w.living), w.table.Len())
	for _, p := range w.living {
		row := w.table.Find(int32(p.Pid))
		require.NotNil(w, row)
		require.Equal(w, []uint64{p.Start, p.Run, p.Cgroup}, []uint64{uint64(row.Start), uint64(row.CPU), row.Cgroup})
		require.False(w, row.Is(proc.Zombie))
	}
}

// attach has the source scan those that ran.
func (w *randomKernel) attach() {
	w.partial = true
	w.source.hook.visitor, w.source.hook.based = w, true
}

func TestBPFBillsAllCPUTimeOnceHoweverProcessesComeAndGo(t *testing.T) {
	t.Parallel()
	for seed := range uint64(16) {
		ran := seed%2 == 1
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			w := begin(t, seed)
			w.busy = true
			if ran {
				w.attach()
			}
			for i := range 400 {
				w.drains = w.r.IntN(2) == 0
				w.partial = ran && w.r.IntN(8) > 0
				w.source.hook.most = 1000 * min(1, w.r.IntN(10)) // none: they are too many
				for range w.r.IntN(60) {
					w.act()
				}
				if w.r.IntN(15) == 0 { // the list or the marks are read, and lost
					w.drainErr = errors.New("refused")
					before := slices.Clone(w.table.Rows)
					require.Error(t, scanFor(w.source, &w.table, Request{Want: Want{All: !w.partial}}))
					require.Equal(t, before, w.table.Rows, "the table is as it was")
					w.drainErr = nil
				}
				w.read()
				require.Zero(t, w.table.Unseen.Untraced)
				if i%10 == 9 {
					w.settle()
					require.Equal(t, w.used, uint64(w.billed), "scan %d", w.scan)
					w.requireRows()
				}
				if w.r.IntN(50) == 0 {
					w.table.Shrink()
				}
			}
			assert.Empty(t, w.source.ends.ended)
			assert.Less(t, len(w.table.Rows), 400)
			assert.Greater(t, w.split, 1000)
			assert.Equal(t, ran, w.visits > 150, "%d partial scans", w.visits)
		})
	}
}

func TestOnlyLostExitsAreMissing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			w := begin(t, seed)
			w.lossy, w.drains = true, true
			if seed%2 == 1 {
				w.attach()
				w.source.hook.most = 1000
			}
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
			w.now += time.Minute // later ends are not reported any more
			w.settle()
			require.Positive(t, w.lost)
			assert.Equal(t, w.used-w.lost, uint64(w.billed))
			assert.GreaterOrEqual(t, uint64(untraced), w.lost, "the table says that much was not traced")
			w.requireRows()
			assert.Zero(t, w.table.Awaited())
		})
	}
}
