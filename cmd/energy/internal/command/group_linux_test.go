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

// open makes a group that counts by a method, if this machine has it.
func open(t *testing.T, method Method) *Group {
	t.Helper()
	g, err := newGroup("/", method)
	if err != nil {
		t.Skipf("this machine has no %s: %v", method, err)
	}
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	return g
}

// eachMethod runs a test with each method.
func eachMethod(t *testing.T, test func(t *testing.T, g *Group)) {
	for _, method := range []Method{CgroupV2, CgroupV1, ChildTimes} {
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

func TestACommandHasTheStatusOrTheErrorThatAShellReports(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	write("unexecutable", "#!/bin/sh\n", 0o644)
	orphan, garbage := write("orphan", "#!/no/such/interpreter\n", 0o755), write("garbage", "\x7fELF no program\n", 0o755)
	write("script", "exit $1\n", 0o755)
	eachMethod(t, func(t *testing.T, g *Group) {
		for name, want := range map[string]error{
			"": ErrNotFound, "no-such-program": ErrNotFound, dir + "/no-such-program": ErrNotFound, orphan: ErrNotFound,
			"unexecutable": ErrNotExecutable, dir + "/unexecutable": ErrNotExecutable, dir: ErrNotExecutable,
		} {
			_, err := g.Start(Command{Args: []string{name, "x"}})
			require.ErrorIs(t, err, want, "%q", name)
		}
		_, err := g.Start(Command{})
		require.Error(t, err)
		assert.NotZero(t, run(t, g, garbage), "sh complains, as with execvp(3)")
		assert.Equal(t, 5, run(t, g, "script", "5"))
		assert.Zero(t, run(t, g, "true"))
		assert.Equal(t, 128+9, run(t, g, "sh", "-c", "kill -9 $$"))
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
	eachMethod(t, func(t *testing.T, g *Group) {
		pids := leave(t, g, `(setsid sleep 60 >/dev/null & echo $!) & (sleep 61 >/dev/null & echo $!); wait $!`)
		left, err := g.Leftover()
		require.NoError(t, err)
		var found []int
		for _, l := range left {
			found = append(found, l.PID)
			assert.Less(t, l.CPU, time.Second)
		}
		assert.ElementsMatch(t, pids, found)
		assert.NoError(t, g.Close())
		for _, pid := range pids {
			assert.NoError(t, syscall.Kill(pid, 0))
			own, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
			require.NoError(t, err)
			assert.NotContains(t, string(own), prefix)
		}
	})
}

func TestOrphansAreReapedAndCount(t *testing.T) {
	eachMethod(t, func(t *testing.T, g *Group) {
		pids := leave(t, g, "(sh -c '"+loop+"' >/dev/null & echo $!)")
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
	other := exec.Command("sh", "-c", loop)
	require.NoError(t, other.Start())
	eachMethod(t, func(t *testing.T, g *Group) {
		run(t, g, "true")
		assert.Less(t, usedBy(t, g), 100*units.CPUTime(time.Millisecond))
	})
	g := open(t, ChildTimes)
	require.NoError(t, unix.Waitid(unix.P_PID, other.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil))
	usedBy(t, g)
	assert.NoError(t, other.Wait())
}

// TestThisProgramAsACommandThatIgnoresItsChildren is run by another test.
func TestThisProgramAsACommandThatIgnoresItsChildren(t *testing.T) {
	if os.Getenv("COMMAND_TEST_IGNORES") == "" {
		t.Skip("only a child process of another test runs it")
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
			assert.ErrorContains(t, g.Lost(), "ignores SIGCHLD: the times of its exited children are lost")
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
			g := open(t, method)
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
			require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
			require.Eventually(t, func() bool { g.reap(); return syscall.Kill(pids[0], 0) != nil }, time.Minute, time.Millisecond)
			open(t, method)
			assert.NoDirExists(t, dir, "the next group has removed it")
		})
	}
}

// A container runtime enables controllers for the cgroups that it makes below a group's. In version
// 2 that needs a cgroup without processes of its own.
func TestTheCgroupItselfHasNoProcesses(t *testing.T) {
	g := open(t, CgroupV2)
	pids := leave(t, g, "sleep 60 >/dev/null & echo $!")
	for dir, want := range map[string]string{"": "", "command": fmt.Sprintln(pids[0])} {
		procs, err := os.ReadFile(filepath.Join(dirOf(g), dir, "cgroup.procs"))
		require.NoError(t, err)
		assert.Equal(t, want, string(procs))
	}
	require.NoError(t, g.Close())
	assert.NoDirExists(t, dirOf(g))
}

func TestGroupsThatBeginAtOnceDoNotTakeEachOthersForStale(t *testing.T) {
	open(t, CgroupV2)
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

func TestAGroupCountsByTheNextMethodIfItsCgroupIsRemoved(t *testing.T) {
	g := open(t, CgroupV2)
	g.untried = []Method{ChildTimes}
	require.NoError(t, removeTree(dirOf(g)))
	run(t, g, "sh", "-c", loop)
	assert.Equal(t, ChildTimes, g.Method())
	assert.NotZero(t, usedBy(t, g))
	assert.Empty(t, g.Path())
}

func TestSignalsArePassedOn(t *testing.T) {
	g := open(t, ChildTimes)
	out, in, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, out.SetReadDeadline(time.Now().Add(time.Minute))) // of a signal that is not passed on
	p, err := g.Start(Command{
		Args:   []string{"sh", "-c", `for s in HUP USR1 USR2 TERM; do trap "echo $s" $s; done; echo ready; while kill -0 $PPID; do sleep 0.01; done`},
		Stdout: in, Stderr: os.Stderr,
	})
	require.NoError(t, err)
	require.NoError(t, in.Close())
	defer p.Relay()()
	defer func() {
		require.NoError(t, p.Signal(unix.SIGKILL))
		_, err = p.Wait()
		require.NoError(t, err)
		require.NoError(t, p.Signal(unix.SIGTERM), "it has ended")
		assert.NoError(t, out.Close())
	}()
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	for _, s := range []syscall.Signal{unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTERM} {
		require.NoError(t, syscall.Kill(os.Getpid(), s))
		require.True(t, lines.Scan(), "%v was not passed on", s)
		assert.Equal(t, unix.SignalName(s), "SIG"+lines.Text())
	}
}

func TestPathsAreThoseBelowTheMount(t *testing.T) {
	for _, c := range []struct{ path, root, below string }{
		{"/", "/", "/"}, {"/a/b", "/", "/a/b"}, {"/a/b", "/a", "/b"}, {"/a", "/a", ""},
		{"/ab", "/a", "none"}, {"/../b", "/", "none"}, {"/b", "/../a", "none"},
	} {
		below, ok := pathBelow(c.path, c.root)
		assert.Equal(t, c.below != "none", ok, c)
		if ok {
			assert.Equal(t, c.below, below, c)
		}
	}
}

func TestThreadsAndDescriptorsAreNotLeft(t *testing.T) {
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	before := descriptors()
	eachMethod(t, func(t *testing.T, g *Group) {
		run(t, g, "true")
		usedBy(t, g)
	})
	assert.LessOrEqual(t, descriptors(), before+1, "the poller's")
	tasks, err := filepath.Glob("/proc/self/task/*/cgroup")
	require.NoError(t, err)
	for _, task := range tasks {
		if own, err := os.ReadFile(task); err == nil {
			assert.NotContains(t, string(own), prefix)
		}
	}
}
