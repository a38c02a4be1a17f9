// SPDX-License-Identifier: Apache-2.0

package window

import (
	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/workload"
)

// standIn returns a claimant, for this interval, for processes without their own claimant. There is
// no claimant for an owner without program and workload.
func (b *Collector) standIn(owner identity.Owner, excluded bool) attribution.Claimant {
	if !b.begun || !excluded && owner == (identity.Owner{}) {
		return attribution.NoClaimant
	}
	key := ownerKey{owner, excluded}
	if id, ok := b.programs.standIns[key]; ok {
		return id
	}
	id := b.openClaimant(owner, b.last.Stamp, excluded)
	b.end(id)
	if b.programs.standIns == nil {
		b.programs.standIns = map[ownerKey]attribution.Claimant{}
	}
	b.programs.standIns[key] = id
	return id
}

// descendantsOf returns a claimant for descendants of a claimant's process that no source can name.
// They are assigned to its program, and marked as descendants.
func (b *Collector) descendantsOf(id attribution.Claimant) attribution.Claimant {
	return b.standIn(b.descendants(id), b.Ledger.Excluded(id))
}

// descendants returns the owner of descendants of a claimant's process: its program and workload.
func (b *Collector) descendants(id attribution.Claimant) identity.Owner {
	owner := b.Ledger.Owner(id)
	owner.Process = owner.Process.Program()
	owner.Process.Descendants = owner.Process.Executable != ""
	return owner
}

// shortLivedIn returns a claimant for short-lived processes in the workload of a process. With an
// exact source these are the processes beyond the maximum number of names, so they have no program.
func (b *Collector) shortLivedIn(c *claimant) attribution.Claimant {
	if !b.Exact {
		return b.descendantsOf(c.id)
	}
	return b.standIn(identity.Owner{Workload: b.Ledger.Workload(c.id)}, c.excluded)
}

// nameOwner makes the program of a charge the owner of its row. It returns false if there is no
// claimant for the owner. The process of the row is in the cgroup of the charge, or nil.
func (b *Collector) nameOwner(r *row, charge *proc.Charge) bool {
	user := workload.Identity{ProcessCgroup: charge.Path, Owner: b.Identifier.UserName(charge.UID)}
	excluded := false
	if r.process != nil {
		c := &b.claimants[r.process.Slot]
		if !c.open {
			return false
		}
		user.Workload, user.ProcessCgroup = b.Ledger.Workload(c.id), b.Identifier.ProcessCgroup(r.process.Slot)
		r.cgroup, excluded = c.cgroup, c.excluded && (c.inWorkload || c.withCgroup)
	} else {
		user.Placement = b.Identifier.PlaceShortLived(charge.Path)
		user.VM = identity.VM{} // only the processes of a virtual machine identify the machine of a cgroup
		if b.watchesCgroups() {
			r.cgroup = b.Cgroups.Node(user.Cgroup)
		}
	}
	user.Executable = b.programs.nameOf(charge.Comm.String(), user.Owner, &user.Workload)
	excluded = excluded || b.Exclusion.Excludes(&user, b.last.ReadAt)
	program := identity.Process{Executable: user.Executable, Owner: user.Owner}
	r.claimant = b.standIn(identity.Owner{Process: program.Program(), Workload: user.Workload}, excluded)
	return r.claimant != attribution.NoClaimant
}

// claimFamilies claims the time of short-lived descendants outside of workloads, by the programs of
// their nearest ancestors. The child times may include CPU time that the counter of a container
// showed, so they are capped at the unclaimed CPU time. The rows have no unit, because an adopted
// descendant may be in another unit than the process that adopted it.
func (b *Collector) claimFamilies(m *Measurement) {
	var all units.CPUTime
	for i := range b.programs.families {
		all = units.AddSaturating(all, b.programs.families[i].CPU)
	}
	division := units.Division{Amount: uint64(min(all, b.unclaimed(m))), Total: uint64(all)}
	for i := range b.programs.families {
		r := &b.programs.families[i]
		r.CPU = units.CPUTime(division.Next(min(uint64(r.CPU), division.Left())))
		owner := b.descendants(r.claimant)
		owner.Unit = identity.SystemdUnit{}
		r.claimant = b.standIn(owner, false)
		b.add(r, m)
	}
}
