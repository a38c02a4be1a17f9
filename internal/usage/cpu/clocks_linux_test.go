// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

func TestTheClockOfAProcess(t *testing.T) {
	before, err := ReadCPUClock(0)
	require.NoError(t, err)
	own, err := ReadCPUClock(int32(os.Getpid()))
	require.NoError(t, err)
	assert.GreaterOrEqual(t, own, before)

	sleep := exec.Command("sleep", "60")
	require.NoError(t, sleep.Start())
	pid := int32(sleep.Process.Pid)
	_, err = ReadCPUClock(pid)
	require.NoError(t, err)
	require.NoError(t, sleep.Process.Kill())
	_ = sleep.Wait() // it was killed
	_, err = ReadCPUClock(pid)
	require.ErrorIs(t, err, syscall.EINVAL, "it was waited for")
}

// The kernel shows the clock of a process by the number of the calling thread.
func TestAThreadOfThisProcessIsNoProcess(t *testing.T) {
	source, windows := newClocks(Options{Root: "/"}, gatedFrom, ReadCPUClock), newWindows(t, "/")
	source.isOwn = isOwnThread
	defer func() { require.NoError(t, source.Close()) }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		table := &proc.Table{}
		for range 3 {
			_, err := windows.read(source, table, Want{All: true})
			assert.NoError(t, err)
		}
		source.numbers.last, source.numbers.before = int32(syscall.Gettid())-1, int32(syscall.Gettid())-1
		_, err := windows.read(source, table, Want{All: true})
		assert.NoError(t, err)
		for i := range table.Rows {
			pid := int(table.Rows[i].PID)
			assert.False(t, pid != os.Getpid() && pid == syscall.Gettid())
		}
	}()
	<-done
	assert.False(t, isOwnThread(int32(os.Getpid())))
	assert.False(t, isOwnThread(1))
}

func TestClocksAreNotReadWhereNumbersAreThoseOfAnotherNamespace(t *testing.T) {
	root := t.TempDir()
	self := filepath.Join(root, "proc", strconv.Itoa(os.Getpid()), "ns")
	link := func(self, namespace string) {
		require.NoError(t, os.RemoveAll(filepath.Join(root, "proc")))
		require.NoError(t, os.MkdirAll(filepath.Join(root, "proc", self, "ns"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, "proc/stat"), nil, 0o600))
		require.NoError(t, os.Symlink(self, filepath.Join(root, "proc/self")))
		require.NoError(t, os.Symlink(namespace, filepath.Join(root, "proc/self/ns/pid")))
	}
	require.ErrorContains(t, checkClocks(root), "root_path: "+root+" does not contain the /proc of the host")
	link(strconv.Itoa(os.Getpid()), initialPIDNamespace)
	require.NoError(t, checkClocks(root), self)
	link(strconv.Itoa(os.Getpid()+1), initialPIDNamespace)
	require.ErrorIs(t, checkClocks(root), errOtherNamespace, "this process has another number there")
	link(strconv.Itoa(os.Getpid()), "pid:[4026532201]")
	require.ErrorIs(t, checkClocks(root), errOtherNamespace)

	source, rejected, err := Open(Options{Kind: KindClocks, Root: root})
	require.NoError(t, err)
	assert.Equal(t, "procfs", source.Traits().Name)
	require.ErrorIs(t, rejected, errOtherNamespace)
	require.NoError(t, source.Close())
}

func TestClocksOfThisMachine(t *testing.T) {
	source, rejected, err := Open(Options{Kind: KindClocks, Root: "/"})
	require.NoError(t, err)
	if rejected != nil {
		t.Skipf("lacks the CPU clocks of the host's processes: %v", rejected)
	}
	defer func() { require.NoError(t, source.Close()) }()
	table, windows := &proc.Table{}, newWindows(t, "/")
	rescan := func() *proc.Process {
		_, err := windows.read(source, table, Want{})
		require.NoError(t, err)
		return table.Find(int32(os.Getpid()))
	}
	rescan()
	before, err := ReadCPUClock(0)
	require.NoError(t, err)
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
	}
	child := exec.Command("true")
	require.NoError(t, child.Start())
	own := rescan()
	require.NotNil(t, own)
	after, err := ReadCPUClock(0)
	require.NoError(t, err)
	assert.LessOrEqual(t, own.Used, after)
	assert.LessOrEqual(t, own.CPU, after)
	assert.GreaterOrEqual(t, own.CPU, before)
	born := table.Find(int32(child.Process.Pid))
	require.NotNil(t, born, "found by its number, waited for or not")
	assert.Equal(t, int32(os.Getpid()), born.Parent)
	require.NoError(t, child.Wait())
}

// A user blocks the list of /proc for longer than listAgain.
func TestNewProcessesAreFoundByTheirNumbersWhileTheListIsBlocked(t *testing.T) {
	w := watchClocks(t)
	w.clocks.list = guardListing(kernfs.GuardOptions[*listing]{Root: w.Root(), Everywhere: true, Haste: 2 * time.Second}, listTime)
	w.scan()
	w.pass()
	w.scan()
	var pipe [2]int
	require.NoError(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	returned := make(chan struct{})
	defer func() { <-returned; assert.NoError(t, unix.Close(pipe[0])) }()
	defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if path == filepath.Join(w.Root(), "proc") {
			_, _ = unix.Read(pipe[0], make([]byte, 1)) // until the pipe is closed
			close(returned)
		}
		return got, err
	})()
	defer func() { assert.NoError(t, unix.Close(pipe[1])) }()
	w.Run(listAgain, nil)
	for range 2 {
		pid := w.fork(hostsim.Process{Parent: 1, User: 2})
		w.scan()
		assert.Equal(t, 2*Tick, w.used(pid))
		assert.True(t, w.table.Unseen.Hidden)
		w.pass()
	}
}
