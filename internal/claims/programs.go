// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
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
	owner := b.engine.Owner(id)
	owner.Process = owner.Process.Program()
	owner.Process.Descendants = owner.Process.Executable != ""
	return b.standIn(owner, b.engine.Excluded(id))
}

// besideOf returns a claimant for short-lived processes in the workload of a process. With an exact
// source these are the processes beyond the maximum number of names, so they have no program.
func (b *Builder) besideOf(c *claimant) attribution.Claimant {
	if !b.exact {
		return b.descendantsOf(c.id)
	}
	return b.standIn(identity.Owner{Workload: b.engine.Workload(c.id)}, c.excluded)
}

// claimByNames claims the time of short-lived processes whose names are known.
func (b *Builder) claimByNames(m *Measurement) {
	if !b.byProgram {
		return
	}
	for i := range m.Table.ShortLivedBy {
		n := &m.Table.ShortLivedBy[i]
		id, in, row := b.claimantForName(n, m)
		if id == attribution.NoClaimant {
			continue
		}
		parts := m.Table.PartsBy(n)
		b.claim(attribution.Claim{Claimant: id, ShortLived: true, CPU: n.Used}, parts, nil, in, row, m)
		b.shortLived -= min(b.shortLived, n.Used)
		b.domains.forgetShortLived(parts)
	}
}

// claimantForName returns a claimant for short-lived processes with a name, the cgroup of their
// container and a process in their cgroup, both nil if there is none.
func (b *Builder) claimantForName(n *scan.NamedTime, m *Measurement) (id attribution.Claimant, in *cgroup.Node, row *scan.Process) {
	user := workload.Identity{ProcessCgroup: n.Path, Owner: b.identifier.UserName(n.UID)}
	excluded := false
	if n.Row >= 0 {
		row = &m.Table.Processes[n.Row]
		c := &b.claimants[row.Slot]
		if !c.open {
			return attribution.NoClaimant, nil, nil
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
	return b.standIn(identity.Owner{Process: program.Program(), Workload: user.Workload}, excluded), in, row
}

// claimFamilies claims the time of short-lived descendants outside of workloads, by the programs of
// their nearest ancestors. The child times may include what the counter of a container showed, so
// they count for no more than what is unclaimed. The unit of a descendant that was adopted is not
// that of the process that adopted it, and so is not known.
func (b *Builder) claimFamilies(m *Measurement) {
	var all units.CPUTime
	for _, f := range b.programs.families {
		all = units.AddSaturating(all, f.row.ShortLived)
	}
	division := units.Division{Amount: uint64(min(all, b.unclaimed(m))), Total: uint64(all)}
	for _, f := range b.programs.families {
		used := units.CPUTime(division.Next(min(uint64(f.row.ShortLived), division.Left())))
		owner := b.engine.Owner(f.of)
		owner.Unit = identity.SystemdUnit{}
		owner.Process = owner.Process.Program()
		owner.Process.Descendants = owner.Process.Executable != ""
		id := b.standIn(owner, false)
		b.claim(attribution.Claim{Claimant: id, ShortLived: true, CPU: used}, m.Table.ShortLivedParts(f.row), nil, nil, f.row, m)
	}
}
