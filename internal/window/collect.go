// SPDX-License-Identifier: Apache-2.0

package window

import (
	"iter"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
)

// identify finds the identities and workloads of processes. It reports whether these may have
// changed even for processes that did not run.
func (b *Collector) identify(m *Measurement) (changed bool) {
	// New processes are reported only by the scan that first sees them. If that scan was not
	// observed, identify all.
	missed := !b.begun || m.Table.Scans() != b.scan+1
	b.scan = m.Table.Scans()
	b.Identifier.Begin(m.ReadAt)
	b.Identifier.Grow(len(m.Table.Rows))
	if missed && m.Table.Len() > 0 {
		b.gpus.renew(m.Table)
	}
	b.Identifier.LookUp(processes(m.Table, missed))
	b.Identifier.MayDefer(!m.EndsCollection && !b.Exact)
	for p := range processes(m.Table, missed) {
		b.Identifier.Identify(p, m.Table.Now)
		if p.Is(proc.Born) {
			b.gpus.note(p)
		}
	}
	if m.EndsCollection && !b.Exact {
		b.identifyDeferred(m)
	}
	return b.Identifier.Resolve() || missed
}

// identifyDeferred identifies the processes whose identification was deferred.
func (b *Collector) identifyDeferred(m *Measurement) {
	b.Identifier.MayDefer(false)
	for p := range processes(m.Table, true) {
		if b.Identifier.IsDeferred(p.Slot) {
			b.Identifier.Identify(p, m.Table.Now)
		}
	}
}

// claimRunning claims the usage of running processes and of short-lived processes. Processes that
// did not run are looked at only if they may need another claimant, explain a container's counter
// or hold memory that counts.
func (b *Collector) claimRunning(m *Measurement, changed bool) {
	t, charges := m.Table, m.Table.Charges
	for p := range processes(t, changed || !b.Exact || b.Keys.Sleepers()) {
		c := &b.claimants[p.Slot]
		from := c.cgroup
		b.update(c, p, m)
		parts := t.Splits.Parts(p.Split, p.Used, p.LastCPU)
		share := weigh.Share{CPU: p.Used, Events: p.Counted}
		b.addProcess(c, p, &share, parts, b.slicesOf(p, p.Split, p.Used, t), m)
		if !b.Exact {
			accountMove(from, c.cgroup, p, m)
		}
		for ; len(charges) > 0 && charges[0].Slot == p.Slot; charges = charges[1:] {
			b.claimCharge(&charges[0], m)
		}
	}
	for i := range charges {
		b.claimCharge(&charges[i], m)
	}
}

// addProcess adds the row of a process.
func (b *Collector) addProcess(c *claimant, p *proc.Process, s *weigh.Share, parts []units.CPUTime, on []proc.Slice, m *Measurement) {
	if !b.Exact {
		c.cgroup.Account(int32(c.id), s.CPU)
		if b.divider != nil {
			b.divider.ranIn(c.cgroup, parts, p)
		}
	}
	b.add(&row{Share: *s, claimant: c.id, cgroup: c.cgroup, process: p, parts: parts, on: on}, m)
}

// slicesOf divides CPU time of a process by CPU, if a pass needs that. It returns nil if the CPUs
// are not available: procfs shows the CPU of a process's first thread only.
func (b *Collector) slicesOf(p *proc.Process, split proc.Split, used units.CPUTime, t *proc.Table) []proc.Slice {
	if !b.byCPU || !b.Exact && p.Threads > 1 {
		return nil
	}
	return t.Splits.Slices(split, used, p.LastCPU)
}

// claimCharge claims the CPU time of short-lived processes that the scan found. If there is no
// claimant, claimRest claims the time.
//
// An exact source charges a row of the same cgroup. procfs charges the parent, which is in the same
// workload. After re-parenting to init, it may be in another unit.
func (b *Collector) claimCharge(charge *proc.Charge, m *Measurement) {
	parts, found := m.Table.ChargeParts(charge), false
	r := row{Share: weigh.Share{CPU: charge.CPU, Events: charge.Counted, ShortLived: true}, parts: parts}
	if charge.Slot >= 0 {
		r.process = &m.Table.Rows[charge.Slot]
	}
	switch {
	case charge.Named && b.ByProgram:
		found = b.nameOwner(&r, charge)
	case r.process != nil:
		c := b.awake(r.process, m)
		if !b.Exact {
			c.cgroup.AccountChildren(charge.CPU)
		}
		r.claimant = c.id
		switch {
		case c.inWorkload || c.withCgroup && b.Exact:
			r.cgroup, found = c.cgroup, true
			if b.ByProgram {
				r.claimant = b.shortLivedIn(c)
			}
		case b.ByProgram && !b.Exact:
			r.parts = b.keep(parts)
			b.programs.families = append(b.programs.families, r)
			return
		}
	case charge.Path != "":
		r.claimant, r.cgroup, found = b.claimantForCgroup(charge.Path)
	}
	if found {
		b.add(&r, m)
	} else {
		b.addRest(charge.CPU, &charge.Counted, parts)
	}
}

// awake returns the claimant of a process, its own one if it was one of the sleepers.
func (b *Collector) awake(p *proc.Process, m *Measurement) *claimant {
	c := &b.claimants[p.Slot]
	if c.sleeps {
		b.wake(c, p.Slot, p.PID, p.Start, m)
	}
	return c
}

// claimByCounters claims the CPU time of short-lived processes in containers that only the counters
// of the containers' cgroups show.
func (b *Collector) claimByCounters(m *Measurement) {
	b.Cgroups.ShortLived(m.Table.Traits().Rounding, m.Table.Traits().Late, func(in *cgroup.Node, id int32, used units.CPUTime, first bool) {
		// The first reading of a cgroup's counter may include CPU time of earlier intervals, which
		// other claimants have claimed. It is limited to the unclaimed CPU time of the interval.
		// Later readings are not limited, because the node's ticks can miss CPU time that the
		// counter includes.
		if first {
			used = min(used, b.unclaimed(m))
		}
		by := attribution.Claimant(id)
		if b.ByProgram && used > 0 {
			by = b.descendantsOf(by)
		}
		r := row{Share: weigh.Share{CPU: used, ShortLived: true}, claimant: by, cgroup: in}
		if b.divider != nil {
			r.parts = b.divider.in(in)
		}
		b.add(&r, m)
	})
}

// claimRest claims the CPU time of other short-lived processes, without a claimant. The part of the
// remaining CPU time that was used by hidden, untraced or missed processes is unattributed.
func (b *Collector) claimRest(m *Measurement) {
	b.claimFamilies(m)
	if !b.Exact {
		// The child times of a process outside of a container may include CPU time that the
		// container's counter showed.
		b.rest.CPU = min(b.rest.CPU, b.unclaimed(m))
	}
	b.add(&b.rest, m)

	rest := b.unclaimed(m)
	switch {
	case m.Table.Unseen.Hidden:
		b.node.Unattributed = rest
	case b.MissedUnattributed && !b.Exact:
		b.node.Unattributed = b.unowned.findMissed(b, m, min(rest, m.Table.Unseen.Untraced), rest)
	default:
		b.node.Unattributed = min(rest, m.Table.Unseen.Untraced)
	}
}

// unclaimed returns the CPU time of processes in the interval that has not been claimed yet.
func (b *Collector) unclaimed(m *Measurement) units.CPUTime {
	return units.Advance(b.claimed, m.Node.Process-b.last.Node.Process)
}

// claimInterrupts makes the CPU time of interrupts unattributed if InterruptsUnattributed is set.
// It excludes the time of ksoftirqd, a process with its own claims. Interrupts hold no memory.
func (b *Collector) claimInterrupts(m *Measurement) {
	b.interrupts = 0
	if b.InterruptsUnattributed {
		clear(b.softirqd)
		softirqd := m.Table.Softirqd(b.softirqd)
		b.interrupts = units.Advance(softirqd, m.Node.Interrupt-b.last.Node.Interrupt)
	}
	b.node.Weightless = [attribution.Weights]units.CPUTime{}
	for i, held := range b.Keys.held() {
		if held {
			b.node.Weightless[i] = b.interrupts
		}
	}
	b.node.Unattributed += b.interrupts
	b.unowned.all += b.node.Unattributed
	b.unowned.ofInterrupts += b.interrupts
}

// add copies a row to the table, and adds the properties of its process.
func (b *Collector) add(r *row, m *Measurement) {
	used := min(r.CPU, maxClaim)
	if used == 0 && (r.ShortLived || !b.Keys.Sleepers()) {
		return
	}
	b.claimed += used
	b.rows = append(b.rows, *r)
	r = &b.rows[len(b.rows)-1]
	r.CPU, r.LastCPU = used, -1
	r.Counted = m.Table.Counting.Valid && r.Events != proc.Events{}
	r.parts, r.on = b.keep(r.parts), b.keepSlices(r.on)
	if p := r.process; p != nil {
		r.LastCPU, r.Resident = p.LastCPU, p.Resident
		if !p.Is(proc.Zombie) {
			r.Held = min(b.interval.Elapsed, m.Table.Now-p.Start)
		}
		r.home = b.Identifier.ProcessCgroup(p.Slot)
	} else if r.cgroup != nil {
		r.home = r.cgroup.Path()
	}
}

// processes returns the processes that are new, ran or waited for a child, by PID, and then all
// others if all is set.
func processes(t *proc.Table, all bool) iter.Seq[*proc.Process] {
	return func(yield func(*proc.Process) bool) {
		for _, slot := range t.Active {
			if !yield(&t.Rows[slot]) {
				return
			}
		}
		if !all {
			return
		}
		for p := range t.All() {
			if !p.IsActive() && !yield(p) {
				return
			}
		}
	}
}
