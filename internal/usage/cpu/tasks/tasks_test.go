// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package tasks

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// skipUnlessPossible skips a test if the error says that this machine lacks something, and fails it
// for any other error.
func skipUnlessPossible(t *testing.T, err error) {
	t.Helper()
	switch _, btf := os.Stat("/sys/kernel/btf/vmlinux"); {
	case err == nil:
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		t.Skip("needs root, or CAP_BPF and CAP_PERFMON:", err)
	case errors.Is(btf, fs.ErrNotExist):
		t.Skip("the kernel has no BTF:", err)
	case errors.Is(err, ebpf.ErrNotSupported):
		t.Skip("the kernel lacks what the programs need:", err)
	default:
		require.NoError(t, err)
	}
}

func openScan(t *testing.T, room int, o Options) *Scan {
	t.Helper()
	s, err := OpenScan(room, o)
	skipUnlessPossible(t, err)
	t.Cleanup(func() {
		assert.NoError(t, s.Close())
		assert.NoError(t, s.Close(), "again")
	})
	return s
}

// clock reads a clock of the calling thread or process.
func clock(t *testing.T, id int32) time.Duration {
	t.Helper()
	var now unix.Timespec
	require.NoError(t, unix.ClockGettime(id, &now))
	return time.Duration(now.Nano())
}

func TestTheErrorOfALoadNamesTheProgram(t *testing.T) {
	original := newCollection
	newCollection = func(*ebpf.CollectionSpec, ebpf.CollectionOptions) (*ebpf.Collection, error) {
		return nil, ebpf.ErrNotSupported
	}
	t.Cleanup(func() { newCollection = original })
	var errs [4]error
	_, errs[0] = OpenScan(1, Options{})
	_, errs[1] = OpenStream(Options{})
	_, errs[2] = OpenEndings(4096, Options{})
	_, errs[3] = OpenRan(1, nil, false)
	for i, program := range []string{"task scan", "task stream", "hook on process exits", "hook on context switches"} {
		require.ErrorIs(t, errs[i], ebpf.ErrNotSupported)
		require.ErrorContains(t, errs[i], "load the "+program)
	}
}

func TestAScanWhoseResultsCannotBeMappedFailsUntilTheyCan(t *testing.T) {
	s := openScan(t, 1, Options{})
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	before, original := open(), mapMemory
	t.Cleanup(func() { mapMemory = original })
	mapMemory = func(int, int64, int, int, int) ([]byte, error) { return nil, unix.ENOMEM }
	_, err := OpenScan(1, Options{})
	require.ErrorIs(t, err, unix.ENOMEM)
	require.ErrorContains(t, err, "map processes of the task scan")
	for range 2 { // there is no shorter list the second time
		_, err = s.List(true)
		require.ErrorIs(t, err, unix.ENOMEM)
	}
	assert.LessOrEqual(t, open(), before, "nothing stays open")
	mapMemory = original
	l, err := s.List(true)
	require.NoError(t, err)
	assert.Greater(t, len(l.Processes), 1)
}

// streamOf returns the processes that a stream makes of these tasks.
func streamOf(tasks ...Process) ([]Process, error) {
	s := &Stream{}
	for i := range tasks {
		s.add(&tasks[i])
	}
	l, err := s.sum()
	return l.Processes, err
}

func TestTheStreamAddsUpThreadsWhereverTheyAreListed(t *testing.T) {
	rows, err := streamOf(
		Process{Pid: 300, Run: 1000, Dead: 70},                       // a thread with a lower number than its process
		Process{Pid: 100, Start: 5, Threads: 3, Run: 10, Dead: 2},    // the tasks of other processes are in between
		Process{Pid: 200, Start: 4, Threads: 1, Run: 20},             // created before, with a higher number
		Process{Pid: 100, Run: 30, Dead: 2},                          //
		Process{Pid: 300, Start: 6, Threads: 2, Run: 400, Dead: 580}, // a thread ended since the first was listed
		Process{Pid: 100, Run: 50, Dead: 40},                         //
		Process{Pid: 999, Run: 1 << 40},                              // its process has ended
	)
	require.NoError(t, err)
	assert.Equal(t, []Process{
		{Pid: 200, Start: 4, Threads: 1, Run: 20},
		{Pid: 100, Start: 5, Threads: 3, Run: 92},
		{Pid: 300, Start: 6, Threads: 2, Run: 1470},
	}, rows)
}

func TestAnEmptyStreamIsAnError(t *testing.T) {
	_, err := streamOf()
	require.ErrorIs(t, err, errNothing)
	_, err = streamOf(Process{Pid: 1, Run: 5})
	require.ErrorIs(t, err, errNothing)
}

func TestTheStreamIsInTheOrderOfCreation(t *testing.T) {
	s, err := OpenStream(Options{})
	skipUnlessPossible(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	l, err := s.List(true)
	require.NoError(t, err)
	for i := 1; i < len(l.Processes); i++ {
		require.LessOrEqual(t, l.Processes[i-1].Start, l.Processes[i].Start)
	}
	again, err := s.List(true)
	require.NoError(t, err)
	assert.True(t, slices.ContainsFunc(again.Processes, func(p Process) bool { return int(p.Pid) == os.Getpid() }))
}

// end starts a process that ends at once, and waits for it.
func end(t *testing.T) {
	t.Helper()
	process, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
	require.NoError(t, err)
	_, err = process.Wait()
	require.NoError(t, err)
}

// withThread runs processes at the same time. Each process has a thread that exits before the process.
func withThread(t *testing.T, program string, processes int) {
	t.Helper()
	type waiting struct {
		*exec.Cmd
		in io.Closer
	}
	var all []waiting
	for range processes {
		cmd := exec.Command(program, "threads:1:2000", "wait")
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		all = append(all, waiting{cmd, in})
	}
	for _, p := range all {
		require.NoError(t, p.in.Close())
		require.NoError(t, p.Wait())
	}
}

func TestTheRoomForThreadsOfExitedProcessesGrowsWithTheCPUs(t *testing.T) {
	for _, cpus := range []int{1, 8, 128, 256, 8192} {
		assert.GreaterOrEqual(t, int(roomForThreads(cpus))-128*cpus, 1<<14, "%d CPUs, each with 128 elements in advance", cpus)
	}
}

func TestProcessesWhoseThreadsWereEvictedAreCounted(t *testing.T) {
	program := build(t)
	const processes, room = 128, 16
	original := newCollection
	t.Cleanup(func() { newCollection = original })
	newCollection = func(spec *ebpf.CollectionSpec, o ebpf.CollectionOptions) (*ebpf.Collection, error) {
		assert.Greater(t, spec.Maps[tasksMapFreedThreads].MaxEntries, uint32(1<<14+128*ebpf.MustPossibleCPU()))
		spec.Maps[tasksMapFreedThreads].MaxEntries = room
		return original(spec, o)
	}
	e, err := OpenEndings(EndingsBuffer, Options{})
	skipUnlessPossible(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	for incomplete := uint64(0); incomplete < (processes-room)/2; { // once all at the same time had their threads freed
		withThread(t, program, processes)
		lost, err := e.Drain(func(*Ended) {})
		require.NoError(t, err)
		incomplete = lost.Incomplete
	}
}

func TestABufferIsReportedWhenItIsHalfFull(t *testing.T) {
	for name, domains := range map[string]int{"undivided": 0, "divided": maxDomains} {
		t.Run(name, func(t *testing.T) {
			e, err := OpenEndings(os.Getpagesize(), Options{Domains: domains})
			skipUnlessPossible(t, err)
			defer func() { require.NoError(t, e.Close()) }()
			half := os.Getpagesize() / 2 / (endedSize + 8*domains + 8)
			rang := make(chan int, 1000) // the numbers of ends
			ends := 0
			drain := func() {
				before := ends
				_, err := e.Drain(func(*Ended) { ends++ })
				assert.NoError(t, err)
				rang <- ends - before
			}
			require.NoError(t, e.Watch(drain))
			<-rang // at first
			for {
				select {
				case n := <-rang:
					assert.GreaterOrEqual(t, n, half)
					return
				default:
					end(t)
				}
			}
		})
	}
}
