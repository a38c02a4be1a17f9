// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// partsOf returns what a process used by domain, and checks that the parts add up.
func partsOf(t testing.TB, table *proc.Table, p *proc.Process) []units.CPUTime {
	t.Helper()
	parts := slices.Clone(table.Splits.Parts(p.Split, p.Used, p.LastCPU))
	require.Len(t, parts, 2)
	require.Equal(t, p.Used, parts[0]+parts[1])
	return parts
}

func TestProcfsCountsAProcessWhereItWasLast(t *testing.T) {
	m := twoSockets(t, 2)
	first, second := run(m, 0, 0.5), run(m, 1, 0.25)
	source := NewProcfs(Options{Root: m.Host.Root(), Topology: topologyOf(t, m.Host.Root())})
	table := &proc.Table{}
	rescan := func() {
		t.Helper()
		m.Step(time.Second)
		require.NoError(t, m.Render())
		require.NoError(t, scanAll(source, table))
	}
	rescan()
	rescan()
	parts := func(task *hostsim.Task) []units.CPUTime {
		p := table.Find(int32(task.PID))
		require.NotZero(t, p.Used)
		return partsOf(t, table, p)
	}
	assert.Zero(t, parts(first)[1])
	assert.Zero(t, parts(second)[0])
	first.Socket = 1
	rescan()
	assert.Zero(t, parts(first)[0], "all of it")
}

func TestBPFDividesAProcessByItsThreads(t *testing.T) {
	k, b, table := dividedBPF(t, Options{})
	k.listed[0].Run += 100
	k.listed[0].Slice = 2
	k.listed[1].Run += 10
	k.listed[1].Cpu = 1
	k.slices = []tasks.Slice{{}, {Cpu: 0, Run: 1}, {Cpu: 1, Run: 3, Next: 1}}
	require.NoError(t, scanAll(b, table))
	assert.Equal(t, []units.CPUTime{25, 75}, partsOf(t, table, table.Find(1)))
	assert.Equal(t, []units.CPUTime{0, 10}, partsOf(t, table, table.Find(10)), "without slices, by its CPU")
}

// The kernel had no room for the slices of process 1, and process 10 ended in both domains.
func TestAProcessWithoutRoomForItsSlicesGetsNoOthers(t *testing.T) {
	for slice := range uint32(4) {
		k, b, table := dividedBPF(t, Options{})
		k.listed[0].Run += 90
		k.listed[0].Slice, k.slices = slice, make([]tasks.Slice, 1)
		k.ends = []tasks.Ended{{Pid: 10, Start: 2, Run: 5123, Cgroup: 7, Weights: []uint64{1, 2}}}
		require.NoError(t, scanAll(b, table))
		p := table.Find(1)
		assert.Equal(t, []proc.Slice{{CPU: 0, Used: 90}}, table.Splits.Slices(p.Split, p.Used, p.LastCPU), slice)
	}
}

// needTwoCPUs skips a test unless it may run on CPUs 0 and 1.
func needTwoCPUs(t *testing.T) {
	var allowed unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &allowed))
	if !allowed.IsSet(0) || !allowed.IsSet(1) {
		t.Skip("needs CPUs 0 and 1")
	}
}

// Threads are pinned to CPUs that are presented as separate packages.
func TestBPFDividesAProcessWithThreadsOnTwoCPUs(t *testing.T) {
	needTwoCPUs(t)
	bothLists(t, func(t *testing.T) {
		b := openHereWith(t, Options{Topology: twoDomains(t)})
		table, rescanned := &proc.Table{}, scanAll
		if ofWhoRan {
			b.attachHook(t)
			require.NoError(t, scanAll(b, table))
			rescanned = scanRan
		}
		rescan := func() *proc.Process {
			t.Helper()
			require.NoError(t, rescanned(b, table))
			p := table.Find(int32(os.Getpid()))
			require.NotNil(t, p)
			return p
		}
		begin, done := make(chan struct{}), make(chan struct{})
		var used [2]time.Duration
		pinned := func(cpu int, burns time.Duration) {
			runtime.LockOSThread() // the thread ends with the goroutine
			var set unix.CPUSet
			set.Set(cpu)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				t.Error(err)
			}
			done <- struct{}{}
			<-begin
			first := threadTime()
			spin(burns)
			used[cpu] = threadTime() - first
			done <- struct{}{}
			<-begin
		}
		defer close(begin)
		go pinned(0, 40*time.Millisecond)
		go pinned(1, 160*time.Millisecond)
		<-done
		<-done
		rescan()
		rescan()
		begin <- struct{}{}
		begin <- struct{}{}
		<-done
		<-done
		p := rescan()
		parts := partsOf(t, table, p)
		// Other threads of this process, such as the garbage collector, run on either CPU.
		for cpu, least := range used {
			assert.Greater(t, parts[cpu], units.CPUTime(least)-ms, "%v of %v, CPU %d", parts, p.Used, cpu)
		}
		var on [2]units.CPUTime
		for _, s := range table.Splits.Slices(p.Split, p.Used, p.LastCPU) {
			on[s.CPU] += s.Used
		}
		assert.Equal(t, parts, on[:], "each CPU is a domain")
	})
}

// onCPUs adds up what the processes of a cgroup used on CPUs 0 and 1.
func onCPUs(t *testing.T, table *proc.Table, group uint64, on *[2]units.CPUTime) {
	t.Helper()
	for p := range table.All() {
		if p.Cgroup != group {
			continue
		}
		var sum units.CPUTime
		for _, s := range table.Splits.Slices(p.Split, p.Used, p.LastCPU) {
			sum += s.Used
			if s.Used > 0 {
				on[s.CPU] += s.Used
			}
		}
		require.Equal(t, p.Used, sum)
	}
}

// A process burns with one thread on CPU 0, then with another one on CPU 1, while one source scans
// those that ran. A scan of all by another source, at the end, shows the same.
func TestScansOfWhoRanHaveTheSameSlicesAsScansOfAll(t *testing.T) {
	needTwoCPUs(t)
	skipUnlessPossible(t, tryScan())
	all, allTable := openHereWith(t, Options{Slices: true}), &proc.Table{}
	partial, table := openHereWith(t, Options{Slices: true}), &proc.Table{}
	partial.attachHook(t)
	require.NoError(t, scanAll(all, allTable))
	require.NoError(t, scanAll(partial, table))
	group := newCgroup(t)
	worker := startBurner(t, group, "on:0", "burn:40", "second:0", "on:1", "burn:120", "say", "wait")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = worker.out.ReadString('\n')
	}()
	var got, want [2]units.CPUTime
	for busy := true; busy; {
		select {
		case <-done:
			busy = false
		case <-time.After(5 * time.Millisecond):
		}
		require.NoError(t, scanRan(partial, table))
		onCPUs(t, table, group.id, &got)
	}
	require.NoError(t, scanAll(all, allTable))
	onCPUs(t, allTable, group.id, &want)
	require.NoError(t, scanRan(partial, table))
	onCPUs(t, table, group.id, &got)
	require.Greater(t, want[0], 30*ms)
	require.Greater(t, want[1], 100*ms)
	for cpu := range want {
		assert.InDelta(t, uint64(want[cpu]), uint64(got[cpu]), float64(8*ms), "CPU %d", cpu) // it starts where it likes
	}
	worker.end()
}

func TestBPFReportsTheDomainsOfEndedThreads(t *testing.T) {
	needTwoCPUs(t)
	unlessMissed(t, func(t *testing.T) string {
		b, err := OpenBPF(Options{Root: "/", Topology: twoDomains(t)})
		skipUnlessPossible(t, err)
		defer func() { require.NoError(t, b.Close()) }()
		table := &proc.Table{}
		require.NoError(t, scanAll(b, table))
		group, anchor := newCgroupWithARow(t)
		require.NoError(t, scanAll(b, table))
		child := startBurner(t, group, "on:1", "burn:60")
		used := child.end()
		var first, second units.CPUTime
		for range 50 {
			require.NoError(t, scanAll(b, table))
			for i := range table.Charges {
				if c := &table.Charges[i]; c.Slot >= 0 && table.Rows[c.Slot].Cgroup == group.id {
					parts := table.ChargeParts(c)
					first, second = first+parts[0], second+parts[1]
				}
			}
			if first+second >= used {
				break
			}
			time.Sleep(5 * time.Millisecond) // the kernel frees it after a grace period
		}
		anchor.end()
		if first+second < used {
			return "its end"
		}
		assert.GreaterOrEqual(t, second, used-2*ms)
		assert.Less(t, first, 2*ms)
		return ""
	})
}

func TestWhereProgramsCannotNoteThreadsBPFDividesByProcess(t *testing.T) {
	openHere(t)
	refuse(t, &openScan, errNoKfunc)
	stream := openStream
	replace(t, &openStream, func(o tasks.Options) (lister, error) {
		if o.Slices {
			return nil, errNoKfunc
		}
		return stream(o)
	})
	b := openHereWith(t, Options{Topology: twoDomains(t)})
	assert.Equal(t, "bpf (task stream)", b.Traits().Name)
	require.ErrorContains(t, b.Traits().Lacks, "CPU time of each thread of a process")
	table := &proc.Table{}
	require.NoError(t, scanAll(b, table))
	require.NoError(t, scanAll(b, table))
	for _, i := range table.Active {
		p := &table.Rows[i]
		assert.Equal(t, p.Used, partsOf(t, table, p)[b.topology.Of(p.LastCPU)])
	}
}
