// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"errors"
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

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// unlisted returns a thread of this process, which /proc does not list but shows by its number, and
// its content.
func unlisted(t *testing.T, source *Procfs) proc.Sight {
	t.Helper()
	tid, stop := make(chan int), make(chan struct{})
	t.Cleanup(func() { close(stop) })
	thread := func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		tid <- unix.Gettid()
		<-stop
	}
	go thread()
	own := <-tid
	if own == os.Getpid() { // the process's first thread, which is now in use: the next one is another thread
		go thread()
		own = <-tid
	}
	var p proc.Sight
	require.NoError(t, source.readProcess(int32(own), &p, true))
	return p
}

func TestANumberThatTheListingLacksIsAProcessIfThatStartedThen(t *testing.T) {
	source := realProc(t)
	lacking := unlisted(t, source)
	for isThread, start := range map[bool]time.Duration{false: lacking.Start, true: lacking.Start - time.Duration(Tick)} {
		table := proc.New(source.Traits().Traits)
		table.Resume([]proc.Past{{PID: lacking.PID, Start: start, CPU: lacking.CPU}}, time.Hour, false)
		require.NoError(t, scanAll(source, table))
		found := table.Find(lacking.PID)
		if isThread {
			assert.Nil(t, found, "its time is in its process's")
			assert.True(t, slices.ContainsFunc(table.Ended, func(e proc.Ended) bool { return e.PID == lacking.PID }))
		} else if assert.NotNil(t, found) {
			assert.False(t, found.Is(proc.Born))
		}
	}
}

// processTime returns the CPU time of this process.
func processTime(t *testing.T) units.CPUTime {
	t.Helper()
	var ts unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts))
	return units.CPUTime(ts.Nano())
}

func TestOwnCPUTimeIsFoundOnThisMachine(t *testing.T) {
	source := realProc(t)
	own := int32(os.Getpid())
	var table proc.Table
	windows := newWindows(t, "/")
	read := func() (Node, *proc.Process) {
		node, err := windows.read(source, &table, Want{All: true})
		require.NoError(t, err)
		p := table.Find(own)
		require.NotNil(t, p)
		return node, p
	}
	first := processTime(t)
	_, p := read()
	assert.Zero(t, p.Used)
	slot := p.Slot
	burnt := processTime(t)
	for processTime(t) < burnt+300*ms {
	}
	node, p := read()
	last := processTime(t)
	assert.False(t, p.Is(proc.Born))
	assert.Equal(t, slot, p.Slot)
	// User and system time are each rounded down to a tick, and the scans use some time, too.
	const rounding = 2 * Tick
	assert.Greater(t, p.Used, 300*ms-rounding)
	assert.Less(t, p.Used, last-first+rounding)
	assert.LessOrEqual(t, node.Busy, node.Total)
	assert.LessOrEqual(t, node.Process, node.Busy)
	assert.GreaterOrEqual(t, node.Total, 250*ms)
	boot, err := BootTime("/")
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now().Add(-table.Now), boot, 2*time.Minute)
}

// A user blocks the list of /proc. The processes of the previous scan are read by their PIDs.
func TestABlockedListDoesNotBlockAScan(t *testing.T) {
	w := watch(t)
	w.source.list = guardListing(kernfs.GuardOptions[*listing]{Root: w.Root(), Everywhere: true}, listTime)
	var pipe [2]int
	require.NoError(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if path == filepath.Join(w.Root(), "proc") {
			_, _ = unix.Read(pipe[0], make([]byte, 1)) // until the pipe is closed
		}
		return got, err
	})()
	require.NoError(t, w.Render())
	require.ErrorIs(t, scanAll(w.source, &w.table), kernfs.ErrUnread, "no process is known")
	require.NoError(t, unix.Close(pipe[1]))
	w.add(42, hostsim.Process{Parent: 1})
	finds := func(processes int) func() bool {
		return func() bool {
			w.Run(time.Second, nil)
			return w.Render() == nil && scanAll(w.source, &w.table) == nil && len(w.pids()) == processes && w.source.Traits().Unread == nil
		}
	}
	require.Eventually(t, finds(2), time.Minute, time.Millisecond)
	require.NoError(t, unix.Close(pipe[0]))
	require.NoError(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	w.add(43, hostsim.Process{Parent: 1})
	for range 3 {
		w.Run(10*time.Second, map[int]int64{42: 300})
		w.scan()
		assert.Equal(t, []int32{1, 42}, w.pids())
		assert.Equal(t, 300*Tick, w.used(42))
	}
	require.ErrorIs(t, w.source.Traits().Unread, errListBlocked)
	require.NoError(t, unix.Close(pipe[1]))
	require.Eventually(t, finds(3), time.Minute, time.Millisecond)
	require.NoError(t, unix.Close(pipe[0]))
}

// A FIFO stands for a file whose name cannot be looked up, because a process holds the lock of the
// directory.
func TestANewProcessThatIsBlockedDoesNotStopAScan(t *testing.T) {
	w := watch(t)
	w.add(10, hostsim.Process{})
	w.add(11, hostsim.Process{})
	require.NoError(t, w.Render())
	path := w.path(10, "stat")
	require.NoError(t, os.Rename(path, path+"-before"))
	require.NoError(t, unix.Mkfifo(path, 0o644))
	w.source.first = guardFirstReads(kernfs.GuardOptions[*firstRead]{Root: w.Root(), Everywhere: true, Haste: 2 * time.Second})
	w.next()
	require.Equal(t, []int32{1, 11}, w.pids())
	assert.True(t, w.table.Unseen.Hidden)
	require.NoError(t, w.source.Traits().Unread, "the read may return soon")
	w.source.first.Begin(time.Unix(0, 0).Add(w.Uptime + time.Second))
	require.ErrorContains(t, w.source.Traits().Unread, "CPU times of some processes cannot be read")
	fifo, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	_, err = fifo.WriteString("\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return w.source.first.Err("x") == nil }, time.Minute, time.Millisecond)
	require.NoError(t, fifo.Close())
	require.NoError(t, os.Rename(path+"-before", path))
	w.Run(2*time.Minute, nil)
	w.scan()
	assert.Equal(t, []int32{1, 10, 11}, w.pids())
}

// A PID may be reused between two scans. The kernel has not looked up the files of the new process
// then.
func TestAProcessThatIsNotInTheKernelsCacheIsReadByTheGuard(t *testing.T) {
	w := watch(t)
	p := w.add(10, hostsim.Process{Comm: "app"})
	w.scan()
	p.Comm = "other"
	w.pass()
	reads := 0
	defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if filepath.Base(filepath.Dir(path)) != "10" {
			return got, err
		}
		if reads++; reads == 1 {
			return nil, kernfs.ErrNotCached
		}
		return got, err
	})()
	w.scan()
	comm := w.process(10).Comm
	assert.Equal(t, "other", comm.String())
	assert.False(t, w.table.Unseen.Hidden)
	assert.GreaterOrEqual(t, reads, 2)
}

func TestNamesOfManyNewProcessesAreLookedUpBeforeTheyAreRead(t *testing.T) {
	source := realProc(t)
	if !source.cached.NeverWaits() {
		t.Skip("lacks openat2(2) with RESOLVE_CACHED for procfs, Linux 5.16")
	}
	cmd := exec.Command("sleep", "1000")
	require.NoError(t, cmd.Start())
	defer func() {
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
	}()
	pid := int32(cmd.Process.Pid)
	s, err := source.begin(proc.New(source.Traits().Traits))
	require.NoError(t, err)
	for _, n := range []int{63, 64} {
		s.lookUp(slices.Repeat([]int32{pid}, n))
		for _, name := range []string{"stat", "cgroup"} {
			_, err = source.cached.ReadOf(pid, name, source.buf)
			assert.Equal(t, n < 64, errors.Is(err, kernfs.ErrNotCached), name)
		}
	}
}
