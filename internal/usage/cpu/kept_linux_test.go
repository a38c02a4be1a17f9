// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
)

// openStats returns the processes below root whose text this process has open.
func openStats(t testing.TB, root string) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		if name, ok := strings.CutPrefix(target, filepath.Join(root, "proc")+"/"); err == nil && ok && strings.HasSuffix(name, "/stat") {
			pid, err := strconv.Atoi(strings.TrimSuffix(name, "/stat"))
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// keeping is a host with ten processes and the source that reads it.
type keeping struct {
	*hostsim.Host
	testing.TB
	source *Procfs
	table  scan.Table
}

func newKeeping(t testing.TB) *keeping {
	k := &keeping{Host: hostsim.New(t.TempDir()), TB: t}
	k.source = NewProcfs(k.Root())
	t.Cleanup(func() { assert.NoError(t, k.source.Close()) })
	for pid := 2; pid <= 10; pid++ {
		k.Processes[pid] = &hostsim.Process{Comm: "p", Start: int64(pid)}
	}
	return k
}

// scan lets time pass, in which each process uses as many ticks as its number, and scans.
func (k *keeping) scan(after time.Duration) {
	k.Helper()
	used := map[int]int64{}
	for pid := range k.Processes {
		used[pid] = int64(pid)
	}
	k.Run(after, used)
	require.NoError(k, k.Render())
	_, err := k.source.ReadNode()
	require.NoError(k, err)
	require.NoError(k, k.source.ReadProcesses(&k.table))
	require.Len(k, k.table.Processes, len(k.Processes))
}

func (k *keeping) requireUsed() {
	k.Helper()
	for i := range k.table.Processes {
		p := &k.table.Processes[i]
		require.Equal(k, Tick*units.CPUTime(p.PID), p.Used, p.PID)
	}
}

func TestProcessesOfTwoScansStayOpenUntilTheyEnd(t *testing.T) {
	k := newKeeping(t)
	k.scan(time.Second)
	assert.Empty(t, openStats(t, k.Root()), "the first scan has shown them once")
	k.scan(time.Second)
	assert.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, openStats(t, k.Root()))
	k.scan(time.Second)
	k.requireUsed()

	delete(k.Processes, 4)
	delete(k.Processes, 10)
	k.scan(time.Second)
	k.requireUsed()
	assert.Equal(t, []int{1, 2, 3, 5, 6, 7, 8, 9}, openStats(t, k.Root()))
	k.Processes[4] = &hostsim.Process{Comm: "next", Start: int64(k.Uptime / hostsim.Tick)}
	k.scan(time.Second)
	k.scan(time.Second)
	assert.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, openStats(t, k.Root()))
	require.NoError(t, k.source.Close())
	assert.Empty(t, openStats(t, k.Root()))
}

func TestANumberThatIsUsedAgainIsAnotherProcess(t *testing.T) {
	k := newKeeping(t)
	k.scan(time.Second)
	k.scan(time.Second)
	// The process ends and another one gets its number: the file that is open is empty, and the one
	// of that name is another.
	dir := filepath.Join(k.Root(), "proc/7")
	require.NoError(t, os.Truncate(filepath.Join(dir, "stat"), 0))
	require.NoError(t, os.RemoveAll(dir))
	k.Processes[7] = &hostsim.Process{Comm: "next", Start: int64(k.Uptime / hostsim.Tick), User: 3}
	k.scan(time.Second)
	p := scan.Find(k.table.Processes, 7)
	assert.Equal(t, "next", p.Comm.String())
	assert.True(t, p.Born)
	assert.Equal(t, 10*Tick, p.Used, "all that it used")
	assert.Len(t, k.table.Ended, 1)
}

func TestFilesThatCannotBeReadAreOpenedAgain(t *testing.T) {
	k := newKeeping(t)
	k.scan(time.Second)
	k.scan(time.Second)
	for _, err := range []error{syscall.EIO, syscall.ESRCH} {
		failed := map[string]bool{}
		restore := kernfs.InjectFaults(func(path string, got []byte, was error) ([]byte, error) {
			if strings.HasSuffix(path, "/stat") && filepath.Base(filepath.Dir(path)) != "proc" && !failed[path] {
				failed[path] = true
				return nil, err
			}
			return got, was
		})
		k.scan(time.Second)
		restore()
		assert.Len(t, failed, 10)
		assert.False(t, k.table.Hidden)
		k.requireUsed()
	}
}

func TestNoMoreFilesStayOpenThanThereIsRoomFor(t *testing.T) {
	k := newKeeping(t)
	k.source.kept.allowance.Most = 4
	for range 4 {
		k.scan(time.Second)
	}
	k.requireUsed()
	assert.Equal(t, []int{1, 2, 3, 4}, openStats(t, k.Root()))
	delete(k.Processes, 2)
	k.scan(time.Second)
	assert.Equal(t, []int{1, 3, 4, 5}, openStats(t, k.Root()))
}

// mayOpen runs f while this process may open so many descriptors.
func mayOpen(t *testing.T, descriptors uint64, f func()) {
	t.Helper()
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: descriptors, Max: limit.Max}))
	f()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
}

func TestSourcesOfOneProcessTogetherKeepAnEighthOfItsDescriptorsOpen(t *testing.T) {
	const budget = 60
	var sources []*keeping
	mayOpen(t, 8*budget, func() {
		for range 17 {
			sources = append(sources, newKeeping(t))
		}
	})
	open := func() (files []int) {
		for _, k := range sources {
			files = append(files, len(openStats(t, k.Root())))
		}
		return files
	}
	rescan := func() {
		for _, k := range sources {
			k.scan(time.Second)
			k.scan(time.Second)
			k.scan(time.Second)
			k.requireUsed()
		}
	}
	rescan()
	assert.Equal(t, append(slices.Repeat([]int{10}, 6), make([]int, 11)...), open(), "the others read without keeping files open")

	require.NoError(t, sources[0].source.Close())
	delete(sources[1].Processes, 5)
	sources = sources[1:]
	rescan()
	assert.Equal(t, append([]int{9, 10, 10, 10, 10, 10, 1}, make([]int, 9)...), open(), "the next source takes what is given back")
}

func TestFilesStayOpenOnlyWhereScansAreClose(t *testing.T) {
	k := newKeeping(t)
	for range 3 {
		k.scan(10 * time.Second)
	}
	assert.Empty(t, openStats(t, k.Root()))
}

func TestFilesThatStayOpenDoNotTakeTheLastDescriptor(t *testing.T) {
	k := newKeeping(t)
	k.scan(time.Second)
	k.Run(time.Second, nil)
	require.NoError(t, k.Render())

	restore := leave(t, 6)
	require.NoError(t, k.source.ReadProcesses(&k.table))
	restore()
	kept := openStats(t, k.Root())
	assert.NotEmpty(t, kept)
	assert.LessOrEqual(t, len(kept), 3)
	k.scan(time.Second)
	k.scan(time.Second)
	assert.Equal(t, kept, openStats(t, k.Root()), "for good")
	assert.False(t, k.table.Hidden)
}

// leave limits the process to this many descriptors more than it has, until restore is called.
func leave(t *testing.T, more int) (restore func()) {
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	dup, err := unix.Dup(0) // the lowest number that is free
	require.NoError(t, err)
	require.NoError(t, unix.Close(dup))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(dup + more), Max: limit.Max}))
	return func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }
}

func TestHalfOfTheFilesAreClosedWhenNoDescriptorIsLeft(t *testing.T) {
	k := newKeeping(t)
	k.scan(time.Second)
	k.scan(time.Second)
	k.Processes[11] = &hostsim.Process{Comm: "late", Start: int64(k.Uptime / hostsim.Tick)}
	k.Run(time.Second, nil)
	require.NoError(t, k.Render())

	restore := leave(t, 0)
	_, err := k.source.readStat(11, false)
	restore()
	require.NoError(t, err)
	assert.Len(t, openStats(t, k.Root()), 5)
	k.scan(time.Second)
	k.scan(time.Second)
	assert.Len(t, openStats(t, k.Root()), 5, "for good")
}

func TestARealProcessIsReadThroughItsOpenFileUntilItEnds(t *testing.T) {
	child := exec.Command("sleep", "60")
	require.NoError(t, child.Start())
	pid := int32(child.Process.Pid)
	source := NewProcfs("/")
	source.kept.allowance.Most = 1 << 20
	defer func() { require.NoError(t, source.Close()) }()
	var table scan.Table
	for range 3 {
		require.NoError(t, source.ReadProcesses(&table))
	}
	require.NotNil(t, scan.Find(table.Processes, pid))
	require.Contains(t, openStats(t, "/"), int(pid))
	require.NoError(t, child.Process.Kill())
	_ = child.Wait() // killed
	require.NoError(t, source.ReadProcesses(&table))
	assert.Nil(t, scan.Find(table.Processes, pid))
	assert.NotContains(t, openStats(t, "/"), int(pid))
}
