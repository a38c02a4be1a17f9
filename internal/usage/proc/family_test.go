// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

const tick = units.Tick

// kin is a process of a family.
type kin struct {
	proc.ID
	parent          int32
	cgroup          uint64
	cpu, child      units.CPUTime
	kernel, zombie  bool
	ignoresChildren bool
	shown           units.CPUTime // the highest CPU time that an exact source showed
}

// family is a simulated kernel whose processes fork, run, end and wait at random.
type family struct {
	r      *rand.Rand
	now    time.Duration
	next   int32
	living []*kin // and zombies; the first one is init
	dead   []*kin // an exact source has not reported their ends yet
	used   units.CPUTime
	// orderly processes use whole ticks and wait for their children, and look finds all of them at
	// one moment.
	orderly bool
}

func newFamily(seed uint64, orderly bool) *family {
	f := &family{r: rand.New(rand.NewPCG(seed, 1)), now: time.Hour, orderly: orderly}
	f.living = []*kin{{ID: proc.ID{PID: 1}}}
	for range 200 {
		f.act()
	}
	return f
}

const maxPID = 120 // PIDs are soon reused

func (f *family) act() {
	f.now += 1 + time.Duration(f.r.Int64N(int64(30*time.Millisecond)))
	p, latest := f.living[f.r.IntN(len(f.living))], f.living[len(f.living)-1]
	switch n := f.r.IntN(16); {
	case n < 4:
		f.next = f.next%maxPID + 1
		taken := slices.ContainsFunc(f.living, func(q *kin) bool { return q.PID == f.next })
		if !p.zombie && !taken && len(f.living) < maxPID/2 {
			child := &kin{ID: proc.ID{PID: f.next, Start: f.now}, parent: p.PID, cgroup: 1 + f.r.Uint64N(6)}
			child.kernel = !f.orderly && f.r.IntN(20) == 0
			f.living = append(f.living, child)
		}
	case n < 6:
		f.leave(latest)
	case n < 8:
		f.leave(p)
	case n < 9:
		p.cgroup = 1 + f.r.Uint64N(6)
		p.ignoresChildren = !f.orderly && f.r.IntN(20) == 0
	case !p.zombie:
		used := units.CPUTime(f.r.Int64N(50e6))
		if f.orderly {
			used -= used % tick
		}
		p.cpu += used
		f.used += used
	}
}

// leave ends a process. Its parent waits for it, now or when it leaves again.
func (f *family) leave(p *kin) {
	if p.PID == 1 {
		return
	}
	if !p.zombie {
		p.zombie = true
		for _, c := range f.living {
			if c.parent == p.PID {
				c.parent = 1
			}
		}
		if f.r.IntN(3) == 0 {
			return
		}
	}
	for _, parent := range f.living {
		if parent.PID == p.parent && !parent.ignoresChildren && !p.kernel {
			parent.child += p.cpu + p.child
		}
	}
	f.living = slices.DeleteFunc(f.living, func(q *kin) bool { return q == p })
	f.dead = append(f.dead, p)
}

// look returns what /proc shows of each process, by ascending PID.
func (f *family) look() (sights []proc.Sight) {
	for pid := int32(1); pid <= maxPID; pid++ {
		i := slices.IndexFunc(f.living, func(p *kin) bool { return p.PID == pid })
		if i < 0 || !f.orderly && pid != 1 && f.r.IntN(50) == 0 {
			continue
		}
		p := f.living[i]
		s := proc.Sight{
			ID: proc.ID{PID: pid, Start: p.Start.Truncate(time.Duration(tick))}, Parent: p.parent, Threads: 1,
			CPU: p.cpu / tick * tick, ChildCPU: p.child / tick * tick,
		}
		if p.kernel {
			s.Flags |= proc.Kernel
		}
		if p.zombie {
			s.Flags |= proc.Zombie
		}
		sights = append(sights, s)
		if !f.orderly && f.r.IntN(20) == 0 {
			f.act()
		}
	}
	return sights
}

// fill scans all processes.
func fill(t *proc.Table, now time.Duration, node units.CPUTime, sights ...proc.Sight) {
	s := t.Begin(now)
	for i := range sights {
		s.See(&sights[i])
	}
	s.MissRemaining()
	s.End(node)
}

// check checks the invariants of a table after a scan.
func check(t testing.TB, table *proc.Table) {
	t.Helper()
	active, rows := map[proc.Slot]int{}, 0
	for _, slot := range table.Active {
		active[slot]++
	}
	for p := range table.All() {
		rows++
		listed := active[p.Slot]
		delete(active, p.Slot)
		if is := p.IsActive(); is != (listed > 0) || listed > 1 {
			t.Fatalf("active: %t, but %d times in Active: %+v", is, listed, p)
		}
		if &table.Rows[p.Slot] != p || p.Used > p.CPU || table.Find(p.PID) == nil || table.Find(p.PID).Start < p.Start {
			t.Fatalf("not its slot, not its CPU time, or not found: %+v", p)
		}
	}
	if len(active) > 0 || rows != table.Len() || table.Unseen.Untraced > proc.Unbounded {
		t.Fatalf("active slots without rows: %v; %d rows of %d; %+v", active, rows, table.Len(), table.Unseen)
	}
	for _, c := range table.Charges {
		if c.Slot >= 0 && !table.Rows[c.Slot].Is(proc.Charged) {
			t.Fatalf("a charge without a row: %+v", c)
		}
	}
	for i := range table.Ended {
		e := &table.Ended[i]
		if table.Rows[e.Slot].PID != 0 || e.Used > 0 || e.Is(proc.Born) {
			t.Fatalf("its slot is reused in the same scan, or it is as if it lived: %+v", e)
		}
	}
}
