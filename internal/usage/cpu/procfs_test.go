// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/test/unprivileged"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

const ms = units.CPUTime(time.Millisecond)

// watched is a simulated host and a source that scans it.
type watched struct {
	testing.TB
	*hostsim.Host
	source  *Procfs
	clocks  *Clocks // nil: source is read
	windows *windows
	want    Want
	table   proc.Table
	node    Node
}

func watch(t testing.TB) *watched {
	h := hostsim.New(t.TempDir())
	w := &watched{TB: t, Host: h, source: NewProcfs(Options{Root: h.Root()}), windows: newWindows(t, h.Root()), want: Want{All: true}}
	t.Cleanup(func() { assert.NoError(t, w.source.Close()) })
	return w
}

// add adds a process that has just started.
func (w *watched) add(pid int, p hostsim.Process) *hostsim.Process {
	p.Start = int64(w.Uptime / hostsim.Tick)
	w.Processes[pid] = &p
	return &p
}

// reap ends a process that its parent has waited for.
func (w *watched) reap(pid int) {
	p := w.Processes[pid]
	delete(w.Processes, pid)
	if parent := w.Processes[p.Parent]; parent != nil {
		parent.CUser += p.User + p.CUser
		parent.CSystem += p.System + p.CSystem
	}
}

// spend lets time pass in which children of a process started, used ticks of CPU time, and were
// waited for.
func (w *watched) spend(parent int, used int64) {
	w.Processes[parent].CUser += used
	w.CPU.User += used
}

func (w *watched) path(elem ...any) string {
	parts := []string{w.Root(), "proc"}
	for _, e := range elem {
		parts = append(parts, fmt.Sprint(e))
	}
	return filepath.Join(parts...)
}

func (w *watched) scan() {
	w.Helper()
	require.NoError(w, w.Render())
	w.next()
}

// next scans the trees as they are.
func (w *watched) next() {
	w.Helper()
	var source Source = w.source
	if w.clocks != nil {
		source = w.clocks
	}
	node, err := w.windows.read(source, &w.table, w.want)
	require.NoError(w, err)
	w.node = node
	w.check()
}

// check checks the invariants of a scan.
func (w *watched) check() {
	w.Helper()
	t := &w.table
	for p := range t.All() {
		require.LessOrEqual(w, p.Used, p.CPU)
	}
	require.LessOrEqual(w, t.Unseen.Untraced, proc.Unbounded)
}

func (w *watched) process(pid int32) *proc.Process {
	w.Helper()
	p := w.table.Find(pid)
	require.NotNil(w, p, "process %d is not in the table", pid)
	return p
}

func (w *watched) used(pid int32) units.CPUTime {
	w.Helper()
	return w.process(pid).Used
}

func (w *watched) ended(pid int32) *proc.Ended {
	w.Helper()
	for i := range w.table.Ended {
		if w.table.Ended[i].PID == pid {
			return &w.table.Ended[i]
		}
	}
	require.FailNow(w, "it has not ended", "process %d", pid)
	return nil
}

func (w *watched) pids() (pids []int32) {
	for p := range w.table.All() {
		pids = append(pids, p.PID)
	}
	slices.Sort(pids)
	return pids
}

// unreadable replaces a file by something that cannot be read, until the returned function restores
// it.
func (w *watched) unreadable(path string) (restore func()) {
	w.Helper()
	text, err := os.ReadFile(path)
	require.NoError(w, err)
	require.NoError(w, os.Remove(path))
	require.NoError(w, os.Mkdir(path, 0o700))
	return func() {
		require.NoError(w, os.Remove(path))
		require.NoError(w, os.WriteFile(path, text, 0o600))
	}
}

func TestProcessThatExitsDuringTheScanHasEnded(t *testing.T) {
	w := watch(t)
	w.add(42, hostsim.Process{Parent: 1})
	w.add(43, hostsim.Process{Parent: 1})
	w.scan()
	w.Run(10*time.Second, map[int]int64{42: 3, 43: 4})
	require.NoError(t, w.Render())
	require.NoError(t, os.Remove(w.path(42, "stat"))) // the directory is still listed
	w.next()
	assert.Equal(t, []int32{1, 43}, w.pids())
	assert.Equal(t, int32(42), w.ended(42).PID)
	assert.Equal(t, 4*Tick, w.used(43))
	assert.False(t, w.table.Unseen.Hidden, "it is not hidden, it is gone")
}

func TestProcessThatIsBeingReleasedDuringTheScanHasEnded(t *testing.T) {
	w := watch(t)
	w.add(42, hostsim.Process{Parent: 1})
	w.Run(time.Second, map[int]int64{42: 60})
	w.scan()
	w.Run(10*time.Second, map[int]int64{42: 300})
	w.Processes[1].CUser += 360
	require.NoError(t, w.Render())
	released := statText("cat", "X", 0, 0x40000c, 0, 0, 0, 0, 0, w.Processes[42].Start)
	require.NoError(t, os.WriteFile(w.path(42, "stat"), []byte(released), 0o600))
	w.next()
	assert.Equal(t, 60*Tick, w.ended(42).CPU, "as it was, not the zeros that are left")
	total := w.ended(42).LastSlice + beside(&w.table, w.process(1).Slot)
	assert.Equal(t, 300*Tick, total, "and its life is not attributed to its parent's children again")
}

func TestUnreadableProcessIsBilledInFullOnceItCanBeRead(t *testing.T) {
	for name, spoil := range map[string]func(*watched) (restore func()){
		"a directory in its place": func(w *watched) func() { return w.unreadable(w.path(42, "stat")) },
		"cut short":                func(w *watched) func() { return w.cut(w.path(42, "stat"), 30) },
		"empty":                    func(w *watched) func() { return w.cut(w.path(42, "stat"), 0) },
		"not permitted":            func(w *watched) func() { return w.forbid(w.path(42, "stat")) },
	} {
		t.Run(name, func(t *testing.T) {
			w := watch(t)
			w.add(42, hostsim.Process{Parent: 1, Comm: "cat"})
			w.add(43, hostsim.Process{Parent: 1})
			w.Run(time.Second, map[int]int64{42: 60})
			w.scan()
			w.Run(10*time.Second, nil)
			w.spend(42, 70)
			w.scan()
			require.Equal(t, 70*Tick, beside(&w.table, w.process(42).Slot))
			slot := w.process(42).Slot
			var restore func()
			for range 2 {
				w.Run(10*time.Second, map[int]int64{42: 300, 43: 5})
				require.NoError(t, w.Render())
				restore = spoil(w)
				w.next()
				p := w.process(42)
				assert.Equal(t, proc.Sight{
					ID: proc.ID{PID: 42, Start: 1000 * time.Second}, Parent: 1, Threads: 1, CPU: 60 * Tick, ChildCPU: 70 * Tick, Comm: p.Comm,
				}, p.Sight, "as it was")
				assert.Equal(t, slot, p.Slot)
				assert.Zero(t, p.Used)
				assert.Equal(t, "cat", p.Comm.String())
				assert.True(t, w.table.Unseen.Hidden)
				assert.Empty(t, w.table.Ended)
				assert.Equal(t, 5*Tick, w.used(43), "the others go on")
				restore()
			}
			w.Run(10*time.Second, map[int]int64{42: 30})
			w.scan()
			assert.Equal(t, 630*Tick, w.used(42))
			assert.Equal(t, slot, w.process(42).Slot)
			assert.False(t, w.table.Unseen.Hidden)
		})
	}
}

func (w *watched) cut(path string, n int) (restore func()) {
	w.Helper()
	text, err := os.ReadFile(path)
	require.NoError(w, err)
	require.NoError(w, os.WriteFile(path, text[:n], 0o600))
	return func() { require.NoError(w, os.WriteFile(path, text, 0o600)) }
}

// forbid removes the permission to read a file, for root too: it changes the thread's file system
// identity.
func (w *watched) forbid(path string) (restore func()) {
	w.Helper()
	require.NoError(w, os.Chmod(path, 0))
	back := unprivileged.Reads(w)
	return func() {
		back()
		require.NoError(w, os.Chmod(path, 0o600))
	}
}

func TestAnUnreadableProcessThatWasNeverScannedIsHidden(t *testing.T) {
	w := watch(t)
	w.scan()
	w.Run(10*time.Second, nil)
	w.add(42, hostsim.Process{Parent: 1})
	require.NoError(t, w.Render())
	restore := w.unreadable(w.path(42, "stat"))
	w.next()
	assert.Equal(t, []int32{1}, w.pids())
	assert.True(t, w.table.Unseen.Hidden)
	restore()
	w.scan()
	assert.True(t, w.process(42).Is(proc.Born))
	assert.Zero(t, w.used(42), "the interval of its earlier time is unknown")
}

func TestAFailedScanIsCoveredByTheNext(t *testing.T) {
	for name, spoil := range map[string]func(*watched) (restore func()){
		"uptime cannot be read": func(w *watched) func() { return w.unreadable(w.path("uptime")) },
		"uptime is garbage":     func(w *watched) func() { return w.cut(w.path("uptime"), 2) },
		"no uptime": func(w *watched) func() {
			require.NoError(w, os.Rename(w.path("uptime"), w.path("elsewhere")))
			return func() { require.NoError(w, os.Rename(w.path("elsewhere"), w.path("uptime"))) }
		},
		"no proc": func(w *watched) func() {
			require.NoError(w, os.Rename(w.path(), w.path()+"-elsewhere"))
			require.NoError(w, os.Mkdir(w.path(), 0o700))
			return func() {
				require.NoError(w, os.Remove(w.path()))
				require.NoError(w, os.Rename(w.path()+"-elsewhere", w.path()))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := watch(t)
			w.add(42, hostsim.Process{Parent: 1})
			w.scan()
			w.Run(10*time.Second, map[int]int64{42: 3})
			w.scan()

			w.Run(10*time.Second, map[int]int64{42: 5})
			w.add(43, hostsim.Process{Parent: 1})
			require.NoError(t, w.Render())
			if name == "no proc" { // the open directory could still be read
				require.NoError(t, w.source.Close())
			}
			restore := spoil(w)
			for range 2 {
				require.Error(t, scanAll(w.source, &w.table))
			}
			restore()
			w.Run(10*time.Second, map[int]int64{42: 7, 43: 20})
			w.scan()
			assert.Equal(t, 12*Tick, w.used(42))
			assert.Equal(t, 20*Tick, w.used(43), "born since the last complete scan")
		})
	}
}

func TestProcThatIsNotThereIsFoundOnceItAppears(t *testing.T) {
	w := watch(t)
	err := w.windows.stat.read()
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, w.path())
	err = scanAll(w.source, &w.table)
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.Empty(t, w.table.Rows)
	assert.Empty(t, w.table.Rows)
	w.scan()
	assert.Equal(t, []int32{1}, w.pids())
	assert.Zero(t, w.used(1))
}

func TestProcThatIsMountedAnewIsFoundAgain(t *testing.T) {
	w := watch(t)
	w.scan()
	require.NoError(t, os.RemoveAll(w.path()))
	require.ErrorIs(t, w.windows.stat.read(), fs.ErrNotExist)
	require.Error(t, scanAll(w.source, &w.table))
	w.Run(10*time.Second, map[int]int64{1: 5})
	w.scan()
	assert.Equal(t, 5*Tick, w.used(1))
}

func TestSourceCanBeUsedAfterClose(t *testing.T) {
	w := watch(t)
	w.scan()
	require.NoError(t, w.source.Close())
	require.NoError(t, w.source.Close())
	w.Run(10*time.Second, map[int]int64{1: 5})
	w.scan()
	assert.Equal(t, 5*Tick, w.used(1))
	assert.Equal(t, "procfs", w.source.Traits().Name)
	var _ Source = w.source
}

func TestThreadsThatNoProcessShowsAreHidden(t *testing.T) {
	for hidden, want := range map[int]bool{0: false, hiddenThreads: false, hiddenThreads + 1: true, 4000: true} {
		w := watch(t)
		w.add(42, hostsim.Process{Threads: 500})
		w.HiddenThreads = hidden
		w.scan()
		assert.Equal(t, want, w.table.Unseen.Hidden, "%d threads", hidden)
	}
}

func TestWithoutLoadavgNothingIsTakenForHidden(t *testing.T) {
	for name, spoil := range map[string]func(*watched) error{
		"missing": func(w *watched) error { return os.Remove(w.path("loadavg")) },
		"garbage": func(w *watched) error { return os.WriteFile(w.path("loadavg"), []byte("0.0 0.0 0.0 1/"), 0o600) },
	} {
		w := watch(t)
		w.HiddenThreads = 1000
		require.NoError(t, w.Render())
		require.NoError(t, spoil(w))
		w.next()
		assert.False(t, w.table.Unseen.Hidden, name)
	}
}

func TestAScanMissesTasksThatWereCreatedAndAreNotNew(t *testing.T) {
	for name, c := range map[string]struct {
		before, newest int
		threads        int // of the process that is new in the scan, 0 if there is none
		want           bool
	}{
		"none was created":                {100, 100, 0, false},
		"one came and went":               {100, 101, 0, true},
		"the new process":                 {100, 101, 1, false},
		"the new process and its threads": {100, 104, 4, false},
		"more than the new process":       {100, 102, 1, true},
		"new, but counted before":         {100, 100, 1, false},
		"IDs began again":                 {32768, 300, 1, true},
		"the newest was not known":        {0, 100, 0, false},
		"the newest is not known":         {100, 0, 0, false},
	} {
		w := watch(t)
		w.LastPID = c.before
		w.scan()
		assert.False(t, w.table.Unseen.Missed, "the baseline")
		w.Run(time.Second, nil)
		if w.LastPID = c.newest; c.threads > 0 {
			w.add(42, hostsim.Process{Parent: 1, Threads: c.threads})
		}
		w.scan()
		assert.Equal(t, c.want, w.table.Unseen.Missed, name)
		w.Run(time.Second, nil)
		w.scan()
		assert.False(t, w.table.Unseen.Missed, "%s: of the scan before", name)
	}
}

func TestPidsUpToFourMillionAndNamesThatAreNoProcess(t *testing.T) {
	w := watch(t)
	for _, pid := range []int{4194304, 4194303, 32768, 99, 100, 9} {
		w.add(pid, hostsim.Process{Parent: 1})
	}
	require.NoError(t, w.Render())
	for _, name := range []string{"self", "sys", "0", "007", "12x", "9999999999"} {
		require.NoError(t, os.MkdirAll(w.path(name), 0o700))
		require.NoError(t, os.WriteFile(w.path(name, "stat"), []byte(statText("cat", "S")), 0o600))
	}
	w.next()
	assert.Equal(t, []int32{1, 9, 99, 100, 32768, 4194303, 4194304}, w.pids())
	w.Run(10*time.Second, map[int]int64{4194304: 7})
	w.scan()
	assert.Equal(t, 7*Tick, w.used(4194304))
}

func realProc(t testing.TB) *Procfs {
	t.Helper()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skipf("no /proc: %v", err)
	}
	source := NewProcfs(Options{Root: "/"})
	t.Cleanup(func() { assert.NoError(t, source.Close()) })
	return source
}

func TestBootTime(t *testing.T) {
	w := watch(t)
	_, err := BootTime(w.Root())
	require.Error(t, err, "no proc")
	require.NoError(t, w.Render())
	got, err := BootTime(w.Root())
	require.NoError(t, err)
	assert.True(t, w.Booted.Equal(got))
	require.NoError(t, os.Remove(w.path("stat")))
	_, err = BootTime(w.Root())
	require.Error(t, err)
}

func TestNodeCountsBusyTotalAndProcessTime(t *testing.T) {
	w := watch(t)
	w.scan()
	w.CPU = hostsim.CPU{
		User: w.CPU.User + 1, Nice: 20, System: 300, Idle: w.CPU.Idle + 4000, IOWait: 50_000, IRQ: 600_000, SoftIRQ: 7_000_000,
	}
	w.scan()
	assert.Equal(t, Node{Process: 321 * Tick, Interrupt: 7_600_000 * Tick, Busy: 7_600_321 * Tick, Total: 7_654_321 * Tick}, w.node)
}

func TestInterruptsThatTheKernelDoesNotMeasureAreNotCounted(t *testing.T) {
	w := watch(t)
	w.scan()
	w.CPU.User += 10
	w.CPU.SoftIRQ += 40 // ticks that interrupted a softirq, perhaps in a task that has the same time
	w.scan()
	assert.Equal(t, Node{Process: 10 * Tick, Busy: 50 * Tick, Total: 50 * Tick}, w.node)
	w.CPU.IRQ++
	w.scan()
	assert.Equal(t, Tick, w.node.Interrupt, "measured from now on")
}

func TestStealIsNeitherBusyNorTotal(t *testing.T) {
	w := watch(t)
	w.scan()
	w.CPU.Steal += 500
	w.scan()
	assert.Equal(t, Node{}, w.node)
}

func TestGuestTimeIsInsideUserTime(t *testing.T) {
	w := watch(t)
	w.scan()
	w.CPU.User += 100
	w.CPU.Guest += 90
	w.CPU.Nice += 50
	w.CPU.GuestNice += 50
	w.scan()
	assert.Equal(t, Node{Process: 150 * Tick, Busy: 150 * Tick, Total: 150 * Tick}, w.node)
}

func TestColumnThatGoesBackStandsStill(t *testing.T) {
	for name, back := range map[string]func(*hostsim.CPU){
		"idle":                  func(c *hostsim.CPU) { c.Idle -= 90_000 },
		"iowait":                func(c *hostsim.CPU) { c.IOWait -= 1000 },
		"idle and iowait":       func(c *hostsim.CPU) { c.Idle -= 5; c.IOWait = 0 },
		"interrupts":            func(c *hostsim.CPU) { c.IRQ = 0; c.SoftIRQ-- },
		"a CPU's whole history": func(c *hostsim.CPU) { *c = hostsim.CPU{User: c.User / 2, System: c.System / 2, Idle: c.Idle / 2} },
		"everything":            func(c *hostsim.CPU) { *c = hostsim.CPU{} },
	} {
		t.Run(name, func(t *testing.T) {
			w := watch(t)
			w.CPU = hostsim.CPU{User: 4000, System: 2000, Idle: 100_000, IOWait: 5000, IRQ: 300, SoftIRQ: 400}
			w.scan()
			w.Run(10*time.Second, map[int]int64{1: 100})
			w.scan()
			before := w.node
			back(&w.CPU)
			w.scan()
			assert.Equal(t, before, w.node)
			w.Run(10*time.Second, map[int]int64{1: 250})
			w.scan()
			assert.Equal(t, 250*Tick, w.node.Busy-before.Busy)
			assert.Equal(t, 1000*Tick, w.node.Total-before.Total)
		})
	}
}

func TestNodeTimesStayConsistentForAnyInput(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	number := func() uint64 {
		if r.IntN(20) == 0 {
			return math.MaxUint64 - r.Uint64N(1000) // a small negative number, printed without its sign
		}
		return r.Uint64N(1 << 40)
	}
	for range 20_000 {
		var last, now cpuTicks
		for i := range now {
			last[i], now[i] = number(), number()
		}
		var n Node
		n.add(&last, &now, true)
		if n.Process > n.Busy || n.Busy > n.Total {
			t.Fatalf("from %v to %v: %+v", last, now, n)
		}
	}
}

func TestNodeThatCannotBeReadStandsStillAndIsMadeUpFor(t *testing.T) {
	w := watch(t)
	w.scan()
	w.Run(10*time.Second, map[int]int64{1: 100})
	w.scan()
	before := w.node
	for name, spoil := range map[string]func() (restore func()){
		"unreadable": func() func() { return w.unreadable(w.path("stat")) },
		"garbage":    func() func() { return w.cut(w.path("stat"), 12) },
	} {
		restore := spoil()
		times, err := w.windows.stat.Read(time.Time{})
		require.ErrorContains(t, err, w.path("stat"), name)
		assert.Equal(t, before, times.Node, name)
		restore()
	}
	w.Run(10*time.Second, map[int]int64{1: 100})
	w.scan()
	assert.Equal(t, 100*Tick, w.node.Busy-before.Busy)
}

func TestOneCPULineLongerThanTheBuffer(t *testing.T) {
	w := watch(t)
	require.NoError(t, w.Render())
	text, err := os.ReadFile(w.path("stat"))
	require.NoError(t, err)
	long := string(text) + strings.Repeat("cpu0 1 2 3 4 5 6 7 8 9 10\n", 1000)
	require.NoError(t, os.WriteFile(w.path("stat"), []byte(long), 0o600))
	assert.NoError(t, w.windows.stat.read())
}

func TestErrorsOfAProcessThatIsGone(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.ENOENT: true, syscall.ESRCH: true, fs.ErrNotExist: true, errReleased: true,
		syscall.EACCES: false, syscall.EISDIR: false, syscall.EMFILE: false, errTruncated: false, errors.New("other"): false,
	} {
		assert.Equal(t, want, gone(err), err)
	}
}

// steady returns a host with n processes that has been read until all buffers have grown.
func steady(t testing.TB, n int) *watched {
	w := watch(t)
	for i := range n {
		w.add(100+i, hostsim.Process{Parent: 1, Comm: "process " + strconv.Itoa(i)})
	}
	for range 3 {
		w.Run(time.Second, nil)
		w.scan()
	}
	return w
}

func TestAScanAllocatesNothing(t *testing.T) {
	for _, n := range []int{100, 500} {
		w := steady(t, n)
		var err error
		allocated := testing.AllocsPerRun(20, func() {
			if _, e := w.windows.read(w.source, &w.table, w.want); e != nil {
				err = e
			}
		})
		require.NoError(t, err)
		require.Equal(t, n+1, w.table.Len())
		assert.Zero(t, allocated, "%d processes", n)
	}
}
