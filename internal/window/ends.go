// SPDX-License-Identifier: Apache-2.0

package window

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
)

// A process that exited takes one path, whichever hardware it used:
//
//   - claimEnded claims its last slice in the interval whose scan lists it as ended.
//   - endProcess stops its claimant and releases its slot.
//   - closeEnded closes the claimant after the ledger has the shares of that interval. If the process
//     used a GPU or may have, endLateUsers closes the claimant later: polls of GPUs name processes
//     that have exited.

// claimEnded claims the last slices of the processes that ended.
func (b *Collector) claimEnded(m *Measurement) {
	t := m.Table
	if n := len(b.claimants); n < len(t.Rows) {
		b.claimants = slices.Grow(b.claimants, len(t.Rows)-n)[:len(t.Rows)]
	}
	for i := range t.Ended {
		e := &t.Ended[i]
		c := &b.claimants[e.Slot]
		if !c.open {
			continue
		}
		last := e.LastSlice
		if c.sleeps && last > 0 {
			b.wake(c, e.Slot, e.PID, e.Start, m)
		}
		if !b.Exact {
			last = c.cgroup.Clamp(last)
		}
		parts := t.Splits.Parts(e.Split, e.LastSlice, e.LastCPU)
		share := weigh.Share{CPU: last, Events: e.LastCounted}
		b.addProcess(c, &e.Process, &share, parts, b.slicesOf(&e.Process, 0, last, t), m)
		b.endProcess(c, e.Slot, e.PID, e.Start, m)
	}
}

// endProcess stops the claimant of a process that ended and releases its slot. The claimant of a
// GPU user stays open, because GPU usage may still name the process. So does the claimant of a
// young process on a node with GPU users, because GPU usage may not have named the process yet.
func (b *Collector) endProcess(c *claimant, slot, pid int32, start time.Duration, m *Measurement) {
	g := &b.gpus
	if p, ok := g.processes[pid]; ok && p.start == start {
		delete(g.processes, pid)
	}
	young := g.processes != nil && m.Table.Now-start < namedWithin
	if c.usesGPU || young && !c.sleeps { // sleepers share their claimant
		b.Ledger.Stop(c.id)
		list := &g.young
		if c.usesGPU {
			list = &g.late
		}
		b.endLate(list, len(*list)+1-maxLateUsers)
		*list = append(*list, lateUser{gpuUser{c.id, c.excluded}, pid, start, m.ReadAt, g.epoch})
	} else {
		b.leave(c)
	}
	b.release(c, slot)
}

// release releases the slot of a process whose claimant was left.
func (b *Collector) release(c *claimant, slot int32) {
	c.cgroup.Leave()
	b.Identifier.Forget(slot)
	*c = claimant{}
}

// leave ends the claimant of a process with this interval, unless other sleepers share it.
func (b *Collector) leave(c *claimant) {
	switch {
	case !c.open:
	case c.sleeps:
		c.sleeps = false
		key := ownerKey{identity.Owner{Workload: b.Ledger.Workload(c.id)}, c.excluded}
		s := b.sleepers[key]
		if s.count--; s.count == 0 {
			delete(b.sleepers, key)
			b.end(s.id)
		}
	default:
		b.end(c.id)
	}
}

// end ends a claimant with this interval. It may claim its last slice in it.
func (b *Collector) end(id attribution.Claimant) {
	b.Ledger.Leave(id)
	b.ended = append(b.ended, id)
}

// closeEnded closes the claimants that ended, after the ledger has the shares of their last
// interval.
func (b *Collector) closeEnded() {
	for _, id := range b.ended {
		b.Ledger.Close(id)
	}
	b.ended = b.ended[:0]
}

// endLateUsers ends the claimants of processes that ended before the previous epoch. GPU usage does
// not name them any more.
func (b *Collector) endLateUsers(m *Measurement) {
	g := &b.gpus
	for _, list := range [...]*[]lateUser{&g.late, &g.young} {
		n := 0
		for _, l := range *list {
			if l.epoch+2 > g.epoch && m.ReadAt.Sub(l.ended) < maxLate {
				break
			}
			n++
		}
		b.endLate(list, n)
	}
}

// endLate ends the claimants of the first n processes in a list.
func (b *Collector) endLate(list *[]lateUser, n int) {
	if n <= 0 {
		return
	}
	for i := range (*list)[:n] {
		b.end((*list)[i].id)
	}
	*list = slices.Delete(*list, 0, n)
}

// endUsers ends the processes of GPU users when another CPU time source begins. They continue as
// other processes.
func (b *Collector) endUsers(m *Measurement) {
	for pid, p := range b.gpus.processes {
		if c := &b.claimants[p.slot]; c.open && c.usesGPU {
			b.endProcess(c, p.slot, pid, p.start, m)
		}
	}
	clear(b.gpus.processes)
}
