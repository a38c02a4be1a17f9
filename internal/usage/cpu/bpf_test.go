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

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// fakeKernel is a list of processes and ends for a BPF source without BPF.
type fakeKernel struct {
	listed []tasks.Process
	ends   []tasks.Ended
	count  uint64
	lost   uint64
	err    error
	now    time.Duration
	shrunk []int

	incomplete uint64
}

func (*fakeKernel) Close() error { return nil }

func (k *fakeKernel) List(bool) (tasks.Listing, error) {
	return tasks.Listing{Processes: k.listed}, k.err
}

func (k *fakeKernel) Drain(yield func(*tasks.Ended)) (tasks.Lost, error) {
	for i := range k.ends {
		yield(&k.ends[i])
	}
	lost := tasks.Lost{Count: k.count, Run: k.lost, Incomplete: k.incomplete}
	k.ends, k.count, k.lost, k.incomplete = nil, 0, 0, 0
	return lost, nil
}

// fakeBPF returns a source whose kernel runs process 1 in cgroup 5, after its first scan at 100 s.
func fakeBPF(t *testing.T) (*fakeKernel, *BPF, *proc.Table) {
	t.Helper()
	k := &fakeKernel{now: 100 * time.Second}
	k.listed = []tasks.Process{{Pid: 1, Start: 1, Run: 1000, Cgroup: 5, Threads: 1}, {Pid: 10, Start: 2, Run: 5000, Cgroup: 7, Parent: 1, Threads: 1}}
	b := newBPF(Options{Root: t.TempDir()}, k, k)
	b.bootNow = func() time.Duration { k.now += time.Second; return k.now }
	table := &proc.Table{}
	require.NoError(t, scanAll(b, table))
	return k, b, table
}

func TestBPFCountsTimeSinceTheLastScan(t *testing.T) {
	k, b, table := fakeBPF(t)
	assert.Zero(t, table.Rows[0].Used, "the baseline")
	assert.Zero(t, table.Used(nil))
	k.listed[0].Run += 7
	k.listed = append(k.listed, tasks.Process{Pid: 20, Start: uint64(k.now) + 1, Run: 30, Threads: 1})
	require.NoError(t, scanAll(b, table))
	assert.EqualValues(t, 7, table.Rows[0].Used)
	assert.EqualValues(t, 30, table.Rows[2].Used, "of a new one all")
	assert.EqualValues(t, 37, table.Used(nil))
}

func TestBPFGivesAProcessItsExactLastSlice(t *testing.T) {
	for name, late := range map[string]bool{"reported at once": false, "reported a scan later": true} {
		t.Run(name, func(t *testing.T) {
			k, b, table := fakeBPF(t)
			k.listed = k.listed[:1]
			end := tasks.Ended{Pid: 10, Start: 2, Run: 5123, Cgroup: 7, Parent: 1}
			if late {
				require.NoError(t, scanAll(b, table))
				require.Empty(t, table.Ended)
				require.Equal(t, 2, table.Len(), "it is waited for")
				assert.True(t, table.Rows[1].Is(proc.Zombie))
			}
			k.ends = []tasks.Ended{end}
			require.NoError(t, scanAll(b, table))
			require.Len(t, table.Ended, 1)
			assert.EqualValues(t, 123, table.Ended[0].LastSlice)
			assert.EqualValues(t, 123, table.Used(nil))
			assert.Zero(t, unplaced(table))
			require.NoError(t, scanAll(b, table))
			assert.Empty(t, table.Ended, "once")
		})
	}
}

func TestBPFGivesShortLivedTimeToItsCgroupOrParentOrUnattributed(t *testing.T) {
	k, b, table := fakeBPF(t)
	start := uint64(k.now) + 1
	k.ends = []tasks.Ended{
		{Pid: 30, Start: start, Run: 11, Cgroup: 7, Parent: 999},
		{Pid: 31, Start: start, Run: 13, Cgroup: rootCgroup, Parent: 32}, // its parent has ended too
		{Pid: 32, Start: start, Run: 17, Cgroup: rootCgroup, Parent: 1},
		{Pid: 33, Start: start, Run: 19, Cgroup: 4711, Parent: 1},
		{Pid: 34, Start: uint64(time.Second), Run: 1 << 40, Cgroup: 7}, // before the first scan
	}
	require.NoError(t, scanAll(b, table))
	assert.EqualValues(t, 11, beside(table, 1))
	assert.EqualValues(t, 13+17, beside(table, 0))
	assert.EqualValues(t, 19, unplaced(table))
	assert.EqualValues(t, 60, table.Used(nil))
	require.NoError(t, scanAll(b, table))
	assert.Zero(t, beside(table, 1)+beside(table, 0)+unplaced(table), "once")
}

func TestAFailedBPFScanIsCoveredByTheNext(t *testing.T) {
	k, b, table := fakeBPF(t)
	k.err = errors.New("refused")
	k.listed[0].Run += 40
	require.ErrorIs(t, scanAll(b, table), k.err)
	k.err = nil
	k.listed[0].Run += 2
	require.NoError(t, scanAll(b, table))
	assert.EqualValues(t, 42, table.Rows[0].Used)
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

func TestBPFRefusesATreeThatIsNotThisKernels(t *testing.T) {
	host := hostsim.New(t.TempDir())
	require.NoError(t, host.Render())
	_, err := OpenBPF(Options{Root: host.Root()})
	require.Error(t, err)
	source, rejected, err := Open(Options{Kind: Auto, Root: host.Root()})
	require.NoError(t, err)
	assert.Error(t, rejected)
	assert.Equal(t, "procfs", source.Traits().Name)
	require.NoError(t, source.Close())
	_, _, err = Open(Options{Kind: KindBPF, Root: host.Root()})
	require.Error(t, err)
}

func TestWithoutTheScanTheStreamIsTakenAndWithoutBothTheClocks(t *testing.T) {
	openHere(t)
	refuse(t, &openScan, errNoKfunc)
	source := openHere(t)
	assert.Contains(t, source.Traits().Name, "stream")
	refuse(t, &openStream, errors.New("load the task stream: refused"))
	fallback, rejected, err := Open(Options{Kind: Auto, Root: "/"})
	require.NoError(t, err)
	assert.Equal(t, otherThanBPF(), fallback.Traits().Name)
	assert.ErrorContains(t, rejected, "task stream")
	assert.ErrorContains(t, rejected, "task scan")
	assert.NotContains(t, rejected.Error(), "\n")
	require.NoError(t, fallback.Close())
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

func TestTwiceAsManyProcessesInOneScanAreAllCounted(t *testing.T) {
	k, b, table := fakeBPF(t)
	for i := range 5000 {
		k.listed = append(k.listed, tasks.Process{Pid: uint32(100 + i), Start: uint64(k.now) + uint64(i), Run: 2, Threads: 1})
	}
	require.NoError(t, scanAll(b, table))
	assert.EqualValues(t, 10_000, table.Used(nil))
	for i := range 5000 {
		k.listed = append(k.listed, tasks.Process{Pid: uint32(10_000 + i), Start: uint64(k.now) + uint64(i), Run: 1, Threads: 1})
	}
	require.NoError(t, scanAll(b, table))
	assert.EqualValues(t, 15_000, table.Used(nil))
}

// Shrink makes the fake kernel a lister that can give back memory.
func (k *fakeKernel) Shrink(room int) error {
	k.shrunk = append(k.shrunk, room)
	return nil
}

func TestBPFGivesBackMemoryOnceAMinuteAfterABurst(t *testing.T) {
	k, b, table := fakeBPF(t)
	for i := range 40_000 {
		k.listed = append(k.listed, tasks.Process{Pid: uint32(100 + i), Start: uint64(k.now) + uint64(i), Threads: 1, Parent: 1})
	}
	require.NoError(t, scanAll(b, table))
	require.Equal(t, 40_002, table.Len())
	for i := range 40_000 {
		p := k.listed[2+i]
		k.ends = append(k.ends, tasks.Ended{Pid: p.Pid, Start: p.Start, Run: 9, Parent: 1})
	}
	k.listed = k.listed[:2]
	for range 200 { // seconds
		k.listed[1].Run += 3
		require.NoError(t, scanAll(b, table))
		require.Equal(t, 2, table.Len())
		require.EqualValues(t, 3, table.Rows[1].Used)
	}
	assert.Equal(t, []int{minRoom}, k.shrunk)
	assert.Less(t, cap(b.rows), 100)
	assert.EqualValues(t, 40_000*9+200*3, table.Used(nil))
}
