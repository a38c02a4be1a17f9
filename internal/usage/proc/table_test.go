// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// host is a table, and the processes that the next scan sees, 10 s after the previous one.
type host struct {
	testing.TB
	*proc.Table
	all  map[int32]*proc.Sight
	now  time.Duration
	node units.CPUTime // used since the previous scan
}

const interval = 10 * time.Second

// watch returns a host with process 1, before its first scan.
func watch(t testing.TB, traits proc.Traits) *host {
	h := &host{t, proc.New(traits), map[int32]*proc.Sight{}, 1000 * time.Second, 0}
	h.add(1, 0).Start = 0
	return h
}

// add adds a process that starts in the moment of the latest scan, just after it.
func (h *host) add(pid, parent int32) *proc.Sight {
	h.all[pid] = &proc.Sight{ID: proc.ID{PID: pid, Start: h.now}, Parent: parent, Threads: 1}
	return h.all[pid]
}

// run lets a process and its children use CPU time.
func (h *host) run(pid int32, cpu, children units.CPUTime) {
	h.all[pid].CPU += cpu
	h.all[pid].ChildCPU += children
	h.node += cpu + children
}

// end ends a process. Its parent waits for it.
func (h *host) end(pid int32) {
	p := h.all[pid]
	delete(h.all, pid)
	if parent := h.all[p.Parent]; parent != nil {
		parent.ChildCPU += p.CPU + p.ChildCPU
	}
}

// see begins a scan that sees some processes, or all.
func (h *host) see(pids ...int32) *proc.Scan {
	h.now += interval
	s := h.Begin(h.now)
	if len(pids) == 0 {
		pids = slices.Sorted(maps.Keys(h.all))
	}
	for _, pid := range pids {
		s.See(h.all[pid])
	}
	return s
}

// scan scans all processes.
func (h *host) scan() {
	h.Helper()
	s := h.see()
	s.MissRemaining()
	s.End(h.node)
	h.node = 0
	check(h, h.Table)
}

// found is the CPU time that a scan found of a process, of others beside it, and after its end.
type found struct{ used, beside, last units.CPUTime }

// found returns what the scan found by PID.
func (h *host) found() map[int32]found {
	of := map[int32]found{}
	add := func(pid int32, used, beside, last units.CPUTime) {
		if f := of[pid]; used+beside+last > 0 {
			of[pid] = found{f.used + used, f.beside + beside, f.last + last}
		}
	}
	for p := range h.All() {
		add(p.PID, p.Used, 0, 0)
	}
	for _, c := range h.Charges {
		add(h.Rows[c.Slot].PID, 0, c.CPU, 0)
	}
	for _, e := range h.Ended {
		add(e.PID, 0, 0, e.LastSlice)
	}
	return of
}

func TestTheFirstScanThatSucceedsIsTheBaseline(t *testing.T) {
	h := watch(t, tickTraits)
	h.add(43, 1)
	h.see() // is aborted
	h.run(1, 50*tick, 70*tick)
	h.end(43)
	h.add(42, 1).Start = h.now + interval // no process is younger than the scan
	h.run(42, tick, tick)
	h.scan()
	assert.Empty(t, h.found())
	assert.Empty(t, h.Ended)
	assert.Equal(t, 50*tick, h.Find(1).CPU)
	assert.Equal(t, []proc.Slot{0, 1}, h.Active)
	assert.Equal(t, proc.Unseen{}, h.Unseen)
	assert.Equal(t, []time.Duration{h.now, h.now}, []time.Duration{h.Before, h.Now})
	assert.EqualValues(t, 1, h.Scans())
	h.scan()
	assert.Empty(t, h.Active, "they are not new any more")
	assert.Equal(t, []time.Duration{h.now - interval, h.now}, []time.Duration{h.Before, h.Now})
}

func TestANewProcessIsCountedFromItsStartOrFromNowOn(t *testing.T) {
	second := time.Second
	for _, c := range []struct {
		name         string
		traits       proc.Traits
		start        time.Duration // since the previous scan, which is not the first
		used, unseen units.CPUTime
	}{
		{"started after the previous scan", tickTraits, second, 30 * tick, 0},
		{"started in the moment of the previous scan", tickTraits, 0, 30 * tick, 0},
		{"missed by an earlier scan", tickTraits, -second, 0, 30 * tick},
		{"missed by an earlier exact scan", exactTraits, -second, 30 * tick, 0},
		{"missed by the first exact scan", exactTraits, -interval - second, 0, 0},
	} {
		h := watch(t, c.traits)
		h.scan()
		h.scan()
		h.add(42, 1).Start = h.now + c.start
		h.all[42].Threads = 3
		h.run(42, 30*tick, 0)
		h.scan()
		p := h.Find(42)
		assert.True(t, p.Is(proc.Born), c.name)
		assert.Equal(t, c.used > 0, h.BornSinceLastScan(&p.Sight), c.name)
		assert.Equal(t, c.used, p.Used, c.name)
		assert.Equal(t, c.unseen, h.Unseen.Untraced, c.name)
		assert.EqualValues(t, 3, h.BornThreads(), c.name)
		h.run(42, tick, 0)
		h.scan()
		assert.Equal(t, tick, h.Find(42).Used, c.name)
		assert.Zero(t, h.BornThreads(), c.name)
	}
}

func TestATimeThatStepsBackAndRecoversIsCountedOnce(t *testing.T) {
	h := watch(t, tickTraits)
	h.run(1, 50*tick, 50*tick)
	h.scan()
	for _, c := range []struct{ to, used units.CPUTime }{{30 * tick, 0}, {50 * tick, 0}, {55 * tick, 5 * tick}} {
		h.all[1].CPU, h.all[1].ChildCPU, h.node = c.to, c.to, 100*tick
		h.scan()
		assert.Equal(t, found{used: c.used, beside: c.used}, h.found()[1])
		assert.Equal(t, max(c.to, 50*tick), h.Find(1).CPU)
	}
}

func TestFindReturnsTheNewestProcessOfAPIDWhateverRowWasSeenBefore(t *testing.T) {
	h := watch(t, exactTraits)
	h.add(2, 1)
	h.scan()
	first := h.all[2].ID
	second := h.add(2, 1).ID // while the end of the first process is awaited
	h.scan()
	s := h.see(1) // the row of the first process is next
	assert.Equal(t, second, h.Find(2).ID)
	require.True(t, s.Exit(second, 0, proc.Events{}, nil))
	require.NotNil(t, h.Find(2))
	assert.Equal(t, first, h.Find(2).ID)
	require.True(t, s.Exit(first, 0, proc.Events{}, nil))
	assert.Nil(t, h.Find(2))
	assert.Nil(t, h.Find(0), "the next row is empty")
}

func TestShrinkRenumbersTheSlotsInTheOrderOfTheRows(t *testing.T) {
	h := watch(t, tickTraits)
	for pid := int32(2); pid < 102; pid++ {
		h.add(pid, 1)
	}
	h.scan()
	for pid := int32(2); pid < 90; pid++ {
		h.end(pid)
	}
	h.run(95, 3*tick, 0)
	h.scan()
	were := h.Shrink()
	require.Len(t, were, 13)
	assert.True(t, slices.IsSorted(were))
	assert.Equal(t, []int32{1, 90}, []int32{h.Rows[0].PID, h.Rows[1].PID})
	assert.Empty(t, h.Ended)
	assert.Empty(t, h.Charges)
	assert.EqualValues(t, 1, h.Renumbered())
	assert.Less(t, cap(h.Rows), 20)
	check(t, h.Table)
}

func TestOnlyThreadsForSoftirqsCountAsSoftirqd(t *testing.T) {
	h := watch(t, tickTraits)
	for pid, name := range map[int32]string{2: "ksoftirqd/0", 3: "ksoftirqd/17", 4: "kworker/0:1", 5: "ksoftirqd/user"} {
		copy(h.add(pid, 1).Comm[:], name)
		if pid < 5 {
			h.all[pid].Flags = proc.Kernel
		}
		h.run(pid, units.CPUTime(pid)*tick, 0)
	}
	h.scan()
	assert.Zero(t, h.Softirqd(nil))
	for pid := int32(2); pid < 6; pid++ {
		h.run(pid, units.CPUTime(pid)*tick, 0)
	}
	h.scan()
	assert.Equal(t, 5*tick, h.Softirqd(nil))
}

func TestANameIsPrintableAndEndsAtTheFirstZero(t *testing.T) {
	for name, want := range map[string]string{"": "", "a\x00b": "a", "\xffx": "\uFFFDx"} {
		var comm proc.Comm
		copy(comm[:], name)
		assert.Equal(t, want, comm.String())
	}
}
