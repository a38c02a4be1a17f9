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

// look scans what changed, and returns what is reported of a process and whether it was reported at
// all.
func look(t *testing.T, s *Scan, pid int) (row Process, changed bool) {
	t.Helper()
	l, err := s.List(false)
	require.NoError(t, err)
	i := slices.IndexFunc(l.Processes, func(p Process) bool { return int(p.Pid) == pid })
	require.GreaterOrEqual(t, i, 0)
	return l.Processes[i], i >= l.Same || slices.Contains(l.Changed, uint64(i))
}

// untilQuiet scans until a process sleeps, and returns what is reported of it then.
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
	s := openScan(t, 1024)
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

	fresh := openScan(t, 1024)
	want, changed := look(t, fresh, e.cmd.Process.Pid)
	assert.True(t, changed, "to a scan all are new at first")
	assert.Equal(t, want, after)
}

func TestEveryProcessIsDescribedWhereAllAreAskedFor(t *testing.T) {
	s := openScan(t, 1024)
	e := startEcho(t, "cat")
	e.talk()
	e.untilQuiet(s)
	l, err := s.List(true)
	require.NoError(t, err)
	assert.Contains(t, l.Changed, uint64(slices.IndexFunc(l.Processes, func(p Process) bool { return int(p.Pid) == e.cmd.Process.Pid })))
}

func TestThreadsAreAddedUpInEveryScan(t *testing.T) {
	s := openScan(t, 1024)
	look(t, s, os.Getpid())
	before, _ := look(t, s, os.Getpid())
	const burnt = 50 * time.Millisecond
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and the thread ends with the goroutine
		var now unix.Timespec
		for now.Nano() < int64(burnt) {
			if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
				panic(err)
			}
		}
	}()
	<-done
	require.Eventually(t, func() bool { // a thread's last time, and time since the last tick, are late
		after, changed := look(t, s, os.Getpid())
		return changed && after.Run >= before.Run+uint64(burnt)
	}, time.Minute, time.Millisecond)
}

func TestExecutingAProgramIncrementsExecs(t *testing.T) {
	s := openScan(t, 1024)
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

// someCgroup makes a cgroup below an existing one, and returns the files of both that move
// processes.
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
	s := openScan(t, 1024)
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

func TestAScanThatGivesRoomBackListsAllProcessesAsNew(t *testing.T) {
	s := openScan(t, 16384)
	before := len(s.loaded.processes)
	require.NoError(t, s.Shrink(10_000), "less than half of the room is not worth it")
	require.Len(t, s.loaded.processes, before)
	require.NoError(t, s.Shrink(256))
	assert.Less(t, len(s.loaded.processes), before/2)
	l, err := s.List(false)
	require.NoError(t, err)
	assert.Zero(t, l.Same)
	assert.Len(t, l.Changed, len(l.Processes))
	assert.True(t, slices.ContainsFunc(l.Processes, func(p Process) bool { return int(p.Pid) == os.Getpid() }))
}

// burnOn uses CPU time in a thread of this process that runs on one CPU and ends when done is
// closed.
func burnOn(t *testing.T, cpu int, burnt time.Duration, done chan struct{}) {
	t.Helper()
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		var set unix.CPUSet
		set.Set(cpu)
		err := unix.SchedSetaffinity(0, &set)
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

// ownSlices scans, and returns the CPU time of this process on each CPU since the previous scan. It
// contains only slices that fit into the buffer.
func ownSlices(t *testing.T, s *Scan) map[uint32]time.Duration {
	t.Helper()
	l, err := s.List(false)
	require.NoError(t, err)
	i := slices.IndexFunc(l.Processes, func(p Process) bool { return int(p.Pid) == os.Getpid() })
	require.GreaterOrEqual(t, i, 0)
	on := map[uint32]time.Duration{}
	for at := l.Processes[i].Slice; at > 0 && int(at) < len(l.Slices); at = l.Slices[at].Next {
		slice := l.Slices[at]
		require.Less(t, slice.Next, at)
		require.NotContains(t, on, slice.Cpu, "one slice a CPU")
		on[slice.Cpu] = time.Duration(slice.Run)
	}
	return on
}

// late is how far the kernel's CPU time of a thread may lag while the thread leaves its CPU.
const late = 10 * time.Millisecond

// ownTime returns the CPU time of this process.
func ownTime(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now))
	return time.Duration(now.Nano())
}

func openSlicingScan(t *testing.T) *Scan {
	t.Helper()
	var allowed unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &allowed))
	if !allowed.IsSet(1) {
		t.Skip("needs CPU 1")
	}
	s, err := OpenScan(1024, Options{Slices: true})
	skipUnlessPossible(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func TestSlicesAreWhatThreadsUsedSinceTheLastScan(t *testing.T) {
	s := openSlicingScan(t)
	done := make(chan struct{})
	defer close(done)
	first := ownTime(t)
	assert.Empty(t, ownSlices(t, s), "in the first scan")
	const burnt = 60 * time.Millisecond
	burnOn(t, 1, burnt, done)
	burnOn(t, 1, burnt, done)
	second := ownTime(t)
	on := ownSlices(t, s)
	assert.GreaterOrEqual(t, on[1], 2*burnt-late)
	assert.LessOrEqual(t, on[1], ownTime(t)-first+late)
	assert.LessOrEqual(t, ownSlices(t, s)[1], ownTime(t)-second+late, "not again")
}

func TestWhatThreadsUsedIsKnownAfterTheScanIsLoadedAnew(t *testing.T) {
	s := openSlicingScan(t)
	done := make(chan struct{})
	defer close(done)
	ownSlices(t, s)
	for range 3 {
		burnOn(t, 1, 150*time.Millisecond, done)
	}
	ownSlices(t, s)
	began := time.Now()
	const burnt = 60 * time.Millisecond
	burnOn(t, 1, burnt, done)
	require.NoError(t, s.load(1024, nil))
	on := ownSlices(t, s)[1]
	assert.GreaterOrEqual(t, on, burnt-10*time.Millisecond)
	assert.LessOrEqual(t, on, time.Since(began)+10*time.Millisecond, "no more than the CPU had")
}

func TestSlicesForWhichThereIsNoRoomMakeRoom(t *testing.T) {
	s := openSlicingScan(t)
	original := slicesPerProcess
	t.Cleanup(func() { slicesPerProcess = original })
	slicesPerProcess = 0
	require.NoError(t, s.load(1<<16, nil)) // for more processes than there are, so that it is not loaded anew
	done := make(chan struct{})
	defer close(done)
	ownSlices(t, s)
	const burnt = 30 * time.Millisecond
	burnOn(t, 1, burnt, done)
	l, err := s.List(false)
	require.NoError(t, err)
	require.Positive(t, s.args.Slices)
	assert.Len(t, l.Slices, 1, "none fits")
	for range 10 { // on a busy machine, the next scan may have more than twice as many slices
		burnOn(t, 1, burnt, done)
		if ownSlices(t, s)[1] >= burnt-late {
			return
		}
	}
	assert.Fail(t, "no room was made")
}

func TestProcessesThatRanHaveSlicesSinceTheLastScanOfEitherKind(t *testing.T) {
	s := openSlicingScan(t)
	const room = 1 << 16 // for more processes than there are: whatever else runs, all that ran are listed
	ran, err := OpenRan(room, s)
	require.NoError(t, err)
	defer func() { require.NoError(t, ran.Close()) }()
	done := make(chan struct{})
	defer close(done)
	ownRan := func() time.Duration {
		l, _, err := ran.Visit(room)
		require.NoError(t, err)
		i := slices.IndexFunc(l.Processes, func(p Process) bool { return int(p.Pid) == os.Getpid() })
		require.GreaterOrEqual(t, i, 0)
		for at := l.Processes[i].Slice; at > 0; at = l.Slices[at].Next {
			if l.Slices[at].Cpu == 1 {
				return time.Duration(l.Slices[at].Run)
			}
		}
		return 0
	}
	ownAll := func() time.Duration { return ownSlices(t, s)[1] }
	const burnt = 60 * time.Millisecond
	since := ownTime(t) // before the last scan of either kind
	ownAll()
	check := func(read func() time.Duration) {
		t.Helper()
		burnOn(t, 1, burnt, done)
		now := ownTime(t)
		used := read()
		assert.GreaterOrEqual(t, used, burnt-late)
		assert.LessOrEqual(t, used, ownTime(t)-since+late, "no more than since the last scan")
		since = now
	}
	check(ownRan)
	check(ownAll)
	check(ownRan)
	_, count, err := ran.Visit(0)
	require.NoError(t, err)
	require.Positive(t, count)
	check(func() time.Duration {
		_, _, err = ran.Visit(0) // the marks are taken, and no thread is looked at
		require.NoError(t, err)
		return ownAll()
	})
}
