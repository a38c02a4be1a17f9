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

// programs holds a Builder's state about the programs of short-lived processes. The zero programs
// is ready to use.
type programs struct {
	standIns map[standIn]attribution.Claimant // of the interval
	families []family                         // of the interval, outside of workloads
	long     map[longName]string
}

// standIn identifies a claimant that stands for processes without their own claimant.
type standIn struct {
	owner    identity.Owner
	excluded bool
}

// family is the short-lived descendants of a process.
type family struct {
	row *scan.Process
	of  attribution.Claimant
}

// longName is the part of a program's name that fits in a task's name, with its workload and user.
type longName struct {
	begin, owner string
	in           identity.Key
}

const (
	// maxTaskName is the length of the longest name of a task (TASK_COMM_LEN, proc_pid_comm(5)).
	maxTaskName = 15
	// maxLongNames is the maximum number of names kept. When it is exceeded, all are dropped.
	maxLongNames = 4096
	// burst is the number of stand-ins above which their map is discarded, because clearing a map
	// costs in proportion to its largest size.
	burst = 1024
)

// endInterval drops the claimants of the interval, which are closed.
func (g *programs) endInterval() {
	if len(g.standIns) > burst {
		g.standIns = nil
	}
	clear(g.standIns)
	g.families = g.families[:0]
}

// learn records the name of a process's executable if it does not fit in a task's name.
func (g *programs) learn(o *identity.Owner) {
	name := o.Process.Executable
	if len(name) <= maxTaskName {
		return
	}
	key := longName{name[:maxTaskName], o.Process.Owner, identity.ProcessEntity.Key(&o.Workload)}
	known, ok := g.long[key]
	switch {
	case ok && known != name:
		g.long[key] = "" // there are several
	case !ok:
		if g.long == nil || len(g.long) >= maxLongNames {
			g.long = map[longName]string{}
		}
		g.long[key] = name
	}
}

// nameOf returns the name of the program of a process of which only the name of its task is known:
// that name, or the longer name of the only known program of its workload and user that begins with
// the name of the task.
func (g *programs) nameOf(name, user string, in *identity.Workload) string {
	switch len(name) {
	case 0:
		return "?"
	case maxTaskName:
		if long := g.long[longName{name, user, identity.ProcessEntity.Key(in)}]; long != "" {
			return long
		}
	}
	return name
}

// noteFamily records the short-lived descendants of a process.
func (g *programs) noteFamily(p *scan.Process, of attribution.Claimant) {
	g.families = append(g.families, family{p, of})
}

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
	who := workload.Identity{ProcessCgroup: n.Path, Owner: b.identifier.UserName(n.UID)}
	excluded := false
	if n.Row >= 0 {
		row = &m.Table.Processes[n.Row]
		c := &b.claimants[row.Slot]
		if !c.open {
			return attribution.NoClaimant, nil, nil
		}
		who.Workload, who.ProcessCgroup = b.engine.Workload(c.id), b.identifier.ProcessCgroup(row.Slot)
		in, excluded = c.cgroup, c.excluded && (c.inWorkload || c.withCgroup)
	} else {
		who.Placement = b.identifier.PlaceShortLived(n.Path)
		who.VM = identity.VM{} // only the processes of a virtual machine identify the machine of a cgroup
		if b.watchesCgroups() {
			in = b.cgroups.Node(who.Cgroup)
		}
	}
	who.Executable = b.programs.nameOf(n.Comm.String(), who.Owner, &who.Workload)
	excluded = excluded || b.exclusion.Excludes(&who, b.last.ReadAt)
	program := identity.Process{Executable: who.Executable, Owner: who.Owner}
	return b.standIn(identity.Owner{Process: program.Program(), Workload: who.Workload}, excluded), in, row
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
