// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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

func TestAProcessThatExitsDuringTheScanHasEnded(t *testing.T) {
	for name, exit := range map[string]func(w *watched) error{
		"its directory is still listed": func(w *watched) error { return os.Remove(w.path(42, "stat")) },
		"it is being released": func(w *watched) error {
			text := statText("cat", "X", 0, 0x40000c, 0, 0, 0, 0, 0, w.Processes[42].Start)
			return os.WriteFile(w.path(42, "stat"), []byte(text), 0o600)
		},
	} {
		w := watch(t)
		w.add(42, hostsim.Process{Parent: 1})
		w.Run(time.Second, map[int]int64{42: 60})
		w.scan()
		w.Run(10*time.Second, map[int]int64{42: 300})
		w.Processes[1].CUser += 360
		require.NoError(t, w.Render())
		require.NoError(t, exit(w))
		w.next()
		assert.Equal(t, []int32{1}, w.pids(), name)
		assert.Equal(t, 60*Tick, w.ended(42).CPU, "%s: as it was, not the zeros that are left", name)
		assert.Equal(t, 300*Tick, w.ended(42).LastSlice+charged(&w.table, w.process(1).Slot), name)
		assert.False(t, w.table.Unseen.Hidden, name)
	}
}

func TestAnUnreadableProcessIsBilledInFullOnceItCanBeRead(t *testing.T) {
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
			w.next() // opens the directory in which files are read again
			before := w.process(42).Sight
			for range 2 {
				w.Run(10*time.Second, map[int]int64{42: 300, 43: 5})
				require.NoError(t, w.Render())
				restore := spoil(w)
				w.next()
				restore()
				before.Flags = w.process(42).Flags
				assert.Equal(t, before, w.process(42).Sight, "as it was")
				assert.Zero(t, w.used(42))
				assert.True(t, w.table.Unseen.Hidden)
				assert.Empty(t, w.table.Ended)
				assert.Equal(t, 5*Tick, w.used(43), "the others go on")
			}
			w.Run(10*time.Second, map[int]int64{42: 30})
			w.scan()
			assert.Equal(t, 630*Tick, w.used(42))
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

func TestAFailedScanIsCoveredByTheNext(t *testing.T) {
	moved := func(w *watched, name string) (restore func()) {
		require.NoError(w, w.source.Close()) // the open directory could still be read
		require.NoError(w, os.Rename(w.path(name), w.Root()+"/elsewhere"))
		return func() { require.NoError(w, os.Rename(w.Root()+"/elsewhere", w.path(name))) }
	}
	for name, spoil := range map[string]func(*watched) (restore func()){
		"uptime cannot be read": func(w *watched) func() { return w.unreadable(w.path("uptime")) },
		"uptime is garbage":     func(w *watched) func() { return w.cut(w.path("uptime"), 2) },
		"no uptime":             func(w *watched) func() { return moved(w, "uptime") },
		"no proc":               func(w *watched) func() { return moved(w, "") },
	} {
		w := watch(t)
		w.add(42, hostsim.Process{Parent: 1})
		w.scan()
		w.Run(10*time.Second, map[int]int64{42: 5})
		w.add(43, hostsim.Process{Parent: 1})
		require.NoError(t, w.Render())
		restore := spoil(w)
		for range 2 {
			require.Error(t, scanAll(w.source, &w.table), name)
		}
		restore()
		w.Run(10*time.Second, map[int]int64{42: 7, 43: 20})
		w.scan()
		assert.Equal(t, 12*Tick, w.used(42), name)
		assert.Equal(t, 20*Tick, w.used(43), "%s: born since the last complete scan", name)
	}
}

func TestThreadsThatNoProcessShowsAreHidden(t *testing.T) {
	for hidden, want := range map[int]bool{0: false, hiddenThreads: false, hiddenThreads + 1: true, 4000: true} {
		w := watch(t)
		w.add(42, hostsim.Process{Threads: 500})
		w.HiddenThreads = hidden
		w.scan()
		assert.Equal(t, want, w.table.Unseen.Hidden, "%d threads", hidden)
		for _, text := range []string{"0.0 0.0 0.0 1/", ""} {
			require.NoError(t, os.WriteFile(w.path("loadavg"), []byte(text), 0o600))
			w.next()
			assert.False(t, w.table.Unseen.Hidden, "their number is unknown")
		}
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

func TestTheTimesOfTheNode(t *testing.T) {
	history := hostsim.CPU{User: 4000, System: 2000, Idle: 100_000, IOWait: 5000, IRQ: 300, SoftIRQ: 400}
	unmeasured := history
	unmeasured.IRQ = 0
	for name, c := range map[string]struct {
		before hostsim.CPU
		change func(*hostsim.CPU)
		want   Node // in ticks
	}{
		"all columns": {history, func(c *hostsim.CPU) {
			*c = hostsim.CPU{User: 4001, Nice: 20, System: 2300, Idle: 104_000, IOWait: 55_000, IRQ: 600_300, SoftIRQ: 7_000_400}
		}, Node{Process: 321, Interrupt: 7_600_000, Busy: 7_600_321, Total: 7_654_321}},
		"interrupts that the kernel does not measure": {
			unmeasured, func(c *hostsim.CPU) { c.User += 10; c.SoftIRQ += 40 }, Node{Process: 10, Busy: 50, Total: 50},
		},
		"interrupts that it measures from now on": {
			unmeasured, func(c *hostsim.CPU) { c.IRQ++ }, Node{Interrupt: 1, Busy: 1, Total: 1},
		},
		"stolen": {history, func(c *hostsim.CPU) { c.Steal += 500 }, Node{}},
		"guests, which are in user time": {history, func(c *hostsim.CPU) {
			c.User, c.Guest, c.Nice, c.GuestNice = c.User+100, 90, 50, 50
		}, Node{Process: 150, Busy: 150, Total: 150}},
		"idle steps back":         {history, func(c *hostsim.CPU) { c.Idle -= 90_000 }, Node{}},
		"interrupts step back":    {history, func(c *hostsim.CPU) { c.IRQ = 0; c.SoftIRQ-- }, Node{}},
		"a CPU's history is lost": {history, func(c *hostsim.CPU) { *c = hostsim.CPU{User: 2000, System: 1000, Idle: 5000} }, Node{}},
		"everything steps back":   {history, func(c *hostsim.CPU) { *c = hostsim.CPU{} }, Node{}},
	} {
		w := watch(t)
		w.CPU = c.before
		w.scan()
		require.Zero(t, w.node, name)
		c.change(&w.CPU)
		w.scan()
		want := Node{Process: c.want.Process * Tick, Interrupt: c.want.Interrupt * Tick, Busy: c.want.Busy * Tick, Total: c.want.Total * Tick}
		assert.Equal(t, want, w.node, name)
		if name == "all columns" {
			t.Attr("iowait", fmt.Sprintf("%d of %d ticks", w.node.Busy/Tick, w.node.Total/Tick))
		}
		w.Run(10*time.Second, map[int]int64{1: 250})
		w.scan()
		assert.Equal(t, Node{Process: 250 * Tick, Busy: 250 * Tick, Total: 1000 * Tick}, w.node.since(want), name)
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

func TestErrorsOfAProcessThatIsGone(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.ENOENT: true, syscall.ESRCH: true, fs.ErrNotExist: true, errReleased: true,
		syscall.EACCES: false, syscall.EISDIR: false, syscall.EMFILE: false, errTruncated: false, errors.New("other"): false,
	} {
		assert.Equal(t, want, gone(err), err)
	}
}

// Children of less than a tick show no time when they are scanned, so nothing is missing when they
// end.
func TestShortChildrenOfAParentThatIgnoresSIGCHLDAreUntraced(t *testing.T) {
	for _, ignores := range []bool{true, false} {
		w := watch(t)
		w.add(42, hostsim.Process{Parent: 1, IgnoresSIGCHLD: ignores})
		w.add(43, hostsim.Process{Parent: 42})
		w.scan()
		assert.Zero(t, w.table.Unseen.Untraced, "no child has ended yet")
		delete(w.Processes, 43)
		for range 2 { // as long as it lives, whether or not a scan sees a child
			w.Run(10*time.Second, nil)
			w.CPU.User += 500
			w.scan()
			assert.Equal(t, ignores, w.table.Unseen.Untraced == proc.Unbounded)
			assert.Equal(t, !ignores, w.table.Unseen.Untraced == 0)
		}
		w.Run(10*time.Second, nil)
		w.spend(42, 5)
		w.scan()
		assert.Zero(t, w.table.Unseen.Untraced, "it waits now")
	}
}
