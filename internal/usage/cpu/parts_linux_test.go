// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"os"
	"runtime"
	"slices"
	"testing"
	"testing/quick"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide/dividetest"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

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
		parts := slices.Clone(table.Parts(p))
		assert.Equal(t, p.Used, parts[0]+parts[1])
		return parts
	}
	assert.Zero(t, parts(first)[1])
	assert.Zero(t, parts(second)[0])
	first.Socket = 1
	rescan()
	assert.Zero(t, parts(first)[0], "all of it")
}

// sliced is a kernel that reports on which CPUs threads ran.
type sliced struct {
	*fakeKernel
	slices []tasks.Slice
}

func (k *sliced) List(bool) (tasks.Listing, error) {
	return tasks.Listing{Processes: k.listed, Slices: k.slices}, nil
}

func TestBPFDividesAProcessByItsThreads(t *testing.T) {
	fake, b, table := fakeBPF(t)
	k := &sliced{fakeKernel: fake}
	b.list = k
	b.topology = topologyOf(t, dividetest.MachineOf(t, [2]string{"0", "0"}, [2]string{"1", "0"}))
	rescan := func() {
		t.Helper()
		require.NoError(t, scanAll(b, table))
	}
	rescan()
	k.listed[0].Run += 100
	k.listed[0].Slice = 2
	k.listed[1].Run += 10
	k.listed[1].Cpu = 1
	k.slices = []tasks.Slice{{}, {Cpu: 0, Run: 1}, {Cpu: 1, Run: 3, Next: 1}}
	rescan()
	assert.Equal(t, []units.CPUTime{25, 75}, table.Parts(&table.Rows[0]))
	assert.Equal(t, []divide.Slice{{CPU: 1, Used: 75}, {CPU: 0, Used: 25}}, table.Slices(&table.Rows[0]))
	assert.Equal(t, []divide.Slice{{CPU: 1, Used: 10}}, table.Slices(&table.Rows[1]))
	assert.Equal(t, []units.CPUTime{0, 10}, table.Parts(&table.Rows[1]), "without slices, by its CPU")
	assert.Equal(t, []units.CPUTime{25, 85}, []units.CPUTime{table.RunIn(0), table.RunIn(1)})

	k.listed[0].Run += 100
	k.slices = []tasks.Slice{{}, {Cpu: 1}, {Cpu: 1, Next: 1}}
	rescan()
	assert.Equal(t, []units.CPUTime{100, 0}, table.Parts(&table.Rows[0]), "no thread grew")
	assert.Equal(t, []divide.Slice{{CPU: 0, Used: 100}}, table.Slices(&table.Rows[0]))
	k.slices = nil
	k.listed[0].Run += 100
	rescan()
	assert.Equal(t, []units.CPUTime{100, 0}, table.Parts(&table.Rows[0]), "the slice is missing")
}

func TestBPFDividesTheEndsOfProcesses(t *testing.T) {
	k, b, table := fakeBPF(t)
	b.topology = topologyOf(t, dividetest.MachineOf(t, [2]string{"0", "0"}, [2]string{"1", "0"}))
	require.NoError(t, scanAll(b, table))
	k.listed = k.listed[:1]
	start := uint64(k.now) + 1
	k.ends = []tasks.Ended{
		{Pid: 10, Start: 2, Run: 5100, Cgroup: 7, Parent: 1, Weights: []uint64{4000, 1000}},
		{Pid: 30, Start: start, Run: 11, Cgroup: 5, Parent: 1, Weights: []uint64{0, 11}},   // a cgroup with a row
		{Pid: 31, Start: start, Run: 13, Cgroup: 5, Parent: 1, Weights: []uint64{13, 0}},   // and again
		{Pid: 32, Start: start, Run: 20, Cgroup: 99, Parent: 77, Weights: []uint64{15, 5}}, // a cgroup without rows
	}
	require.NoError(t, scanAll(b, table))
	require.Len(t, table.Ended, 1)
	assert.Equal(t, []units.CPUTime{80, 20}, table.LastSliceParts(&table.Ended[0]))
	assert.Equal(t, []units.CPUTime{13, 11}, table.ShortLivedParts(&table.Rows[0]))
	assert.Equal(t, []units.CPUTime{15, 5}, table.UnplacedParts())
	assert.Equal(t, []units.CPUTime{80 + 13 + 15, 20 + 11 + 5}, []units.CPUTime{table.RunIn(0), table.RunIn(1)})
	require.NoError(t, scanAll(b, table))
	assert.Equal(t, []units.CPUTime{0, 0}, table.ShortLivedParts(&table.Rows[0]))
	assert.Equal(t, []units.CPUTime{0, 0}, table.UnplacedParts())
}

func TestShortLivedProcessesOfSeveralDomainsTakeNoMemoryForLong(t *testing.T) {
	k, b, table := fakeBPF(t)
	b.topology = topologyOf(t, dividetest.MachineOf(t, [2]string{"0", "0"}, [2]string{"1", "0"}))
	ends := make([]tasks.Ended, 1000)
	inUse := func(scans int) uint64 {
		for range scans {
			for i := range ends {
				ends[i] = tasks.Ended{Pid: uint32(100 + i), Start: uint64(k.now) + 1, Run: 5, Cgroup: 5, Parent: 1, Weights: []uint64{2, 3}}
			}
			k.ends = ends
			require.NoError(t, scanAll(b, table))
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := inUse(2)
	assert.Less(t, inUse(200), before+1<<20)
	runtime.KeepAlive(b)
}

// The parts of everything that a scan reports add up to the CPU time that ran.
func TestTheDomainsHaveAllThatRan(t *testing.T) {
	events := 3000
	if testing.Short() {
		events = 1000
	}
	for name, exact := range map[string]bool{"procfs": false, "BPF": true} {
		t.Run(name, func(t *testing.T) {
			l := hostsim.NewLife(twoSockets(t, 2))
			options := Options{Root: l.Host.Root(), Topology: topologyOf(t, l.Host.Root())}
			var source Source = NewProcfs(options)
			if exact {
				k := hostsim.NewKernel(l.Machine)
				source = NewSimulatedBPF(options, k, k.Now)
			}
			table := &proc.Table{}
			divided := units.CPUTime(0)
			both := func(all units.CPUTime, parts []units.CPUTime) {
				require.Len(t, parts, 2)
				require.Equal(t, all, parts[0]+parts[1])
				divided += parts[1]
			}
			for _, e := range hostsim.NewHistory(7, events, hostsim.CommonWeights()) {
				if l.Apply(e); e.Act != hostsim.Advance {
					continue
				}
				for i, task := range l.Tasks {
					if i%3 == 0 {
						task.Socket = int(e.B>>8) % 2
					}
				}
				l.Step(time.Duration(e.A%3000) * time.Millisecond)
				require.NoError(t, l.Render())
				require.NoError(t, scanAll(source, table))
				for i := range table.Rows {
					p := &table.Rows[i]
					both(p.Used, table.Parts(p))
					both(p.ShortLived, table.ShortLivedParts(p))
				}
				for i := range table.Ended {
					both(table.Ended[i].LastSlice, table.LastSliceParts(&table.Ended[i]))
				}
				for i := range table.ShortLivedIn {
					both(table.ShortLivedIn[i].Used, table.PartsIn(&table.ShortLivedIn[i]))
				}
				both(unplaced(table), table.UnplacedParts())
				if exact {
					require.Equal(t, table.Used(nil), table.RunIn(0)+table.RunIn(1))
				}
			}
			assert.NotZero(t, divided)
		})
	}
}

// Threads are pinned to CPUs that are presented as separate packages.
func TestBPFDividesAProcessWithThreadsOnTwoCPUs(t *testing.T) {
	var allowed unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &allowed))
	if !allowed.IsSet(0) || !allowed.IsSet(1) {
		t.Skip("needs CPUs 0 and 1")
	}
	bothLists(t, func(t *testing.T) {
		topology := topologyOf(t, dividetest.MachineOf(t, [2]string{"0", "0"}, [2]string{"1", "0"}))
		b, err := OpenBPF(Options{Root: "/", Topology: topology})
		skipUnlessPossible(t, err)
		defer func() { require.NoError(t, b.Close()) }()
		table, rescanned := &proc.Table{}, scanAll
		if ofWhoRan {
			b.attachHook(t)
			require.NoError(t, scanAll(b, table))
			rescanned = scanRan
		}
		rescan := func() *proc.Process {
			t.Helper()
			require.NoError(t, rescanned(b, table))
			i := slices.IndexFunc(table.Rows, func(p proc.Process) bool { return int(p.PID) == os.Getpid() })
			require.GreaterOrEqual(t, i, 0)
			return &table.Rows[i]
		}
		begin, done := make(chan struct{}), make(chan struct{})
		pinned := func(cpu int, burns time.Duration) {
			runtime.LockOSThread() // the thread ends with the goroutine
			var set unix.CPUSet
			set.Set(cpu)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				t.Error(err)
			}
			done <- struct{}{}
			<-begin
			spin(burns)
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
		parts := table.Parts(p)
		require.Equal(t, p.Used, parts[0]+parts[1])
		require.Greater(t, p.Used, 150*ms)
		share := float64(parts[1]) / float64(p.Used)
		assert.InDelta(t, 0.8, share, 0.1, "%v of %v", parts, p.Used)
		var on [2]units.CPUTime
		for _, s := range table.Splits.Slices(p.Split, p.Used, p.LastCPU) {
			on[s.CPU] += s.Used
		}
		assert.Equal(t, parts, on[:], "each CPU is a domain")
		before := [2]units.CPUTime{table.RunIn(0), table.RunIn(1)}
		rescan()
		assert.Equal(t, table.Used(nil), table.RunIn(0)+table.RunIn(1))
		assert.GreaterOrEqual(t, table.RunIn(1), before[1])
	})
}

// onCPUs adds up what the processes of a cgroup used on CPUs 0 and 1.
func onCPUs(t *testing.T, table *proc.Table, group uint64, on *[2]units.CPUTime) {
	t.Helper()
	for i := range table.Rows {
		p := &table.Rows[i]
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
	var allowed unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &allowed))
	if !allowed.IsSet(0) || !allowed.IsSet(1) {
		t.Skip("needs CPUs 0 and 1")
	}
	skipUnlessPossible(t, tryScan())
	open := func() (*BPF, *proc.Table) {
		b, err := OpenBPF(Options{Root: "/", Slices: true})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		return b, &proc.Table{}
	}
	all, allTable := open()
	partial, table := open()
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
	var allowed unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &allowed))
	if !allowed.IsSet(0) || !allowed.IsSet(1) {
		t.Skip("needs CPUs 0 and 1")
	}
	unlessMissed(t, func(t *testing.T) string {
		topology := topologyOf(t, dividetest.MachineOf(t, [2]string{"0", "0"}, [2]string{"1", "0"}))
		b, err := OpenBPF(Options{Root: "/", Topology: topology})
		skipUnlessPossible(t, err)
		defer func() { require.NoError(t, b.Close()) }()
		table := &proc.Table{}
		require.NoError(t, scanAll(b, table))
		group := newCgroup(t)
		anchor := startBurner(t, group, "say", "wait")
		anchor.said()
		require.NoError(t, scanAll(b, table))
		child := startBurner(t, group, "on:1", "burn:60")
		used := child.end()
		var first, second units.CPUTime
		for range 50 {
			require.NoError(t, scanAll(b, table))
			for i := range table.Rows {
				if p := &table.Rows[i]; p.Cgroup == group.id {
					parts := table.ShortLivedParts(p)
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
	openStream = func(o tasks.Options) (lister, error) {
		if o.Slices {
			return nil, errNoKfunc
		}
		return stream(o)
	}
	defer func() { openStream = stream }()
	b, err := OpenBPF(Options{Root: "/", Topology: topologyOf(t, dividetest.MachineOf(t, [2]string{"0", "0"}, [2]string{"1", "0"}))})
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	assert.Equal(t, "bpf (task stream)", b.Traits().Name)
	require.ErrorContains(t, b.Traits().Lacks, "what each thread of a process used")
	table := &proc.Table{}
	require.NoError(t, scanAll(b, table))
	require.NoError(t, scanAll(b, table))
	for _, i := range table.Active {
		p := &table.Rows[i]
		parts := table.Parts(p)
		assert.Equal(t, p.Used, parts[b.topology.Of(p.LastCPU)])
		assert.Equal(t, p.Used, parts[0]+parts[1])
	}
}
