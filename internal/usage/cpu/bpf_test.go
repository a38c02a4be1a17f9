// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide/dividetest"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// noKernel is a kernel that accepts all settings.
type noKernel struct{}

func (noKernel) Shrink(int) error         { return nil }
func (noKernel) SetDomains([]int32) error { return nil }
func (noKernel) Watch(func()) error       { return nil }
func (noKernel) Close() error             { return nil }

// fakeKernel is a list of processes and ends for a BPF source without BPF.
type fakeKernel struct {
	noKernel
	listed    []tasks.Process
	slices    []tasks.Slice
	err       error // of the list
	drainErr  error
	same      bool // reports no process as changed unless it describes all
	described int  // how often it described all
	ends      []tasks.Ended
	lost      tasks.Lost
	now       time.Duration
	shrunk    []int
}

func (k *fakeKernel) List(all bool) (tasks.Listing, error) {
	l := tasks.Listing{Processes: k.listed, Slices: k.slices}
	if k.same {
		l.Same = len(k.listed)
	}
	if all {
		k.described++
		for i := range k.listed {
			l.Changed = append(l.Changed, uint64(i))
		}
	}
	return l, k.err
}

func (k *fakeKernel) Drain(yield func(*tasks.Ended)) (tasks.Lost, error) {
	if k.drainErr != nil {
		return tasks.Lost{}, k.drainErr
	}
	for i := range k.ends {
		yield(&k.ends[i])
	}
	lost := k.lost
	k.ends, k.lost = nil, tasks.Lost{}
	return lost, nil
}

func (k *fakeKernel) Shrink(room int) error {
	k.shrunk = append(k.shrunk, room)
	return nil
}

// source returns a source of this kernel, whose clock advances by a second with each scan.
func (k *fakeKernel) source(t testing.TB, o Options) *BPF {
	o.Root = t.TempDir()
	b := newBPF(o, k, k)
	b.bootNow = func() time.Duration { k.now += time.Second; return k.now }
	return b
}

// fakeBPF returns a source after its first scan at 101 s. Its kernel runs process 1 in cgroup 5 and
// process 10 in cgroup 7.
func fakeBPF(t *testing.T) (*fakeKernel, *BPF, *proc.Table) {
	t.Helper()
	return fakeBPFOf(t, Options{})
}

func fakeBPFOf(t *testing.T, o Options) (*fakeKernel, *BPF, *proc.Table) {
	t.Helper()
	k := &fakeKernel{now: 100 * time.Second}
	k.listed = []tasks.Process{
		{Pid: 1, Start: 1, Run: 1000, Cgroup: 5, Threads: 1}, {Pid: 10, Start: 2, Run: 5000, Cgroup: 7, Parent: 1, Threads: 1},
	}
	b, table := k.source(t, o), &proc.Table{}
	require.NoError(t, scanAll(b, table))
	require.Zero(t, table.Used(nil), "the baseline")
	return k, b, table
}

// twoDomains returns the topology of a machine of two domains with a CPU each.
func twoDomains(t testing.TB) *divide.Topology {
	return topologyOf(t, dividetest.MachineOf(t, [2]string{"0", "0"}, [2]string{"1", "0"}))
}

// dividedBPF is fakeBPF on a machine of two domains.
func dividedBPF(t *testing.T, o Options) (*fakeKernel, *BPF, *proc.Table) {
	t.Helper()
	o.Topology = twoDomains(t)
	return fakeBPFOf(t, o)
}

func TestARowHasWhatTheProgramsReport(t *testing.T) {
	k, b, table := fakeBPF(t)
	start := uint64(k.now) + 1
	k.listed[0].Run += 7
	k.listed = append(k.listed, tasks.Process{
		Pid: 20, Start: start, Run: 30, Parent: 10, Threads: 3, Cpu: 2, Uid: 1000, Comm: [16]byte{'w', 'e', 'b'},
		Cgroup: 7, Cgroups: 8, Execs: 9, Resident: 5, Flags: tasks.KernelThread | tasks.Zombie,
	})
	require.NoError(t, scanAll(b, table))
	assert.EqualValues(t, 7, table.Find(1).Used)
	p := table.Find(20)
	assert.EqualValues(t, 30, p.Used, "of a new one all")
	assert.Equal(t, proc.Sight{
		ID: proc.ID{PID: 20, Start: time.Duration(start)}, Parent: 10, Threads: 3, LastCPU: 2,
		Flags: proc.HasUID | proc.Kernel | proc.Zombie | proc.Born, Comm: proc.Comm{'w', 'e', 'b'}, UID: 1000,
		Cgroup: 7, Cgroups: 8, Execs: 9, Resident: 5 * pageSize, CPU: 30,
	}, p.Sight)
	assert.EqualValues(t, 37, table.Used(nil))
}

func TestAFailedBPFScanIsCoveredByTheNext(t *testing.T) {
	for name, fails := range map[string]func(k *fakeKernel, h *switchHook) *error{
		"no list": func(k *fakeKernel, _ *switchHook) *error { return &k.err },
		"no ends": func(k *fakeKernel, _ *switchHook) *error { return &k.drainErr },
		"no ends, and what ran is not reported again": func(k *fakeKernel, h *switchHook) *error {
			h.visitor, h.based, h.most = &fakeVisitor{}, true, 10
			return &k.drainErr
		},
	} {
		t.Run(name, func(t *testing.T) {
			k, b, table := fakeBPF(t)
			k.same = true
			err := fails(k, &b.hook)
			*err = errors.New("refused")
			k.listed[0].Run += 42
			require.ErrorIs(t, scanRan(b, table), *err)
			*err = nil
			require.NoError(t, scanRan(b, table))
			assert.EqualValues(t, 42, table.Find(1).Used)
		})
	}
}

func TestBPFCountsSinceThePast(t *testing.T) {
	k, _, table := fakeBPF(t)
	before, past := table.Now, table.AppendPast(nil)

	start := uint64(k.now) + 1
	k.now += time.Minute
	k.listed[0].Run += 7
	k.listed[1] = tasks.Process{Pid: 20, Start: start, Run: 30, Threads: 1} // and 10 has ended
	k.ends = []tasks.Ended{
		{Pid: 21, Start: start, Run: 11, Cgroup: 5}, // after the source was opened, and before the scan
		{Pid: 5, Start: 3, Run: 1 << 40, Cgroup: 5}, // had ended before
	}
	b := k.source(t, Options{})
	table = proc.New(b.Traits().Traits)
	table.Resume(past, before, true)
	require.NoError(t, scanAll(b, table))
	assert.EqualValues(t, 7, table.Find(1).Used)
	assert.EqualValues(t, 11, charged(table, table.Find(1).Slot))
	assert.EqualValues(t, 30, table.Find(20).Used, "of a new one all")
	assert.EqualValues(t, 48, table.Used(nil))
	require.Len(t, table.Ended, 1)
	assert.Zero(t, table.Ended[0].LastSlice, "nothing reports it")
	assert.Equal(t, proc.Unseen{Untraced: proc.Unbounded}, table.Unseen)
	assert.Zero(t, table.Awaited(), "its end is not waited for")

	k.listed[0].Run += 5
	require.NoError(t, scanAll(b, table))
	assert.EqualValues(t, 5, table.Find(1).Used)
	assert.Zero(t, table.Unseen.Untraced)
}

func TestABPFScanAllocatesNothing(t *testing.T) {
	k, b, table := fakeBPF(t)
	for i := range 10_000 {
		k.listed = append(k.listed, tasks.Process{Pid: uint32(100 + i), Start: uint64(100 + i), Run: uint64(i), Threads: 1})
	}
	rescan := func() {
		k.listed[77].Run++
		require.NoError(t, scanAll(b, table))
	}
	rescan()
	rescan()
	assert.LessOrEqual(t, testing.AllocsPerRun(20, rescan), 20.0, "for any number of processes")
}

func TestBPFFreesMemoryOnceAMinuteAfterABurst(t *testing.T) {
	k, b, table := fakeBPF(t)
	for i := range 40_000 {
		k.listed = append(k.listed, tasks.Process{Pid: uint32(100 + i), Start: uint64(k.now) + uint64(i), Threads: 1, Parent: 1})
	}
	require.NoError(t, scanAll(b, table))
	require.Equal(t, 40_002, table.Len())
	for _, p := range k.listed[2:] {
		k.ends = append(k.ends, tasks.Ended{Pid: p.Pid, Start: p.Start, Run: 9, Parent: 1})
	}
	k.listed = k.listed[:2]
	used := units.CPUTime(0)
	for range 200 { // seconds
		k.listed[1].Run += 3
		require.NoError(t, scanAll(b, table))
		require.Equal(t, 2, table.Len())
		require.EqualValues(t, 3, table.Find(10).Used)
		used += table.Used(nil)
	}
	assert.Equal(t, []int{minRoom}, k.shrunk)
	assert.Less(t, cap(b.listed), 100)
	assert.EqualValues(t, 40_000*9+200*3, used)
}

func TestTheListGrowsWithTheNumberOfProcesses(t *testing.T) {
	rescan, err := tasks.OpenScan(1, tasks.Options{})
	skipUnlessPossible(t, err)
	defer func() { require.NoError(t, rescan.Close()) }()
	pids := map[uint32]bool{}
	for range 65 { // a page has room for 64
		pids[uint32(startBurner(t, nil, "wait").Process.Pid)] = true
	}
	l, err := rescan.List(true)
	require.NoError(t, err)
	for i := range l.Processes {
		delete(pids, l.Processes[i].Pid)
	}
	assert.Empty(t, pids)
}

func TestATooSmallBufferReportsItsLosses(t *testing.T) {
	openHere(t)
	unlessMissed(t, func(t *testing.T) string {
		ends, err := tasks.OpenEndings(4096, tasks.Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, ends.Close()) }()
		b := startBurner(t, nil, "fork:300:1")
		require.NoError(t, b.Wait())
		reported, count, run := 0, uint64(0), units.CPUTime(0)
		for range 200 {
			lost, err := ends.Drain(func(*tasks.Ended) { reported++ })
			require.NoError(t, err)
			count, run = count+lost.Count, run+units.CPUTime(lost.Run)
			if reported+int(count) >= 301 {
				if count == 0 {
					return "the ends were missed, and others came"
				}
				assert.NotZero(t, run)
				return "" // every end is reported or counted
			}
			time.Sleep(5 * time.Millisecond)
		}
		return fmt.Sprintf("%d and %d of 301", reported, count)
	})
}
