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

// look scans what changed, and returns what is reported of a process and whether it was reported at all.
func look(t *testing.T, s *Scan, pid int) (row Process, changed bool) {
	t.Helper()
	l, err := s.Update(false)
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
	l, err := s.Update(true)
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

// someCgroup makes a cgroup below an existing one, and returns the files of both that move processes.
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
	before := len(s.processes)
	l, err := s.Update(true)
	require.NoError(t, err)
	listed := len(l.Processes)
	require.NoError(t, s.Shrink(10_000), "less than half of the room is not worth it")
	require.Len(t, s.processes, before)
	require.NoError(t, s.Shrink(256))
	assert.Less(t, len(s.processes), before/2)
	l, err = s.Update(false)
	require.NoError(t, err)
	assert.Zero(t, l.Same)
	assert.Len(t, l.Changed, len(l.Processes))
	assert.InDelta(t, listed, len(l.Processes), 50)
}
