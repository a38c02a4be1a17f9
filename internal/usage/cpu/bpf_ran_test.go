// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide/dividetest"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// marked is a simulated kernel that also lists the processes that ran, as the hook on context
// switches does.
type marked struct {
	*tracked
	exact  bool             // it shows all CPU time at once, and misses no process
	shown  map[*life]uint64 // CPU time when the process was visited last
	visits int              // that were not too many
	closed int
	slices []tasks.Slice
	split  int // how many rows had several slices
}

// slice gives processes slices as they come, of a CPU that has the number of the process. Some do
// not fit, and some are of processes that used nothing.
func (k *marked) slice(listed []tasks.Process) []tasks.Slice {
	k.slices = append(k.slices[:0], tasks.Slice{})
	for i := range listed {
		p := &listed[i]
		p.Slice = 0
		for range k.r.IntN(4) {
			k.slices = append(k.slices, tasks.Slice{Cpu: p.Pid, Run: k.r.Uint64N(1 << k.r.IntN(64)), Next: p.Slice})
			p.Slice = uint32(len(k.slices) - 1)
		}
		if k.r.IntN(20) == 0 {
			p.Slice = uint32(len(k.slices) + 1_000_000)
		}
	}
	return k.slices
}

func (k *marked) List(all bool) (tasks.Listing, error) {
	l, err := k.tracked.List(all)
	l.Slices = k.slice(l.Processes)
	return l, err
}

// requireSlices checks that the slices of each row are its own and add up to what it used.
func (k *marked) requireSlices() {
	k.Helper()
	for i := range k.table.Rows {
		p := &k.table.Rows[i]
		var sum units.CPUTime
		of := k.table.Splits.Slices(p.Split, p.Used, p.LastCPU)
		for _, s := range of {
			sum += s.Used
			if len(of) > 1 || s.CPU != p.LastCPU {
				require.Equal(k, p.PID, s.CPU, "a slice of another process")
			}
		}
		if len(of) > 1 {
			k.split++
		}
		require.Equal(k, p.Used, sum)
	}
}

func (k *marked) Visit(most int) (listed tasks.Listing, count int, err error) {
	var ran []tasks.Process
	for _, p := range k.living {
		if shown, ok := k.shown[p]; ok && shown == p.Run {
			continue
		}
		row := p.Process
		row.Cgroups = row.Cgroup
		if !k.exact {
			switch k.r.IntN(8) {
			case 0: // it is on a CPU, and marked again
				row.Run -= min(row.Run, k.r.Uint64N(4e6))
			case 1: // no switch showed it
				k.shown[p] = p.Run
				continue
			}
		}
		k.shown[p], p.shown = row.Run, max(p.shown, row.Run)
		ran = append(ran, row)
	}
	k.r.Shuffle(len(ran), func(i, j int) { ran[i], ran[j] = ran[j], ran[i] })
	if k.between != nil {
		k.between()
	}
	if len(ran) > most {
		return tasks.Listing{}, len(ran), nil
	}
	k.visits++
	return tasks.Listing{Processes: ran, Slices: k.slice(ran)}, len(ran), nil
}

func (k *marked) Close() error {
	k.closed++
	return nil
}

// beginMarked starts a kernel whose hook is attached, and makes the first scan.
func beginMarked(t *testing.T, seed uint64, exact bool) *marked {
	w := begin(t, seed)
	k := &marked{tracked: &tracked{randomKernel: w}, shown: map[*life]uint64{}, exact: exact}
	w.source = newBPF(Options{Root: t.TempDir()}, k, k)
	w.source.bootNow = func() time.Duration { return w.now }
	w.source.hook.visitor, w.source.hook.based, w.source.hook.most = k, true, 1000
	w.table, w.dead = proc.Table{}, nil
	r := w.r
	w.r = rand.New(&still{})
	w.read()
	w.r, w.used, w.billed = r, 0, 0
	for _, p := range w.living {
		k.shown[p] = p.Run
	}
	return k
}

func TestPartialScansBillAllCPUTimeOnceHoweverProcessesComeAndGo(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			k := beginMarked(t, seed, false)
			w := k.randomKernel
			for i := range 600 {
				w.between = nil
				if w.r.IntN(2) == 0 {
					w.between = func() {
						for range w.r.IntN(5) {
							w.act()
						}
					}
				}
				for range w.r.IntN(20) {
					w.act()
				}
				if w.r.IntN(4) == 0 { // a process moves and does not run
					w.living[w.r.IntN(len(w.living))].Cgroup = 1 + w.r.Uint64N(6)
				}
				if w.r.IntN(4) == 0 { // it took its start time before others that have rows
					n := len(w.living)
					w.spawn()
					if p := w.living[len(w.living)-1]; len(w.living) > n && p.Pid == w.nextPid {
						p.Start -= w.r.Uint64N(5e6)
					}
				}
				w.source.hook.most = 1000 * min(1, w.r.IntN(10))
				w.partial = w.r.IntN(8) > 0
				if w.r.IntN(30) == 0 { // the marks are taken, and what they show is not used
					w.drainErr = errors.New("refused")
					require.Error(t, w.rescan())
					w.drainErr = nil
				}
				w.read()
				require.Zero(t, w.table.Unseen.Untraced)
				require.Equal(t, w.billed, w.table.Used(nil))
				k.requireSlices()
				if i%20 == 19 {
					w.partial = false
					w.settle()
					require.Equal(t, w.used, uint64(w.billed), "scan %d", w.scan)
					k.requireRows()
				}
				if w.r.IntN(50) == 0 {
					w.table.Shrink()
				}
			}
			assert.Greater(t, k.visits, 200)
			assert.Greater(t, k.split, 1000)
			assert.Less(t, len(w.table.Rows), 500)
		})
	}
}

// requireRows checks the rows after a scan of all processes that showed everything.
func (k *marked) requireRows() {
	k.Helper()
	require.Equal(k, len(k.living), k.table.Len())
	for _, p := range k.living {
		i := rowOf(k.table.Rows, proc.ID{PID: int32(p.Pid), Start: time.Duration(p.Start)})
		require.GreaterOrEqual(k, i, 0)
		row := &k.table.Rows[i]
		require.Equal(k, []uint64{p.Run, p.Cgroup}, []uint64{uint64(row.CPU), row.Cgroup})
		require.False(k, row.Final || row.Zombie)
	}
}

func TestAPartialScanShowsAllThatRanAndEnded(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			k := beginMarked(t, seed, true)
			w := k.randomKernel
			for range 400 {
				ran := map[*life]uint64{}
				for _, p := range w.living {
					ran[p] = p.Run
				}
				for range w.r.IntN(20) {
					w.act()
				}
				for _, p := range w.dead {
					p.reported = w.scan
				}
				w.partial = w.r.IntN(8) > 0
				r := w.r
				w.r = rand.New(&still{})
				w.read()
				w.r = r
				require.Equal(t, w.used, uint64(w.billed), "scan %d", w.scan)
				for _, p := range w.living {
					i := rowOf(w.table.Rows, proc.ID{PID: int32(p.Pid), Start: time.Duration(p.Start)})
					if i < 0 {
						require.Zero(t, p.Run, "it never ran")
						continue
					}
					row := &w.table.Rows[i]
					require.EqualValues(t, p.Run, row.CPU)
					require.EqualValues(t, p.Run-ran[p], row.Used)
					require.Equal(t, row.Born || row.Used > 0 || row.ShortLived > 0, slices.Contains(w.table.Active, int32(i)))
				}
			}
			assert.Greater(t, k.visits, 200)
		})
	}
}

func TestAPartialScanBillsShortLivedProcessesToTheirCgroup(t *testing.T) {
	t.Parallel()
	k := beginMarked(t, 3, true)
	w := k.randomKernel
	w.partial = true
	for i := range 50 {
		for _, p := range w.dead {
			p.reported = w.scan
		}
		w.read()
		ended := &life{reported: w.scan, Process: tasks.Process{
			Pid: 1000 + uint32(i), Start: uint64(w.now), Run: 5e6, Cgroup: 2 + w.r.Uint64N(8), Parent: 1, // those above 6 are in none
		}}
		w.dead = append(w.dead, ended)
		w.used += ended.Run
		for range 3 {
			w.act()
		}
		for _, p := range w.dead {
			p.reported = w.scan
		}
		w.read()
		in := uint64(0)
		for j := range w.table.Rows {
			if p := &w.table.Rows[j]; p.ShortLived >= 5e6 && !p.Is(proc.Zombie) {
				in = p.Cgroup
			}
		}
		lives := slices.ContainsFunc(w.table.Rows, func(p proc.Process) bool { return p.Cgroup == ended.Cgroup && !p.Is(proc.Zombie) })
		if lives {
			require.Equal(t, ended.Cgroup, in)
		} else {
			require.Zero(t, in)
			require.GreaterOrEqual(t, unplaced(w.table), units.CPUTime(5e6))
		}
	}
}

// hookedBPF returns fakeBPF's source with a hook that lists ran.
func hookedBPF(t *testing.T) (*fakeKernel, *fakeVisitor, *BPF, *proc.Table) {
	t.Helper()
	k, b, table := fakeBPF(t)
	v := &fakeVisitor{}
	b.hook.visitor, b.hook.based, b.hook.most = v, true, 10
	return k, v, b, table
}

type fakeVisitor struct {
	ran    []tasks.Process
	slices []tasks.Slice
	count  int // more than there are in ran
	err    error
	visits int
	closed bool
}

func (v *fakeVisitor) Visit(int) (tasks.Listing, int, error) {
	v.visits++
	return tasks.Listing{Processes: v.ran, Slices: v.slices}, max(len(v.ran), v.count), v.err
}

func (v *fakeVisitor) Close() error {
	v.closed = true
	return nil
}

func TestShortLivedTimeGoesToAProcessThatCameToItsCgroup(t *testing.T) {
	k, v, b, table := hookedBPF(t)
	end := func(pid uint32) {
		k.ends = []tasks.Ended{{Pid: pid, Start: uint64(k.now), Run: 11, Cgroup: 77, Parent: 1}}
		require.NoError(t, scanRan(b, table))
	}
	end(100)
	require.EqualValues(t, 11, unplaced(table), "no process is there")
	v.ran = []tasks.Process{{Pid: 20, Start: uint64(k.now), Run: 1, Cgroup: 77, Threads: 1}} // a new one
	end(101)
	assert.EqualValues(t, 11, beside(table, 2))
	k.ends = []tasks.Ended{{Pid: 20, Start: v.ran[0].Start, Run: 2, Cgroup: 77}}
	v.ran = nil
	require.NoError(t, scanRan(b, table))
	end(102)
	assert.EqualValues(t, 11, unplaced(table), "it has ended")
	v.ran = []tasks.Process{{Pid: 10, Start: 2, Run: 5000, Cgroup: 77, Threads: 1}} // it moved
	end(103)
	assert.EqualValues(t, 11, beside(table, 1))
}

func TestMoreThanPaysAreFoundByAScanOfAll(t *testing.T) {
	k, v, b, table := hookedBPF(t)
	v.count = 11
	k.listed[1].Run += 9
	require.NoError(t, scanRan(b, table))
	assert.EqualValues(t, 9, table.Rows[1].Used)
	assert.Equal(t, 1, v.visits)
}

func TestWithoutItsHookTheSourceGoesOn(t *testing.T) {
	k, v, b, table := hookedBPF(t)
	v.err = errors.New("refused")
	k.listed[1].Run += 9
	require.NoError(t, scanRan(b, table))
	assert.EqualValues(t, 9, table.Rows[1].Used)
	assert.True(t, v.closed)
	assert.ErrorIs(t, b.Traits().Lacks, v.err)
	k.listed[1].Run += 4
	require.NoError(t, scanRan(b, table))
	assert.EqualValues(t, 4, table.Rows[1].Used)
	assert.Equal(t, 1, v.visits)
}

// node is a machine on which a hook can be attached.
type node struct {
	testing.TB
	source   *BPF
	table    proc.Table
	kernel   *asked
	visitor  *fakeVisitor
	now      time.Duration
	switches uint64
	opened   int
	openErr  error
}

func newNode(t *testing.T, tasksThere int) *node {
	n := &node{TB: t, now: time.Hour, visitor: &fakeVisitor{}, kernel: &asked{fakeKernel: &fakeKernel{}}}
	for i := range 3 { // the number of tasks decides, not the length of the list
		n.kernel.listed = append(n.kernel.listed, tasks.Process{Pid: uint32(1 + i), Start: uint64(1 + i), Threads: 1})
	}
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "proc"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "proc/loadavg"), fmt.Appendf(nil, "0.00 0.00 0.00 1/%d 1\n", tasksThere), 0o600))
	n.source = newBPF(Options{Root: root}, n.kernel, n.kernel)
	n.source.bootNow = func() time.Duration { return n.now }
	n.source.hook.open = func() (visitor, error) {
		n.opened++
		n.visitor.closed = false
		return n.visitor, n.openErr
	}
	return n
}

// run scans for a while, with collections a second apart.
func (n *node) run(d, window time.Duration, switchesPerSecond uint64) {
	n.Helper()
	for until := n.now + d; n.now < until; n.now += window {
		all := n.now%time.Second == 0
		if all {
			n.switches += switchesPerSecond
			stat := fmt.Appendf(nil, "cpu  1 2 3\nintr %0*d\nctxt %d\nbtime 5\n", 5000, 1, n.switches)
			require.NoError(n, os.WriteFile(filepath.Join(n.source.proc.Path(), "stat"), stat, 0o600))
		}
		require.NoError(n, scanFor(n.source, &n.table, Request{Want: Want{All: all}}))
		if c := n.source.hook.opening; c != nil { // as if it had taken no time
			n.source.hook.opening = make(chan opened, 1)
			n.source.hook.opening <- <-c
		}
	}
}

func TestTheHookIsAttachedWhileItPays(t *testing.T) {
	n := newNode(t, 10_000)
	n.run(20*time.Second, time.Second, 5000)
	require.Zero(t, n.opened, "without windows")
	n.run(10*time.Second, 10*time.Millisecond, 5000)
	require.Equal(t, 1, n.opened)
	visits := n.visitor.visits
	assert.Greater(t, visits, 600)
	n.run(70*time.Second, 10*time.Millisecond, 5000)
	assert.Equal(t, 70*99, n.visitor.visits-visits, "all scans but those that end a collection")
	n.run(10*time.Second, 10*time.Millisecond, 5e6)
	assert.True(t, n.visitor.closed, "too many switches")
	n.run(20*time.Second, 10*time.Millisecond, 5000)
	require.Equal(t, 1, n.opened, "not within the minute")
	n.run(60*time.Second, 10*time.Millisecond, 5000)
	require.Equal(t, 2, n.opened)
	n.run(70*time.Second, time.Second, 5000)
	assert.True(t, n.visitor.closed, "without windows")
	require.NoError(t, n.source.Close())
}

func TestTheHookIsAttachedWhereTheNodeIsDivided(t *testing.T) {
	n := newNode(t, 10_000)
	n.source.topology = topologyOf(t, dividetest.MachineOf(t, [2]string{"0", "0"}, [2]string{"1", "0"}))
	n.run(10*time.Second, 10*time.Millisecond, 5000)
	assert.Equal(t, 1, n.opened)
	assert.Greater(t, n.visitor.visits, 600)
	require.NoError(t, n.source.Close())
}

func TestTheHookDoesNotComeAndGo(t *testing.T) {
	n := newNode(t, 1000)
	for range 60 { // about what it costs and saves
		n.run(2*time.Second, 20*time.Millisecond, 30_000)
		n.run(2*time.Second, 20*time.Millisecond, 20_000)
	}
	assert.LessOrEqual(t, n.opened, 1)
	require.NoError(t, n.source.Close())
}

func TestAFewProcessesAreScannedWithoutAHook(t *testing.T) {
	n := newNode(t, 150)
	n.run(20*time.Second, 10*time.Millisecond, 1000)
	assert.Zero(t, n.opened)
}

func TestAHookThatIsRefusedIsNotTriedAgain(t *testing.T) {
	n := newNode(t, 10_000)
	n.openErr = errors.New("no such kernel function")
	failing := n.source.hook.open
	n.source.hook.open = func() (visitor, error) {
		_, err := failing()
		return nil, err
	}
	n.run(200*time.Second, 50*time.Millisecond, 5000)
	assert.Equal(t, 1, n.opened)
	assert.ErrorIs(t, n.source.Traits().Lacks, n.openErr)
	require.NoError(t, n.source.Close())
}

func TestAHookThatIsBeingAttachedIsClosedWithTheSource(t *testing.T) {
	n := newNode(t, 10_000)
	attached := make(chan struct{})
	open := n.source.hook.open
	n.source.hook.open = func() (visitor, error) {
		<-attached
		return open()
	}
	n.source.hook.attach()
	for range 3 {
		n.now += time.Second
		require.NoError(t, scanAll(n.source, &n.table), "without waiting")
	}
	close(attached)
	require.NoError(t, n.source.Close())
	assert.True(t, n.visitor.closed)
}

func TestAPartialScanAllocatesNothing(t *testing.T) {
	k, v, b, table := hookedBPF(t)
	for i := range 1000 {
		k.listed = append(k.listed, tasks.Process{Pid: uint32(100 + i), Start: uint64(100 + i), Run: uint64(i), Threads: 1})
	}
	require.NoError(t, scanAll(b, table))
	v.ran = slices.Clone(k.listed[100:110])
	v.ran[3].Slice, v.slices = 2, []tasks.Slice{{}, {Cpu: 4, Run: 3}, {Cpu: 7, Run: 2, Next: 1}}
	rescan := func() {
		for i := range v.ran {
			v.ran[i].Run += 5
		}
		require.NoError(t, scanRan(b, table))
		if len(table.Slices(&table.Rows[table.Active[3]])) != 2 {
			t.Error("it has two slices")
		}
	}
	rescan()
	assert.Zero(t, testing.AllocsPerRun(50, rescan))
	assert.Len(t, table.Active, 10)
}
