// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package tasks

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// echo is a process that sleeps until it is written to, and answers.
type echo struct {
	*testing.T
	cmd *exec.Cmd
	in  io.Writer
	out io.Reader
}

func startEcho(t *testing.T, command ...string) *echo {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &echo{t, cmd, in, out}
}

func (e *echo) talk() {
	e.Helper()
	_, err := e.in.Write([]byte("x"))
	require.NoError(e, err)
	_, err = io.ReadFull(e.out, make([]byte, 1))
	require.NoError(e, err)
}

// find returns the index of a process in a listing.
func find(t *testing.T, l Listing, pid int) int {
	t.Helper()
	i := slices.IndexFunc(l.Processes, func(p Process) bool { return int(p.Pid) == pid })
	require.GreaterOrEqual(t, i, 0)
	return i
}

// look scans, and returns a process and whether the scan reported it as changed.
func look(t *testing.T, s *Scan, pid int) (row Process, changed bool) {
	t.Helper()
	l, err := s.List(false)
	require.NoError(t, err)
	i := find(t, l, pid)
	return l.Processes[i], i >= l.Same || slices.Contains(l.Changed, uint64(i))
}

// untilQuiet scans until a process sleeps, and returns the process.
func (e *echo) untilQuiet(s *Scan) (row Process) {
	e.Helper()
	quiet := 0
	require.Eventually(e, func() bool {
		var changed bool
		if row, changed = look(e.T, s, e.cmd.Process.Pid); changed {
			quiet = 0
		} else {
			quiet++
		}
		return quiet == 3
	}, time.Minute, time.Millisecond, "a sleeping process is not reported")
	return row
}

func TestAProcessIsListedWhenItRan(t *testing.T) {
	s := openScan(t, 1024, Options{})
	e := startEcho(t, "cat")
	e.talk()
	before := e.untilQuiet(s)
	e.talk()
	require.Eventually(t, func() bool {
		_, changed := look(t, s, e.cmd.Process.Pid)
		return changed
	}, time.Minute, time.Millisecond)
	after := e.untilQuiet(s)
	assert.Greater(t, after.Run, before.Run)

	fresh := openScan(t, 1024, Options{})
	want, changed := look(t, fresh, e.cmd.Process.Pid)
	assert.True(t, changed, "all processes are new to a scan")
	assert.Equal(t, want, after)

	l, err := s.List(true)
	require.NoError(t, err)
	assert.Contains(t, l.Changed, uint64(find(t, l, e.cmd.Process.Pid)), "all are described")
}

func TestThreadsAreAddedUpInEveryScan(t *testing.T) {
	s := openScan(t, 1024, Options{})
	look(t, s, os.Getpid())
	before, _ := look(t, s, os.Getpid())
	const burnt = 50 * time.Millisecond
	done := make(chan struct{})
	close(done)
	burnOn(t, -1, burnt, done)
	require.Eventually(t, func() bool { // a thread's last time, and time since the last tick, are late
		after, changed := look(t, s, os.Getpid())
		return changed && after.Run >= before.Run+uint64(burnt)
	}, time.Minute, time.Millisecond)
}

func TestExecutingAProgramIncrementsExecs(t *testing.T) {
	s := openScan(t, 1024, Options{})
	e := startEcho(t, "sh", "-c", "read line; exec cat")
	before := e.untilQuiet(s)
	_, err := e.in.Write([]byte("\n"))
	require.NoError(t, err)
	e.talk()
	after := e.untilQuiet(s)
	assert.NotEqual(t, before.Execs, after.Execs)
	e.talk()
	assert.Equal(t, after.Execs, e.untilQuiet(s).Execs)
}

// someCgroup creates a cgroup, and returns its cgroup.procs and the one of its parent.
func someCgroup(t *testing.T) (there, back string) {
	t.Helper()
	var errs []error
	for _, hierarchy := range []string{"unified", ".", "freezer", "cpu"} {
		root := filepath.Join("/sys/fs/cgroup", hierarchy)
		cgroup := filepath.Join(root, fmt.Sprintf("scan-test-%d", os.Getpid()))
		back = filepath.Join(root, "cgroup.procs")
		_, err := os.Stat(back)
		if err == nil {
			err = os.Mkdir(cgroup, 0o755)
		}
		if err == nil {
			t.Cleanup(func() {
				require.Eventually(t, func() bool { return os.Remove(cgroup) == nil }, time.Minute, time.Millisecond)
			})
			return filepath.Join(cgroup, "cgroup.procs"), back
		}
		errs = append(errs, err)
	}
	t.Skip("needs a cgroup hierarchy that may be written to:", errs)
	return "", ""
}

func TestAProcessThatIsMovedWhileItSleepsIsListed(t *testing.T) {
	s := openScan(t, 1024, Options{})
	there, back := someCgroup(t)
	e := startEcho(t, "cat")
	e.talk()
	before := e.untilQuiet(s)
	pid := fmt.Appendln(nil, e.cmd.Process.Pid)
	require.NoError(t, os.WriteFile(there, pid, 0))
	defer func() { require.NoError(t, os.WriteFile(back, pid, 0)) }()
	after, changed := look(t, s, e.cmd.Process.Pid)
	assert.True(t, changed)
	assert.NotEqual(t, before.Cgroups, after.Cgroups)
	assert.Equal(t, before.Run, after.Run, "and it has not run")
}

func TestAScanThatShrinksListsAllProcessesAsNew(t *testing.T) {
	s := openScan(t, 16384, Options{})
	before := len(s.loaded.processes)
	require.NoError(t, s.Shrink(10_000), "no effect unless it halves the room")
	require.Len(t, s.loaded.processes, before)
	require.NoError(t, s.Shrink(256))
	assert.Less(t, len(s.loaded.processes), before/2)
	l, err := s.List(false)
	require.NoError(t, err)
	assert.Zero(t, l.Same)
	assert.Len(t, l.Changed, len(l.Processes))
	find(t, l, os.Getpid())
}

// burnOn uses CPU time in a new thread of this process, which runs on one CPU, or on any for -1. The
// thread exits when done is closed.
func burnOn(t *testing.T, cpu int, burnt time.Duration, done chan struct{}) {
	t.Helper()
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		var set unix.CPUSet
		set.Set(cpu)
		var err error
		if cpu >= 0 {
			err = unix.SchedSetaffinity(0, &set)
		}
		var first, now unix.Timespec
		if err == nil {
			err = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &first)
		}
		for err == nil && now.Nano() < first.Nano()+int64(burnt) {
			err = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
		}
		ready <- err
		<-done
	}()
	require.NoError(t, <-ready)
}

// onCPU1 returns the CPU time of this process on CPU 1 by the slices of a listing. Slices that did
// not fit into the buffer are missing.
func onCPU1(t *testing.T, l Listing) time.Duration {
	t.Helper()
	on := map[uint32]time.Duration{}
	for at := l.Processes[find(t, l, os.Getpid())].Slice; at > 0 && int(at) < len(l.Slices); at = l.Slices[at].Next {
		slice := l.Slices[at]
		require.Less(t, slice.Next, at)
		require.NotContains(t, on, slice.Cpu, "one slice for each CPU")
		on[slice.Cpu] = time.Duration(slice.Run)
	}
	return on[1]
}

// late is the maximum lag of the kernel's CPU time of a thread that leaves its CPU.
const late = 10 * time.Millisecond

func openSlicingScan(t *testing.T) *Scan {
	t.Helper()
	var allowed unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &allowed))
	if !allowed.IsSet(1) {
		t.Skip("needs CPU 1")
	}
	return openScan(t, 1024, Options{Slices: true})
}

func TestSlicesWithoutRoomMakeRoom(t *testing.T) {
	s := openSlicingScan(t)
	original := slicesPerProcess
	t.Cleanup(func() { slicesPerProcess = original })
	slicesPerProcess = 0
	require.NoError(t, s.reload(1<<16)) // for more processes than there are, so that only slices cause a load
	done := make(chan struct{})
	defer close(done)
	const burnt = 30 * time.Millisecond
	for try := range 10 { // on a busy machine, a scan may have more than twice as many slices as the previous one
		l, err := s.List(false)
		require.NoError(t, err)
		if onCPU1(t, l) >= burnt-late {
			return
		}
		if try == 1 {
			require.Positive(t, s.args.Slices)
			assert.Len(t, l.Slices, 1, "none fits")
		}
		burnOn(t, 1, burnt, done)
	}
	assert.Fail(t, "no room was made")
}

func TestSlicesAreSinceTheLastScanOfEitherKind(t *testing.T) {
	s := openSlicingScan(t)
	const room = 1 << 16 // for more processes than there are: whatever else runs, all that ran are listed
	ran, err := OpenRan(room, s, true)
	require.NoError(t, err)
	defer func() { require.NoError(t, ran.Close()) }()
	done := make(chan struct{})
	defer close(done)
	visit := func() time.Duration {
		l, _, err := ran.Visit(room)
		require.NoError(t, err)
		return onCPU1(t, l)
	}
	list := func() time.Duration {
		l, err := s.List(false)
		require.NoError(t, err)
		return onCPU1(t, l)
	}
	const burnt = 60 * time.Millisecond
	since := clock(t, unix.CLOCK_PROCESS_CPUTIME_ID) // before the last scan of either kind
	assert.Zero(t, list(), "in the first scan")
	check := func(read func() time.Duration) {
		t.Helper()
		burnOn(t, 1, burnt, done)
		burnOn(t, 1, burnt, done)
		now := clock(t, unix.CLOCK_PROCESS_CPUTIME_ID)
		used := read()
		assert.GreaterOrEqual(t, used, 2*burnt-late)
		assert.LessOrEqual(t, used, clock(t, unix.CLOCK_PROCESS_CPUTIME_ID)-since+late, "no more than since the last scan")
		since = now
	}
	check(list)
	check(visit)
	check(list)
	check(visit)
	_, count, err := ran.Visit(0)
	require.NoError(t, err)
	require.Positive(t, count)
	l, _, err := ran.Visit(room)
	require.NoError(t, err)
	find(t, l, os.Getpid()) // which ran during the previous call, and may not have left its CPU since
	check(func() time.Duration {
		_, _, err = ran.Visit(0) // takes the marks and visits no thread
		require.NoError(t, err)
		return list()
	})
	check(func() time.Duration {
		require.NoError(t, s.reload(1024)) // as for more room
		return list()
	})
}
