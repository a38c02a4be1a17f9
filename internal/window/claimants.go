// SPDX-License-Identifier: Apache-2.0

package window

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/workload"
)

// update opens a claimant for a process without one, and another for a process that changed its
// identity.
func (b *Collector) update(c *claimant, p *proc.Process, m *Measurement) {
	if b.Identifier.HasNews(p.Slot) {
		b.renew(c, p, m)
	}
	if c.sleeps && p.Used > 0 {
		b.wake(c, p.Slot, p.PID, p.Start, m)
	}
}

// renew opens another claimant for a process that changed its identity.
func (b *Collector) renew(c *claimant, p *proc.Process, m *Measurement) {
	found, changed := b.Identifier.Identity(p.Slot)
	b.Identifier.Moved(p.Slot)
	excluded := b.Exclusion.Excludes(found, m.ReadAt)
	c.withCgroup = b.Exclusion.ExcludesCgroup(found.ProcessCgroup) || found.Unit.Name != ""
	if !changed && excluded == c.excluded {
		return
	}
	b.leave(c)
	c.open, c.excluded = true, excluded
	withoutUnit := found.Workload
	withoutUnit.Unit = identity.SystemdUnit{}
	c.inWorkload = withoutUnit != identity.Workload{}
	owner := b.ownerOf(p.PID, p.Start, found)
	if b.ByProgram && b.Exact {
		b.programs.note(found)
	}
	if p.Used == 0 && b.mayWait(&owner) {
		b.sleep(c, found.Workload, b.since(p.Start, m))
	} else {
		c.id = b.openClaimant(owner, b.since(p.Start, m), excluded)
	}
	if b.watchesCgroups() {
		b.enter(c, found.Cgroup, p, m)
	}
	if b.Requests {
		b.Ledger.SetRequest(c.id, b.Cgroups.Request(c.cgroup, m.ReadAt))
	}
}

// mayWait reports whether a process needs no claimant of its own before it has something to claim.
func (b *Collector) mayWait(owner *identity.Owner) bool {
	return !b.Keys.Sleepers() && !b.Ledger.NeedsSleepers() && !b.Ledger.Continues(owner)
}

// sleep makes a process one of the sleepers of its workload.
func (b *Collector) sleep(c *claimant, in identity.Workload, since time.Time) {
	key := ownerKey{identity.Owner{Workload: in}, c.excluded}
	s := b.sleepers[key]
	if s == nil {
		s = &sleepers{id: b.openClaimant(key.owner, since, c.excluded)}
		b.sleepers[key] = s
	}
	s.count++
	c.id, c.sleeps = s.id, true
}

// wake opens the own claimant of a process that was one of the sleepers.
func (b *Collector) wake(c *claimant, slot, pid int32, start time.Duration, m *Measurement) {
	found, _ := b.Identifier.Identity(slot)
	id := b.openClaimant(b.ownerOf(pid, start, found), b.since(start, m), c.excluded)
	b.leave(c)
	c.id = id
}

// enter moves a process from its previous cgroup to the cgroup of its container.
func (b *Collector) enter(c *claimant, path string, p *proc.Process, m *Measurement) {
	from := c.cgroup
	c.cgroup = b.Cgroups.Enter(path, b.begun && m.Table.BornSinceLastScan(&p.Sight))
	from.Leave()
}

// accountMove accounts for a process that moved between the cgroups in and other. The CPU time of
// the process and its exited children is accounted for in other, and accountMove adds it to in.
func accountMove(in, other *cgroup.Node, p *proc.Process, m *Measurement) {
	if in == other {
		return
	}
	used := p.Used
	for i := range m.Table.Charges {
		if charge := &m.Table.Charges[i]; charge.Slot == p.Slot {
			used += charge.CPU
		}
	}
	cgroup.AccountMove(in, other, used)
}

// findMoved identifies the processes whose identification was deferred, if the counters show more
// CPU time than remains to claim. In this case, a process may have entered a container, whose
// counter includes the time of the process. Its previous claimant keeps the claim of this interval.
func (b *Collector) findMoved(m *Measurement) {
	t, traits := m.Table, m.Table.Traits()
	if b.Exact || m.EndsCollection || b.Cgroups.Unaccounted(traits.Rounding, traits.Late) <= b.unclaimed(m) {
		return
	}
	b.identifyDeferred(m)
	for p := range processes(t, b.Identifier.Resolve()) {
		c := &b.claimants[p.Slot]
		from := c.cgroup
		b.update(c, p, m)
		accountMove(c.cgroup, from, p, m)
	}
}

// claimantForCgroup opens a claimant, for this interval, for processes that started and exited
// between two scans, if only their cgroup was reported. ok is false if the cgroup is not excluded
// and its path does not identify a workload. For example, only the processes of a virtual machine
// identify the machine.
func (b *Collector) claimantForCgroup(path string) (id attribution.Claimant, in *cgroup.Node, ok bool) {
	placed := b.Identifier.PlaceShortLived(path)
	excluded := b.Exclusion.Excludes(&workload.Identity{Placement: placed, ProcessCgroup: path}, b.last.ReadAt)
	owner := identity.Owner{Workload: placed.Workload}
	owner.VM = identity.VM{}
	if !b.begun || !excluded && owner == (identity.Owner{}) {
		return attribution.NoClaimant, nil, false
	}
	id = b.openClaimant(owner, b.last.Stamp, excluded)
	b.end(id)
	if b.watchesCgroups() {
		in = b.Cgroups.Node(placed.Cgroup)
	}
	return id, in, true
}

func (b *Collector) openClaimant(owner identity.Owner, since time.Time, excluded bool) attribution.Claimant {
	id := b.Ledger.Open(owner, since)
	if excluded {
		b.Ledger.Exclude(id)
	}
	return id
}

// excludeLate applies exclusions to pods whose namespace was resolved after they were first seen.
func (b *Collector) excludeLate(m *Measurement) {
	if !b.Exclusion.Resolved(m.ReadAt) {
		return
	}
	for i := range b.claimants {
		c := &b.claimants[i]
		if !c.open || c.excluded {
			continue
		}
		if in := b.Ledger.Workload(c.id); !b.Exclusion.ExcludesPod(in.Pod.UID, m.ReadAt) {
			continue
		} else if c.sleeps {
			b.leave(c)
			c.excluded = true
			b.sleep(c, in, b.last.Stamp)
		} else {
			c.excluded = true
			b.Ledger.Exclude(c.id)
		}
	}
}

// since returns the start timestamp of the series of a process that is new to the ledger. It is the
// creation of the process or the end of the last interval, whichever is later.
func (b *Collector) since(start time.Duration, m *Measurement) time.Time {
	created := m.Stamp.Add(start - m.Table.Now)
	if created.Before(b.last.Stamp) {
		return b.last.Stamp
	}
	if created.After(m.Stamp) {
		return m.Stamp
	}
	return created
}

// Created returns a function that returns identity.Process.Created on a machine that booted at
// boot.
func Created(boot time.Time) func(start time.Duration) string {
	return func(start time.Duration) string { return identity.CreatedAt(boot.Add(start)) }
}

// ownerOf returns the owner of a process. If its executable cannot be read, the name of the program
// is derived from the name of the task, as for an exited process.
func (b *Collector) ownerOf(pid int32, start time.Duration, i *workload.Identity) identity.Owner {
	o := identity.Owner{
		Process: identity.Process{
			PID:         pid,
			Start:       start.Truncate(time.Duration(units.Tick)), // as every source shows it
			Executable:  i.Executable,
			Path:        i.Path,
			CommandLine: i.CommandLine,
			Owner:       i.Owner,
			Parent:      i.Parent,
		},
		Workload: i.Workload,
	}
	if b.ByProgram && b.Exact && i.Path == "" {
		o.Process.Executable = b.programs.nameOf(i.Executable, i.Owner, &i.Workload)
	}
	return o
}
