// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

func TestBPFFindsTheLastSliceOfAChildThatEndsBetweenScans(t *testing.T) {
	bothLists(t, func(t *testing.T) {
		unlessMissed(t, func(t *testing.T) string {
			o := observe(t)
			child := startBurner(t, nil, "burn:20", "say", "wait", "burn:30")
			child.said()
			o.scan()
			row := o.row(child.Process.Pid)
			require.NotNil(t, row)
			assert.True(t, row.Is(proc.Born))
			assert.Greater(t, row.Used, 5*ms)
			id, before := row.ID, o.billed[row.ID]
			used := child.end()
			found := o.soon(func() bool {
				return slices.ContainsFunc(o.table.Ended, func(e proc.Ended) bool { return e.ID == id })
			})
			if !found {
				return "its end"
			}
			assert.Greater(t, o.billed[id]-before, 25*ms)
			assert.InDelta(t, float64(used), float64(o.billed[id]), float64(2*ms))
			return ""
		})
	})
}

// initialPIDs is the first PID namespace (include/linux/proc_ns.h, PROC_PID_INIT_INO).
const initialPIDs = "pid:[4026531836]"

// readClock returns the CPU time of a process (clock_getcpuclockid(3)), which like a scan's is as
// old as the scheduler's last tick.
func readClock(pid int) units.CPUTime {
	const scheduler = 2 // include/linux/posix-timers_types.h, CPUCLOCK_SCHED: of all threads, in nanoseconds
	var used unix.Timespec
	_ = unix.ClockGettime(^int32(pid)<<3|scheduler, &used) // 0 of a process that is gone
	return units.CPUTime(used.Nano())
}

// What the kernel has counted of a process shows, while it runs too.
func TestAScanShowsAllThatTheKernelHasCounted(t *testing.T) {
	for name, partial := range map[string]bool{"all": false, "ran": true} {
		t.Run(name, func(t *testing.T) {
			skipUnlessPossible(t, tryScan())
			if name, err := os.Readlink("/proc/self/ns/pid"); err != nil || name != initialPIDs {
				t.Skip("processes have other numbers in a PID namespace")
			}
			unlessMissed(t, func(t *testing.T) string {
				ofWhoRan = partial
				defer func() { ofWhoRan = false }()
				o := observe(t)
				var all []*burner
				for _, acts := range [][]string{
					{"burn:500", "wait"}, {"threads:100:1000", "wait"}, {"crowd:10:20000", "wait"}, {"leave:5", "burn:100", "wait"}, {"fork:50:1000", "wait"},
				} {
					all = append(all, startBurner(t, nil, acts...))
				}
				late, compared := 0, 0
				for range 100 {
					time.Sleep(10 * time.Millisecond)
					before := make([]units.CPUTime, len(all))
					for i, b := range all {
						before[i] = readClock(b.Process.Pid)
					}
					o.scan()
					for i, b := range all {
						after := readClock(b.Process.Pid)
						row := o.row(b.Process.Pid)
						if row == nil {
							continue // it has not run yet
						}
						require.LessOrEqual(t, row.CPU, after, "more than it used")
						compared++
						if row.CPU < before[i] {
							late++
						}
					}
				}
				for _, b := range all {
					b.end()
				}
				require.Greater(t, compared, 300)
				if late > compared/50 {
					return fmt.Sprintf("%d of %d are late", late, compared)
				}
				return ""
			})
		})
	}
}

// A scan of all processes right after one of those that ran finds what ran meanwhile, and nothing
// that was missed before.
func TestAScanOfThoseThatRanMissesNothing(t *testing.T) {
	skipUnlessPossible(t, tryScan())
	unlessMissed(t, func(t *testing.T) string {
		ofWhoRan = true
		defer func() { ofWhoRan = false }()
		o := observe(t)
		var all []*burner
		for range 20 {
			all = append(all, startBurner(t, nil, "fork:20:1000", "threads:20:1000", "wait"))
		}
		missed, since := units.CPUTime(0), time.Duration(0)
		for i := range 100 {
			time.Sleep(10 * time.Millisecond)
			o.scans = 1 + i%7
			o.scan()
			if i%10 == 9 {
				from := o.table.Now
				o.scans = 0
				o.scan()
				missed, since = missed+o.table.Used(nil), since+bootNow()-from
			}
		}
		for _, b := range all {
			b.end()
		}
		if most := units.CPUTime(since)*units.CPUTime(runtime.NumCPU()) + ms; missed > most {
			return fmt.Sprintf("%v were found late in %v", time.Duration(missed), since)
		}
		return ""
	})
}

func TestAProcessThatAnotherThreadMadeExecuteIsTheSameProcess(t *testing.T) {
	bothLists(t, func(t *testing.T) {
		o := observe(t)
		b := startBurner(t, nil, "burn:30", "say", "wait", "exec:30", "say", "burn:30", "wait")
		b.said()
		o.scan()
		row := o.row(b.Process.Pid)
		require.NotNil(t, row)
		id, slot := row.ID, row.Slot
		b.resume()
		b.said()
		for range 3 {
			o.scan()
			for i := range o.table.Ended {
				require.NotEqual(t, id.PID, o.table.Ended[i].PID, "it goes on")
			}
		}
		row = o.row(b.Process.Pid)
		require.NotNil(t, row)
		assert.Equal(t, id, row.ID)
		assert.Equal(t, slot, row.Slot)
		assert.EqualValues(t, 1, row.Threads)
		assert.True(t, o.soon(func() bool { return o.billed[id] > 75*ms }), "both threads' time, before and after: %v", o.billed[id])
		used := b.end()
		assert.LessOrEqual(t, o.billed[id], used+schedulerTick, "and none of it twice")
	})
}

func TestAProcessWhoseFirstThreadLeftIsNoZombieForBPF(t *testing.T) {
	bothLists(t, func(t *testing.T) {
		unlessMissed(t, func(t *testing.T) string {
			o := observe(t)
			b := startBurner(t, nil, "leave:20", "say", "wait", "burn:20")
			b.said()
			o.scan()
			row := o.row(b.Process.Pid)
			require.NotNil(t, row, "it is no zombie")
			assert.EqualValues(t, 2, row.Threads, "the first is still counted")
			assert.Greater(t, row.Used, 10*ms)
			id, used := row.ID, b.end()
			ended := o.soon(func() bool { return float64(o.billed[id]) >= 0.7*float64(used) })
			require.LessOrEqual(t, o.billed[id], used+schedulerTick, "none of it twice")
			if !ended {
				return fmt.Sprintf("%v of %v", o.billed[id], used)
			}
			return ""
		})
	})
}

func TestAProcessThatIsNotWaitedForIsAZombieForBPF(t *testing.T) {
	bothLists(t, func(t *testing.T) {
		o := observe(t)
		b := startBurner(t, nil, "burn:5")
		o.until("it is a zombie", func() bool {
			p := o.table.Find(int32(b.Process.Pid))
			return p != nil && p.Is(proc.Zombie) && p.Threads == 1 && o.table.Awaited() == 0
		})
		b.end()
	})
}

func TestTheCgroupIsTheInodeOfItsDirectory(t *testing.T) {
	bothLists(t, func(t *testing.T) {
		var own syscall.Stat_t
		require.NoError(t, syscall.Stat(ownCgroupDir(t), &own))
		group := newCgroup(t)
		b := startBurner(t, group, "say", "wait")
		b.said()
		o := observe(t)
		assert.Equal(t, own.Ino, o.row(os.Getpid()).Cgroup)
		assert.Equal(t, group.id, o.row(b.Process.Pid).Cgroup)
		assert.NotEqual(t, own.Ino, group.id)
		b.end()
	})
}

// names returns the processes of a list by PID, and checks that none is listed twice.
func names(t *testing.T, list lister) map[uint32]tasks.Process {
	t.Helper()
	l, err := list.List(true)
	require.NoError(t, err)
	rows := l.Processes
	all := map[uint32]tasks.Process{}
	for i := range rows {
		_, twice := all[rows[i].Pid]
		require.False(t, twice, "%d is listed twice", rows[i].Pid)
		all[rows[i].Pid] = rows[i]
	}
	return all
}

// openLists opens both lists that the kernel makes.
func openLists(t *testing.T) (rescan, stream lister) {
	t.Helper()
	rescan, err := openScan(tasks.Options{})
	skipUnlessPossible(t, err)
	t.Cleanup(func() { require.NoError(t, rescan.Close()) })
	stream, err = openStream(tasks.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stream.Close()) })
	return rescan, stream
}

func TestScanAndStreamAndProcListTheSameProcesses(t *testing.T) {
	rescan, stream := openLists(t)
	b := startBurner(t, nil, "leave:1", "say", "wait")
	b.said()

	listed := func() map[uint32]bool {
		entries, err := os.ReadDir("/proc")
		require.NoError(t, err)
		pids := map[uint32]bool{}
		for _, e := range entries {
			if pid, ok := parsePID([]byte(e.Name())); ok {
				pids[uint32(pid)] = true
			}
		}
		return pids
	}
	// No two lists are made at the same time. A real difference appears each time.
	unlessMissed(t, func(t *testing.T) string {
		proc := listed()
		before, inStream, after := names(t, rescan), names(t, stream), names(t, rescan)
		procAfter := listed()
		require.Contains(t, before, uint32(os.Getpid()))
		var wrong []string
		same := 0
		for pid, p := range before {
			q, lives := after[pid]
			if !lives || q.Start != p.Start {
				continue
			}
			s, ok := inStream[pid]
			if !ok {
				wrong = append(wrong, fmt.Sprintf("the stream lacks %d", pid))
				continue
			}
			same++
			assert.Equal(t, p.Start, s.Start)
			if p.Parent == q.Parent && p.Parent != s.Parent || p.Cgroup == q.Cgroup && p.Cgroup != s.Cgroup {
				wrong = append(wrong, fmt.Sprintf("parent and cgroup: %v is %v in the stream", p, s))
			}
			// The sum of a process steps back when one of its threads ends.
			if p.Run <= q.Run && p.Threads == q.Threads && (s.Run < p.Run || s.Run > q.Run) {
				wrong = append(wrong, fmt.Sprintf("run: %d of %d is not between %d and %d", s.Run, pid, p.Run, q.Run))
			}
		}
		assert.Greater(t, same, 1, "this process and its child at least")
		for pid := range proc {
			// Some sandboxes hide the process that runs them from BPF.
			if pid != 1 && procAfter[pid] && before[pid].Pid != pid && after[pid].Pid != pid {
				wrong = append(wrong, fmt.Sprintf("%d is in /proc alone", pid))
			}
		}
		return strings.Join(wrong, "; ")
	})
	b.end()
}

func TestScanAndStreamAndProcfsAgreeOnEachProcess(t *testing.T) {
	rescan, stream := openLists(t)
	b := startBurner(t, nil, "burn:50", "say", "wait")
	b.said()
	// Other processes run on other CPUs each time.
	unlessMissed(t, func(t *testing.T) string {
		before, inStream := names(t, rescan), names(t, stream)
		var shown proc.Table
		source := NewProcfs(Options{Root: "/"})
		defer func() { require.NoError(t, source.Close()) }()
		require.NoError(t, scanAll(source, &shown))
		after := names(t, rescan)
		var wrong []string
		same, held := 0, uint64(0)
		for inProc := range shown.All() {
			pid := uint32(inProc.PID)
			p := before[pid]
			if q := after[pid]; p.Pid != pid || p.Threads != 1 || p.Run != q.Run || p.Cpu != q.Cpu || p.Resident != q.Resident {
				continue
			}
			same++
			held += p.Resident
			if s := inStream[pid]; s.Cpu != p.Cpu || s.Resident != p.Resident {
				wrong = append(wrong, fmt.Sprintf("%d is %+v and in the stream %+v", pid, p, s))
			}
			kernel := p.Flags&tasks.KernelThread != 0
			want := inProc.Sight
			want.Parent, want.LastCPU, want.Resident = int32(p.Parent), int32(p.Cpu), p.Resident*pageSize
			want.Start = time.Duration(p.Start).Truncate(time.Duration(Tick))
			if !kernel { // /proc shows more of the name of a kernel thread
				want.Comm = p.Comm
			}
			if inProc.Sight != want || inProc.Is(proc.Kernel) != kernel {
				wrong = append(wrong, fmt.Sprintf("%d is %+v and in /proc %+v", pid, p, inProc.Sight))
			}
			if behind := units.CPUTime(p.Run) - inProc.CPU; behind > 2*Tick { // also if that is below 0
				wrong = append(wrong, fmt.Sprintf("%d used %d and in /proc %d", pid, p.Run, inProc.CPU))
			}
		}
		assert.NotZero(t, same, "its child at least")
		assert.NotZero(t, held, "its child is no kernel thread")
		return strings.Join(wrong, "; ")
	})
	b.end()
}

// The scan reports the CPU of the thread that ran last, wherever the first thread sleeps.
func TestAProcessIsWhereItsThreadsRun(t *testing.T) {
	rescan, err := openScan(tasks.Options{})
	skipUnlessPossible(t, err)
	defer func() { require.NoError(t, rescan.Close()) }()
	needTwoCPUs(t)
	lastCPU := func(first, second int) uint32 {
		b := startBurner(t, nil, fmt.Sprintf("on:%d", first), "second:1", fmt.Sprintf("on:%d", second), "burn:20", "say", "wait")
		defer b.end()
		b.said()
		p, ok := names(t, rescan)[uint32(b.Process.Pid)]
		require.True(t, ok)
		return p.Cpu
	}
	for cpu := range 2 {
		got := lastCPU(1-cpu, cpu)
		// On a busy machine the first thread may be preempted before it sleeps, and run last.
		for try := 0; try < 10 && got != uint32(cpu); try++ {
			got = lastCPU(1-cpu, cpu)
		}
		assert.EqualValues(t, cpu, got)
	}
}

func TestTheListHasRoomForAllProcessesAndNotForTheirThreads(t *testing.T) {
	const threads, slack = 1000, 300
	dir := kernfs.New("/proc")
	defer func() { require.NoError(t, dir.Close()) }()
	ended, ready := make(chan struct{}), sync.WaitGroup{}
	defer close(ended)
	for range threads {
		ready.Add(1)
		go func() {
			runtime.LockOSThread() // and the thread ends with the goroutine
			ready.Done()
			<-ended
		}()
	}
	ready.Wait()
	for {
		before, err := countProcesses(dir)
		require.NoError(t, err)
		listed, err := filepath.Glob("/proc/[0-9]*")
		require.NoError(t, err)
		after, err := countProcesses(dir)
		require.NoError(t, err)
		if before == after { // else other tests start processes
			assert.InDelta(t, len(listed), before, slack)
			break
		}
	}
	assert.GreaterOrEqual(t, initialRoom(), minRoom)
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

func TestBPFLeavesNoDescriptorsBehind(t *testing.T) {
	bothLists(t, func(t *testing.T) {
		openHere(t) // opens the descriptors that the BPF library keeps for good
		host := hostsim.New(t.TempDir())
		require.NoError(t, host.Render())
		cycle := func() {
			source, err := OpenBPF(Options{Root: "/"})
			require.NoError(t, err)
			var table proc.Table
			require.NoError(t, scanAll(source, &table))
			require.NoError(t, source.Close())
			_, err = OpenBPF(Options{Root: host.Root()})
			require.Error(t, err)
			_, err = OpenBPF(Options{Root: t.TempDir()})
			require.Error(t, err)
			t.Run("refused", func(t *testing.T) {
				refuse(t, &openEndings, unix.EPERM)
				_, err = OpenBPF(Options{Root: "/"})
			})
			require.ErrorIs(t, err, unix.EPERM)
		}
		cycle()
		before := openDescriptors(t)
		for range 3 {
			cycle()
		}
		assert.LessOrEqual(t, openDescriptors(t), before)
	})
}

func TestAllProgramsAreLoadedWithTheSameTypesOfTheKernel(t *testing.T) {
	var noted []*btf.Cache
	rescan, ends, created := openScan, openEndings, openCreations
	replace(t, &openScan, func(o tasks.Options) (lister, error) {
		noted = append(noted, o.Types)
		return rescan(o)
	})
	replace(t, &openEndings, func(o tasks.Options) (endings, error) {
		noted = append(noted, o.Types)
		return ends(o)
	})
	replace(t, &openCreations, func(types *btf.Cache) (creations, error) {
		noted = append(noted, types)
		return created(types)
	})
	openHere(t)
	require.Len(t, noted, 3)
	require.NotNil(t, noted[0])
	for _, types := range noted {
		assert.Same(t, noted[0], types)
	}
}

func TestTheTypesOfTheKernelAreNotKept(t *testing.T) {
	openHere(t)
	require.Eventually(t, func() bool {
		runtime.GC()
		maps, err := os.ReadFile("/proc/self/maps")
		require.NoError(t, err)
		return !strings.Contains(string(maps), "/sys/kernel/btf/vmlinux")
	}, time.Minute, time.Millisecond)
}

func TestATreeOfAnotherKernelIsRefusedByName(t *testing.T) {
	host := hostsim.New(t.TempDir())
	require.NoError(t, host.Render())
	source, rejected, err := Open(Options{Kind: Auto, Root: host.Root()})
	require.NoError(t, err)
	assert.Error(t, rejected)
	assert.Equal(t, "procfs", source.Traits().Name)
	require.NoError(t, source.Close())
	_, _, err = Open(Options{Kind: KindBPF, Root: host.Root()})
	require.ErrorContains(t, err, "boot_id")

	dir := filepath.Join(host.Root(), "proc/sys/kernel/random")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	path := filepath.Join(dir, "boot_id")
	require.NoError(t, os.WriteFile(path, []byte("00000000-0000-4000-8000-000000000000\n"), 0o600))
	_, err = OpenBPF(Options{Root: host.Root()})
	require.ErrorIs(t, err, perfevent.ErrOtherKernel)

	// The same kernel, but its processes have other PIDs in this tree.
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, id, 0o600))
	openHere(t)
	_, err = OpenBPF(Options{Root: host.Root()})
	require.ErrorIs(t, err, errOtherKernel)
}

func TestAnErrorOfTheVerifierIsOneLine(t *testing.T) {
	openHere(t)
	log := &ebpf.VerifierError{Cause: unix.EINVAL, Log: strings.Split("0: (85) call unknown#1\n"+strings.Repeat("1: R1=ctx(off=0)\n", 400)+"calling invalid kernel function", "\n")}
	refuse(t, &openScan, fmt.Errorf("load the task scan: %w", log))
	source, rejected, err := Open(Options{Kind: Auto, Root: "/"})
	require.NoError(t, err)
	assert.NoError(t, rejected)
	assert.Equal(t, "bpf (task stream)", source.Traits().Name)
	require.NoError(t, source.Close())

	refuse(t, &openStream, fmt.Errorf("load the task stream: %w", log))
	source, rejected, err = Open(Options{Kind: Auto, Root: "/"})
	require.NoError(t, err)
	assert.Equal(t, otherThanBPF(), source.Traits().Name)
	require.NoError(t, source.Close())
	assert.ErrorContains(t, rejected, "task scan")
	assert.ErrorContains(t, rejected, "task stream")
	assert.ErrorContains(t, rejected, "calling invalid kernel function")
	assert.NotContains(t, rejected.Error(), "\n")
	assert.Less(t, len(rejected.Error()), 500)
	_, _, err = Open(Options{Kind: KindBPF, Root: "/"})
	assert.ErrorContains(t, err, "read CPU times by BPF: load the task scan")
	assert.NotContains(t, err.Error(), "\n")
}
