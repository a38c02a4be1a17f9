// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/workload"
)

// claimant is the process in a slot, as the engine knows it. The zero claimant is none.
type claimant struct {
	open       bool
	id         attribution.Claimant
	cgroup     *cgroup.Node // its container's, nil outside of containers and if no cgroup is watched
	pod        string       // UID of its pod
	inWorkload bool         // it is part of a container, pod or other workload, not counting its unit
	excluded   bool         // its energy is static
	usesGPU    bool         // its process used a GPU, or had one open
	withCgroup bool         // all of its own cgroup is excluded, or in the same unit
}

// update opens a claimant for a process that has none, and another for one that has become someone else.
func (b *Builder) update(c *claimant, p *cpu.Process, m *Measurement) {
	if !b.Identifier.HasNews(p.Slot) {
		return
	}
	identity, changed := b.Identifier.Identity(p.Slot)
	b.Identifier.Moved(p.Slot)
	excluded := b.Exclusion.Excludes(identity, m.ReadAt)
	c.withCgroup = b.Exclusion.ExcludesCgroup(identity.ProcessCgroup) || identity.Unit.Name != ""
	if !changed && excluded == c.excluded {
		return
	}
	if c.open {
		b.end(c.id)
	}
	c.open, c.pod, c.excluded = true, identity.Pod.UID, excluded
	beside := identity.Workload
	beside.Unit = units.SystemdUnit{}
	c.inWorkload = beside != units.Workload{}
	c.id = b.openClaimant(b.owner(p, identity), b.since(p, m), excluded)
	if b.watchesCgroups() {
		b.enter(c, identity.Cgroup, p, m)
	}
	if b.Requests {
		b.Engine.SetRequest(c.id, b.Cgroups.Request(c.cgroup, m.ReadAt))
	}
}

// enter lets a process enter its container's cgroup, and leave the one that it was in.
func (b *Builder) enter(c *claimant, path string, p *cpu.Process, m *Measurement) {
	from := c.cgroup
	c.cgroup = b.Cgroups.Enter(path, b.begun && m.Table.BornSinceLastScan(p))
	from.Leave()
	if !b.Exact {
		cgroup.AccountMove(from, c.cgroup, p.Used+p.ShortLived)
	}
}

// claimantForCgroup opens a claimant, for this interval, for processes that lived and ended between two scans, known only
// by their cgroup. It is not ok if the path names no workload, unless the cgroup is excluded: only a virtual machine's
// processes tell which one a cgroup is of.
func (b *Builder) claimantForCgroup(path string) (id attribution.Claimant, in *cgroup.Node, ok bool) {
	placed := b.Identifier.PlaceShortLived(path)
	excluded := b.Exclusion.Excludes(&workload.Identity{Placement: placed, ProcessCgroup: path}, b.last.ReadAt)
	owner := units.Owner{Workload: placed.Workload}
	owner.VM = units.VM{}
	if !b.begun || !excluded && owner == (units.Owner{}) {
		return attribution.NoClaimant, nil, false
	}
	id = b.openClaimant(owner, b.last.Stamp, excluded)
	b.end(id)
	if b.watchesCgroups() {
		in = b.Cgroups.Node(placed.Cgroup)
	}
	return id, in, true
}

func (b *Builder) openClaimant(owner units.Owner, since time.Time, excluded bool) attribution.Claimant {
	id := b.Engine.Open(owner, since)
	if excluded {
		b.Engine.Exclude(id)
	}
	return id
}

// excludeLate applies exclusions to pods whose namespace was resolved after they were first seen.
func (b *Builder) excludeLate(m *Measurement) {
	if !b.Exclusion.Resolved(m.ReadAt) {
		return
	}
	for i := range b.claimants {
		if c := &b.claimants[i]; c.open && !c.excluded && b.Exclusion.ExcludesPod(c.pod, m.ReadAt) {
			b.Engine.Exclude(c.id)
			c.excluded = true
		}
	}
}

// end ends a claimant with this interval, in which it may claim its last slice.
func (b *Builder) end(id attribution.Claimant) {
	b.Engine.Stop(id)
	b.ended = append(b.ended, id)
}

// closeEnded closes the claimants that ended, once the engine has observed their last interval.
func (b *Builder) closeEnded() {
	for _, id := range b.ended {
		b.Engine.Close(id)
	}
	b.ended = b.ended[:0]
}

// since returns when the series of a process that is new to the engine was at 0: when the process was created, or at the
// end of the last interval if that is later.
func (b *Builder) since(p *cpu.Process, m *Measurement) time.Time {
	created := m.Stamp.Add(p.Start - m.Table.Now)
	if created.Before(b.last.Stamp) {
		return b.last.Stamp
	}
	if created.After(m.Stamp) {
		return m.Stamp
	}
	return created
}

// Created returns a function that tells units.Process.Created on a machine that booted at boot.
func Created(boot time.Time) func(start time.Duration) string {
	return func(start time.Duration) string { return boot.Add(start).UTC().Format("2006-01-02T15:04:05.00Z07:00") }
}

func (b *Builder) owner(p *cpu.Process, i *workload.Identity) units.Owner {
	return units.Owner{
		Process: units.Process{
			PID:         p.PID,
			Start:       p.Start.Truncate(time.Duration(units.Tick)), // as every source shows it
			Executable:  i.Executable,
			Path:        i.Path,
			CommandLine: i.CommandLine,
		},
		Workload: i.Workload,
	}
}
