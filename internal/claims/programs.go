// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/workload"
)

// standIn returns a claimant, for this interval, for processes without their own claimant. There is
// no claimant for an owner of which nothing is known.
func (b *Builder) standIn(owner identity.Owner, excluded bool) attribution.Claimant {
	if !b.begun || !excluded && owner == (identity.Owner{}) {
		return attribution.NoClaimant
	}
	key := standIn{owner, excluded}
	if id, ok := b.programs.standIns[key]; ok {
		return id
	}
	id := b.openClaimant(owner, b.last.Stamp, excluded)
	b.end(id)
	if b.programs.standIns == nil {
		b.programs.standIns = map[standIn]attribution.Claimant{}
	}
	b.programs.standIns[key] = id
	return id
}

// descendantsOf returns a claimant for descendants of a claimant's process that no source can name.
// They are assigned to its program, and marked as descendants.
func (b *Builder) descendantsOf(id attribution.Claimant) attribution.Claimant {
	return b.standIn(b.descendants(id), b.engine.Excluded(id))
}

// descendants returns the owner of descendants of a claimant's process: its program and workload.
func (b *Builder) descendants(id attribution.Claimant) identity.Owner {
	owner := b.engine.Owner(id)
	owner.Process = owner.Process.Program()
	owner.Process.Descendants = owner.Process.Executable != ""
	return owner
}

// shortLivedIn returns a claimant for short-lived processes in the workload of a process. With an
// exact source these are the processes beyond the maximum number of names, so they have no program.
func (b *Builder) shortLivedIn(c *claimant) attribution.Claimant {
	if !b.exact {
		return b.descendantsOf(c.id)
	}
	return b.standIn(identity.Owner{Workload: b.engine.Workload(c.id)}, c.excluded)
}

// destinationByName returns the claimant of a charge of short-lived processes with a name. row is a
// process in their cgroup, or nil.
func (b *Builder) destinationByName(n *proc.Charge, row *proc.Process) destination {
	user := workload.Identity{ProcessCgroup: n.Path, Owner: b.identifier.UserName(n.UID)}
	excluded := false
	var in *cgroup.Node
	if row != nil {
		c := &b.claimants[row.Slot]
		if !c.open {
			return destination{}
		}
		user.Workload, user.ProcessCgroup = b.engine.Workload(c.id), b.identifier.ProcessCgroup(row.Slot)
		in, excluded = c.cgroup, c.excluded && (c.inWorkload || c.withCgroup)
	} else {
		user.Placement = b.identifier.PlaceShortLived(n.Path)
		user.VM = identity.VM{} // only the processes of a virtual machine identify the machine of a cgroup
		if b.watchesCgroups() {
			in = b.cgroups.Node(user.Cgroup)
		}
	}
	user.Executable = b.programs.nameOf(n.Comm.String(), user.Owner, &user.Workload)
	excluded = excluded || b.exclusion.Excludes(&user, b.last.ReadAt)
	program := identity.Process{Executable: user.Executable, Owner: user.Owner}
	id := b.standIn(identity.Owner{Process: program.Program(), Workload: user.Workload}, excluded)
	return destination{found: id != attribution.NoClaimant, claimant: id, in: in, row: row}
}

// claimFamilies claims the time of short-lived descendants outside of workloads, by the programs of
// their nearest ancestors. The child times may include what the counter of a container showed, so
// they count for no more than what is unclaimed. The unit of a descendant that was adopted is not
// that of the process that adopted it, and so is not known.
func (b *Builder) claimFamilies(m *Measurement) {
	var all units.CPUTime
	for _, f := range b.programs.families {
		all = units.AddSaturating(all, f.charge.CPU)
	}
	division := units.Division{Amount: uint64(min(all, b.unclaimed(m))), Total: uint64(all)}
	for _, f := range b.programs.families {
		used := units.CPUTime(division.Next(min(uint64(f.charge.CPU), division.Left())))
		owner := b.descendants(f.of)
		owner.Unit = identity.SystemdUnit{}
		id := b.standIn(owner, false)
		b.claim(attribution.Claim{Claimant: id, ShortLived: true, CPU: used}, m.Table.ChargeParts(f.charge), nil, nil, &m.Table.Rows[f.charge.Slot], m)
	}
}
