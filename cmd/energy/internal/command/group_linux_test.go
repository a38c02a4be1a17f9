// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

var methods = []Method{CgroupV2, CgroupV1, ChildTimes}

// open makes a group that counts by a method, if this machine has it.
func open(t *testing.T, method Method) *Group {
	t.Helper()
	g, err := newGroup("/", method)
	if err != nil {
		t.Skipf("%s: %v", method, err)
	}
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	return g
}

// eachMethod runs a test with each method.
func eachMethod(t *testing.T, test func(t *testing.T, g *Group)) {
	for _, method := range methods {
		t.Run(string(method), func(t *testing.T) { test(t, open(t, method)) })
	}
}

// dirOf returns the directory of the cgroup of a group.
func dirOf(g *Group) string {
	if v1, ok := g.counter.(*cgroupV1); ok {
		return v1.dir
	}
	return g.counter.(*cgroup).dir
}

func run(t testing.TB, g *Group, args ...string) int {
	t.Helper()
	p, err := g.Start(Command{Args: args})
	require.NoError(t, err)
	status, err := p.Wait()
	require.NoError(t, err)
	return status
}

// loop is a line of shell that uses some CPU time.
const loop = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"

func TestTheStatusIsThatOfTheCommandAsAShellTellsIt(t *testing.T) {
	eachMethod(t, func(t *testing.T, g *Group) {
		assert.Zero(t, run(t, g, "true"))
		assert.Equal(t, 7, run(t, g, "sh", "-c", "exit 7"))
		assert.Equal(t, 128+9, run(t, g, "sh", "-c", "kill -9 $$"))
	})
}

func TestACommandThatIsNotThereIsToldFromOneThatCannotBeExecuted(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	write("unexecutable", "#!/bin/sh\n", 0o644)
	eachMethod(t, func(t *testing.T, g *Group) {
		for name, want := range map[string]error{
			"no-such-program":        ErrNotFound,
			dir + "/no-such-program": ErrNotFound,
			"unexecutable":           ErrNotExecutable,
			dir + "/unexecutable":    ErrNotExecutable,
			dir:                      ErrNotExecutable,
			write("orphan", "#!/no/such/interpreter\n", 0o755): ErrNotFound,
			write("garbage", "\x7fELF no program\n", 0o755):    nil, // sh complains, as with execvp(3)
			write("script", "exit 5\n", 0o755):                 nil,
			"":                                                 ErrNotFound,
		} {
			p, err := g.Start(Command{Args: []string{name, "x"}})
			require.ErrorIs(t, err, want, "%q", name)
			if err != nil {
				continue
			}
			status, err := p.Wait()
			require.NoError(t, err)
			assert.NotZero(t, status)
		}
		_, err := g.Start(Command{})
		assert.Error(t, err)
	})
}

// usedBy returns the CPU time of a group.
func usedBy(t testing.TB, g *Group) units.CPUTime {
	t.Helper()
	used, err := g.Used()
	require.NoError(t, err)
	return used
}

// leave runs a shell script that leaves processes behind, whose PIDs it prints.
func leave(t *testing.T, g *Group, script string) (pids []int) {
	t.Helper()
	out, in, err := os.Pipe()
	require.NoError(t, err)
	defer func() { assert.NoError(t, out.Close()) }()
	p, err := g.Start(Command{Args: []string{"sh", "-c", script}, Stdout: in})
	require.NoError(t, err)
	require.NoError(t, in.Close())
	_, err = p.Wait()
	require.NoError(t, err)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		pid, err := strconv.Atoi(lines.Text())
		require.NoError(t, err)
		pids = append(pids, pid)
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	}
	return pids
}

func TestDaemonsThatAreLeftBehindAreNamedAndNotKilled(t *testing.T) {
	for _, method := range methods {
		t.Run(string(method), func(t *testing.T) {
			g, err := newGroup("/", method)
			if err != nil {
				t.Skipf("CPU time cannot be counted by %s: %v", method, err)
			}
			pids := leave(t, g, `(setsid sleep 60 >/dev/null & echo $!) & (sleep 61 >/dev/null & echo $!); wait $!`)
			require.Len(t, pids, 2)
			left, err := g.Leftover()
			require.NoError(t, err)
			require.Len(t, left, 2)
			for _, l := range left {
				assert.Contains(t, pids, l.PID)
				assert.Less(t, l.CPU, time.Second)
			}
			assert.NoError(t, g.Close())
			for _, pid := range pids {
				assert.NoError(t, syscall.Kill(pid, 0))
				if own, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)); assert.NoError(t, err) {
					assert.NotContains(t, string(own), prefix)
				}
			}
		})
	}
}

func TestOrphansAreReapedAndCount(t *testing.T) {
	eachMethod(t, func(t *testing.T, g *Group) {
		pids := leave(t, g, `(sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done' >/dev/null & echo $!)`)
		require.Len(t, pids, 1)
		require.Eventually(t, func() bool {
			usedBy(t, g)
			return errors.Is(syscall.Kill(pids[0], 0), syscall.ESRCH)
		}, time.Minute, time.Millisecond)
		assert.Greater(t, usedBy(t, g), 10*units.CPUTime(time.Millisecond))
		var status syscall.WaitStatus
		_, err := syscall.Wait4(pids[0], &status, 0, nil)
		assert.ErrorIs(t, err, syscall.ECHILD)
	})
}

func TestChildrenOfSomebodyElseAreNotReapedAndDoNotCount(t *testing.T) {
	other := exec.Command("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
	require.NoError(t, other.Start())
	eachMethod(t, func(t *testing.T, g *Group) {
		run(t, g, "true")
		assert.Less(t, usedBy(t, g), 100*units.CPUTime(time.Millisecond))
	})
	g, err := newGroup("/", ChildTimes)
	require.NoError(t, err)
	var info unix.Siginfo
	require.NoError(t, unix.Waitid(unix.P_PID, other.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil))
	usedBy(t, g)
	assert.NoError(t, other.Wait())
	assert.NoError(t, g.Close())
}

// TestThisProgramAsACommandThatIgnoresItsChildren is run by another test.
func TestThisProgramAsACommandThatIgnoresItsChildren(t *testing.T) {
	if os.Getenv("COMMAND_TEST_IGNORES") == "" {
		t.Skip("it is run by another test")
	}
	signal.Ignore(unix.SIGCHLD)
	for range 3 {
		c := exec.Command("sh", "-c", loop)
		require.NoError(t, c.Start())
		require.Error(t, c.Wait(), "the kernel has dropped it")
	}
}

// A cgroup counts what its processes use, however they end. Child times need a parent that waits.
func TestTimesOfChildrenWithoutAParentThatWaitsCountInACgroup(t *testing.T) {
	t.Setenv("COMMAND_TEST_IGNORES", "1")
	eachMethod(t, func(t *testing.T, g *Group) {
		p, err := g.Start(Command{Args: []string{os.Args[0], "-test.run=^TestThisProgramAsACommandThatIgnoresItsChildren$"}})
		require.NoError(t, err)
		if g.Method() == ChildTimes {
			require.Eventually(t, func() bool { usedBy(t, g); return g.Lost() != nil }, time.Minute, time.Millisecond)
			assert.ErrorContains(t, g.Lost(), "ignores SIGCHLD: the times of its children that ended are lost")
		}
		status, err := p.Wait()
		require.NoError(t, err)
		assert.Zero(t, status)
		if g.Method() != ChildTimes {
			assert.Greater(t, usedBy(t, g), 5*units.Tick)
			assert.NoError(t, g.Lost())
		}
	})
}

func TestNestedCgroupsCountAndStayWithTheirProcesses(t *testing.T) {
	for _, method := range []Method{CgroupV1, CgroupV2} {
		t.Run(string(method), func(t *testing.T) {
			g, err := newGroup("/", method)
			if err != nil {
				t.Skipf("CPU time cannot be counted by %s: %v", method, err)
			}
			dir := dirOf(g)
			run(t, g, "sh", "-c", fmt.Sprintf("mkdir %s/a && echo $$ >%s/a/cgroup.procs && %s", dir, dir, loop))
			counted := usedBy(t, g)
			assert.Greater(t, counted, 2*units.Tick)
			require.NoError(t, os.Remove(dir+"/a"))
			assert.GreaterOrEqual(t, usedBy(t, g), counted, "after it is gone, too")

			pids := leave(t, g, fmt.Sprintf("mkdir %s/b && sh -c 'echo $$ >%s/b/cgroup.procs; sleep 60 >/dev/null & echo $!'", dir, dir))
			left, err := g.Leftover()
			require.NoError(t, err)
			require.Len(t, left, 1)
			require.Error(t, g.Close(), "a container's limits stay")
			for _, pid := range pids {
				require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
				require.Eventually(t, func() bool { g.reap(); return syscall.Kill(pid, 0) != nil }, time.Minute, time.Millisecond)
			}
			next, err := newGroup("/", method)
			require.NoError(t, err)
			assert.NoDirExists(t, dir, "the next group has removed it")
			assert.NoError(t, next.Close())
		})
	}
}

// A container runtime enables controllers for the cgroups that it makes below a group's. In version
// 2 that needs a cgroup without processes of its own.
func TestTheCgroupItselfHasNoProcesses(t *testing.T) {
	g, err := newGroup("/", CgroupV2)
	if err != nil {
		t.Skipf("CPU time cannot be counted by %s: %v", CgroupV2, err)
	}
	c := g.counter.(*cgroup)
	pids := leave(t, g, "sleep 60 >/dev/null & echo $!")
	require.Len(t, pids, 1)
	own, err := os.ReadFile(filepath.Join(c.dir, "cgroup.procs"))
	require.NoError(t, err)
	assert.Empty(t, own)
	below, err := os.ReadFile(filepath.Join(c.leaf, "cgroup.procs"))
	require.NoError(t, err)
	assert.Contains(t, string(below), strconv.Itoa(pids[0]))
	require.NoError(t, g.Close())
	assert.NoDirExists(t, c.dir)
}

func TestGroupsThatBeginAtOnceDoNotTakeEachOthersForStale(t *testing.T) {
	first, err := newGroup("/", CgroupV2)
	if err != nil {
		t.Skipf("CPU time cannot be counted by %s: %v", CgroupV2, err)
	}
	require.NoError(t, first.Close())
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 60 {
				g, err := newGroup("/", CgroupV2)
				if assert.NoError(t, err) {
					assert.NoError(t, g.Close())
				}
			}
		})
	}
	running.Wait()
}

func TestAGroupCountsByTheNextMethodWhereItsCgroupIsGone(t *testing.T) {
	g, err := newGroup("/", CgroupV2, ChildTimes)
	require.NoError(t, err)
	if g.Method() != CgroupV2 {
		t.Skip("cgroups cannot be made here")
	}
	require.NoError(t, removeTree(g.counter.(*cgroup).dir))
	run(t, g, "sh", "-c", "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done")
	assert.Equal(t, ChildTimes, g.Method())
	assert.NotZero(t, usedBy(t, g))
	assert.Empty(t, g.Path())
	assert.NoError(t, g.Close())
}

func TestSignalsArePassedOn(t *testing.T) {
	eachMethod(t, func(t *testing.T, g *Group) {
		out, in, err := os.Pipe()
		require.NoError(t, err)
		p, err := g.Start(Command{
			Args:   []string{"sh", "-c", `for s in HUP USR1 USR2 TERM; do trap "echo $s" $s; done; echo ready; while kill -0 $PPID; do sleep 0.01; done`},
			Stdout: in, Stderr: os.Stderr,
		})
		require.NoError(t, err)
		require.NoError(t, in.Close())
		stop := p.Relay()
		lines := bufio.NewScanner(out)
		require.True(t, lines.Scan())
		for _, s := range []struct {
			name   string
			signal syscall.Signal
		}{{"HUP", unix.SIGHUP}, {"USR1", unix.SIGUSR1}, {"USR2", unix.SIGUSR2}, {"TERM", unix.SIGTERM}} {
			require.NoError(t, syscall.Kill(os.Getpid(), s.signal))
			require.True(t, lines.Scan())
			assert.Equal(t, s.name, lines.Text())
		}
		require.NoError(t, p.Signal(unix.SIGKILL))
		status, err := p.Wait()
		require.NoError(t, err)
		assert.Equal(t, 128+9, status)
		require.NoError(t, p.Signal(unix.SIGTERM), "it has ended")
		stop()
		assert.NoError(t, out.Close())
	})
}

func TestPathsAreThoseBelowTheMount(t *testing.T) {
	for _, c := range []struct {
		path, root, below string
		ok                bool
	}{
		{"/", "/", "/", true},
		{"/a/b", "/", "/a/b", true},
		{"/a/b", "/a", "/b", true},
		{"/a", "/a", "", true},
		{"/ab", "/a", "b", false},
		{"/../b", "/", "", false},
		{"/b", "/../a", "/b", false},
	} {
		below, ok := pathBelow(c.path, c.root)
		assert.Equal(t, c.ok, ok, c)
		if ok {
			assert.Equal(t, c.below, below, c)
		}
	}
}

func TestThreadsAndDescriptorsAreNotLeft(t *testing.T) {
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	before := open()
	for _, method := range methods {
		for range 3 {
			g, err := newGroup("/", method)
			if err != nil {
				break
			}
			run(t, g, "true")
			usedBy(t, g)
			require.NoError(t, g.Close())
		}
	}
	assert.LessOrEqual(t, open(), before+1, "the poller's")
	tasks, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	for _, task := range tasks {
		if own, err := os.ReadFile("/proc/self/task/" + task.Name() + "/cgroup"); err == nil {
			assert.NotContains(t, string(own), prefix)
		}
	}
}
