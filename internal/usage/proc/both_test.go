// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// kin is a process of a small simulated kernel.
type kin struct {
	pid, parent     int32
	start           time.Duration
	cpu, child      units.CPUTime
	kernel, zombie  bool
	ignoresChildren bool
}

// family is a kernel whose processes fork, run, end and wait at random.
type family struct {
	r    *rand.Rand
	now  time.Duration
	next int32
	all  map[int32]*kin
	used units.CPUTime
}

func (f *family) pick() *kin {
	pids := make([]int32, 0, len(f.all))
	for pid := range f.all {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return f.all[pids[f.r.IntN(len(pids))]]
}

func (f *family) fork() {
	parent := f.pick()
	f.next++
	if f.next > 120 {
		f.next = 2
	}
	if parent.zombie || f.all[f.next] != nil {
		return
	}
	f.all[f.next] = &kin{pid: f.next, parent: parent.pid, start: f.now, kernel: f.r.IntN(20) == 0}
}

func (f *family) run(p *kin, most int64) {
	if !p.zombie {
		used := units.CPUTime(f.r.Int64N(most))
		p.cpu += used
		f.used += used
	}
}

func (f *family) exit(p *kin) {
	if p.pid == 1 || p.zombie {
		return
	}
	p.zombie = true
	for _, c := range f.all {
		if c.parent == p.pid {
			c.parent = 1
		}
	}
	if f.r.IntN(3) > 0 {
		f.reap(p)
	}
}

func (f *family) reap(p *kin) {
	if !p.zombie || p.pid == 1 {
		return
	}
	if parent := f.all[p.parent]; parent != nil && !parent.ignoresChildren && !p.kernel {
		parent.child += p.cpu + p.child
	}
	delete(f.all, p.pid)
}

func (f *family) act() {
	f.now += time.Duration(f.r.Int64N(int64(30 * time.Millisecond)))
	switch f.r.IntN(8) {
	case 0, 1:
		f.fork()
	case 2:
		f.exit(f.pick())
	case 3:
		f.reap(f.pick())
	case 4:
		if p := f.pick(); f.r.IntN(20) == 0 {
			p.ignoresChildren = !p.ignoresChildren
		}
	default:
		f.run(f.pick(), 50e6)
	}
}

const tick = units.Tick

// look returns what /proc shows of each process, by ascending PID. Processes act meanwhile.
func (f *family) look() (sights []proc.Sight) {
	for pid := int32(1); pid <= 120; pid++ {
		p := f.all[pid]
		if p == nil || f.r.IntN(50) == 0 && pid != 1 {
			continue
		}
		s := proc.Sight{
			ID: proc.ID{PID: pid, Start: p.start.Truncate(time.Duration(tick))}, Parent: p.parent, Threads: 1,
			CPU: p.cpu / tick * tick, ChildCPU: p.child / tick * tick,
		}
		if p.kernel {
			s.Flags |= proc.Kernel
		}
		if p.zombie {
			s.Flags |= proc.Zombie
		}
		sights = append(sights, s)
		if f.r.IntN(20) == 0 {
			f.act()
		}
	}
	return sights
}

func fillOld(t *scan.Table, now time.Duration, sights []proc.Sight, node units.CPUTime) {
	t.Begin(now)
	for _, s := range sights {
		t.Processes = append(t.Processes, scan.Process{
			PID: s.PID, Start: s.Start, Parent: s.Parent, Threads: s.Threads, CPU: s.CPU, ChildCPU: s.ChildCPU,
			Kernel: s.Is(proc.Kernel), Zombie: s.Is(proc.Zombie),
		})
	}
	t.ChildRounding = 2 * tick
	t.Finish(node)
}

func fillNew(t *proc.Table, now time.Duration, sights []proc.Sight, node units.CPUTime) {
	s := t.Begin(now)
	for i := range sights {
		s.See(&sights[i])
	}
	s.MissUnknown()
	s.End(node)
}

type figures struct{ used, beside, last, owed map[proc.ID]units.CPUTime }

func newFigures() figures {
	m := func() map[proc.ID]units.CPUTime { return map[proc.ID]units.CPUTime{} }
	return figures{m(), m(), m(), m()}
}

func (f figures) put(to map[proc.ID]units.CPUTime, id proc.ID, amount units.CPUTime) {
	if amount > 0 {
		to[id] += amount
	}
}

func figuresOfOld(t *scan.Table) figures {
	f := newFigures()
	for _, p := range t.Processes {
		id := proc.ID{PID: p.PID, Start: p.Start}
		f.put(f.used, id, p.Used)
		f.put(f.beside, id, p.ShortLived)
		f.put(f.owed, id, p.Owed)
	}
	for _, e := range t.Ended {
		f.put(f.last, proc.ID{PID: e.PID, Start: e.Start}, e.LastSlice)
	}
	return f
}

func figuresOfNew(t *proc.Table) figures {
	f := newFigures()
	for p := range t.All() {
		f.put(f.used, p.ID, p.Used)
		f.put(f.owed, p.ID, p.Owed)
	}
	for _, c := range t.Charges {
		f.put(f.beside, t.Rows[c.Slot].ID, c.CPU)
	}
	for _, e := range t.Ended {
		f.put(f.last, e.ID, e.LastSlice)
	}
	return f
}

func TestBothTablesFindTheSame(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			f := &family{r: rand.New(rand.NewPCG(seed, 1)), now: time.Hour, next: 1, all: map[int32]*kin{1: {pid: 1}}}
			var before scan.Table
			now := proc.New(proc.Traits{ChildRounding: 2 * tick})
			for i := range 100 {
				used := f.used
				for range f.r.IntN(60) {
					f.act()
				}
				at := f.now
				sights := f.look()
				node := f.used - used
				fillOld(&before, at, sights, node)
				fillNew(now, at, sights, node)
				if b, n := figuresOfOld(&before), figuresOfNew(now); !assert.ObjectsAreEqual(b, n) {
					t.Log("node", node, "scan", i)
					for _, s := range sights {
						t.Logf("%+v", s)
					}
					for _, e := range now.Ended {
						t.Logf("ended %+v", e)
					}
				}
				require.Equal(t, figuresOfOld(&before), figuresOfNew(now), "scan %d", i)
				require.Equal(t, before.Untraced, now.Unseen.Untraced, "scan %d", i)
				require.Len(t, before.Processes, now.Len())
				require.Len(t, before.Ended, len(now.Ended))
			}
		})
	}
}
