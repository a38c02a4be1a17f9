// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"iter"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
)

// identify finds out what processes are and belong to. It reports whether that may have changed for
// processes that did not run, too.
func (b *Builder) identify(m *Measurement) (changed bool) {
	// New processes are reported only by the scan that first sees them. If that scan was not
	// observed, identify all.
	missed := !b.begun || m.Table.Scans() != b.scan+1
	b.scan = m.Table.Scans()
	b.identifier.Begin(m.ReadAt)
	b.identifier.Grow(len(m.Table.Rows))
	if missed && m.Table.Len() > 0 {
		b.gpus.renew(m.Table)
	}
	b.identifier.MayDefer(!m.EndsCollection && !b.exact)
	for p := range rows(m.Table, missed) {
		b.identifier.Identify(p, m.Table.Now)
		if p.Is(proc.Born) {
			b.gpus.note(p)
		}
	}
	if m.EndsCollection && !b.exact {
		b.identifyDeferred(m)
	}
	return b.identifier.Resolve() || missed
}

// identifyDeferred identifies the processes whose identification was deferred.
func (b *Builder) identifyDeferred(m *Measurement) {
	b.identifier.MayDefer(false)
	for p := range rows(m.Table, true) {
		if b.identifier.IsDeferred(p.Slot) {
			b.identifier.Identify(p, m.Table.Now)
		}
	}
}

// claimRunning claims the usage of running processes and of short-lived processes. Processes that
// did not run are looked at only if they may need another claimant, explain a container's counter
// or hold memory that counts.
func (b *Builder) claimRunning(m *Measurement, changed bool) {
	t, charges := m.Table, m.Table.Charges
	for p := range rows(t, changed || !b.exact || b.keys.Sleepers()) {
		c := &b.claimants[p.Slot]
		from := c.cgroup
		b.update(c, p, m)
		parts := t.Splits.Parts(p.Split, p.Used, p.LastCPU)
		b.claim(attribution.Claim{Claimant: c.id, CPU: p.Used}, parts, b.cores.slicesOf(p, t, b.exact), c.cgroup, p, m)
		if !b.exact {
			c.cgroup.Account(int32(c.id), p.Used)
			accountMove(from, c.cgroup, p, m)
			b.domains.ranIn(c.cgroup, parts, p)
		}
		for ; len(charges) > 0 && charges[0].Slot == p.Slot; charges = charges[1:] {
			b.claimCharge(&charges[0], m)
		}
	}
	for i := range charges {
		b.claimCharge(&charges[i], m)
	}
}

// claimCharge claims the CPU time of short-lived processes that the scan found. Without a claimant
// claimRest claims the time.
func (b *Builder) claimCharge(charge *proc.Charge, m *Measurement) {
	var to destination
	var row *proc.Process
	if charge.Slot >= 0 {
		row = &m.Table.Rows[charge.Slot]
	}
	switch {
	case charge.Named && b.byProgram:
		to = b.destinationByName(charge, row)
	case row != nil:
		to = b.destinationOf(charge, row, m)
	case charge.Path != "":
		to.claimant, to.in, to.found = b.claimantForCgroup(charge.Path)
	}
	switch parts := m.Table.ChargeParts(charge); {
	case to.later:
	case !to.found:
		b.shortLived += charge.CPU
		b.domains.noteShortLived(parts)
	default:
		b.claim(attribution.Claim{Claimant: to.claimant, ShortLived: true, CPU: charge.CPU}, parts, nil, to.in, to.row, m)
	}
}

// destination is the claimant of the CPU time of short-lived processes.
type destination struct {
	found    bool // false: claimRest claims the time
	claimant attribution.Claimant
	in       *cgroup.Node  // of their container, or nil
	row      *proc.Process // in their cgroup, or nil
	later    bool          // claimFamilies claims the time
}

// destinationOf returns the claimant of a charge that names a row. An exact
// source charges a row of the same cgroup. procfs charges the parent: the same workload, but after
// re-parenting to init perhaps another unit.
func (b *Builder) destinationOf(charge *proc.Charge, row *proc.Process, m *Measurement) destination {
	c := &b.claimants[row.Slot]
	if c.sleeps {
		b.wake(c, row.Slot, row.PID, row.Start, m)
	}
	if !b.exact {
		c.cgroup.AccountChildren(charge.CPU)
	}
	switch {
	case c.inWorkload || c.withCgroup && b.exact:
		id := c.id
		if b.byProgram {
			id = b.shortLivedIn(c)
		}
		return destination{found: true, claimant: id, in: c.cgroup, row: row}
	case b.byProgram && !b.exact:
		b.programs.noteFamily(charge, c.id)
		return destination{later: true}
	}
	return destination{}
}

// claimByCounters claims what short-lived processes used in containers, as far as only the counters
// of the containers' cgroups show it.
func (b *Builder) claimByCounters(m *Measurement) {
	b.cgroups.ShortLived(m.Table.Traits().Rounding, m.Table.Traits().Late, func(in *cgroup.Node, id int32, used units.CPUTime, first bool) {
		// The first reading of a cgroup's counter may include CPU time of earlier intervals, which
		// others have claimed. Cap it at what the interval has left. Later readings have no such
		// cap: the node's ticks miss what runs between two of them, and the counter does not.
		if first {
			used = min(used, b.unclaimed(m))
		}
		by := attribution.Claimant(id)
		if b.byProgram && used > 0 {
			by = b.descendantsOf(by)
		}
		b.claim(attribution.Claim{Claimant: by, ShortLived: true, CPU: used}, b.domains.in(in), nil, in, nil, m)
	})
}

// claimRest claims what other short-lived processes used, without a claimant. What remains of the
// CPU time that processes used is unattributed, as far as processes are hidden, ended untraced or
// were missed.
func (b *Builder) claimRest(m *Measurement) {
	b.claimFamilies(m)
	if !b.exact {
		// The child times of a process outside of a container may include what the container's
		// counter showed.
		b.shortLived = min(b.shortLived, b.unclaimed(m))
	}
	b.claim(attribution.Claim{Claimant: attribution.NoClaimant, ShortLived: true, CPU: b.shortLived}, b.domains.ofShortLived(), nil, nil, nil, m)

	rest := b.unclaimed(m)
	switch {
	case m.Table.Unseen.Hidden:
		b.node.Unattributed = rest
	case b.missedUnattributed && !b.exact:
		b.node.Unattributed = b.missed.find(b, m, min(rest, m.Table.Unseen.Untraced), rest)
	default:
		b.node.Unattributed = min(rest, m.Table.Unseen.Untraced)
	}
}

// unclaimed returns the CPU time that processes used in the interval and that no claim has so far.
func (b *Builder) unclaimed(m *Measurement) units.CPUTime {
	return units.Advance(b.claimed, m.Node.Process-b.last.Node.Process)
}

// claimInterrupts makes the time that interrupts took unattributed, if it is to be. ksoftirqd is a
// process, which claims what it used itself. Interrupts hold no memory.
func (b *Builder) claimInterrupts(m *Measurement) {
	b.interrupts = 0
	if b.interruptsUnattributed {
		softirqd := m.Table.Softirqd(b.domains.ofSoftirqd())
		b.interrupts = units.Advance(softirqd, m.Node.Interrupt-b.last.Node.Interrupt)
	}
	b.node.Weightless = [attribution.Weights]units.CPUTime{}
	for i, held := range b.keys.held() {
		if held {
			b.node.Weightless[i] = b.interrupts
		}
	}
	b.node.Unattributed += b.interrupts
	b.unattributed += b.node.Unattributed
	b.ofInterrupts += b.interrupts
}

// claim adds a claim to the interval. parts divides its CPU time by domain, and on divides it by CPU.
// Either is nil if it is not available. in is the cgroup of the claimant's container. p is the process
// that used the time, or a process related to the short-lived processes that used it, or nil.
func (b *Builder) claim(c attribution.Claim, parts []units.CPUTime, on []proc.Slice, in *cgroup.Node, p *proc.Process, m *Measurement) {
	c.CPU = min(c.CPU, maxClaim)
	if c.CPU == 0 && (c.ShortLived || !b.keys.Sleepers()) {
		return
	}
	b.node.Claims = append(b.node.Claims, c)
	b.claimed += c.CPU
	b.domains.claimed(parts, p)
	b.domains.holds(b.pathOf(in, p))
	if b.keys == nil {
		return
	}
	share := weigh.Share{CPU: c.CPU, LastCPU: -1, Cgroup: in, ShortLived: c.ShortLived}
	if p != nil {
		share.LastCPU, share.Resident = p.LastCPU, p.Resident
		if !p.Is(proc.Zombie) {
			share.Held = min(b.interval.Elapsed, m.Table.Now-p.Start)
		}
	}
	b.cores.claimed(on)
	b.keys.claimed(share)
}

// pathOf returns the path of the cgroup that a claim's memory is charged to, empty if that does not
// matter or is not known. The arguments are those of claim.
func (b *Builder) pathOf(in *cgroup.Node, p *proc.Process) string {
	switch {
	case b.places == nil:
		return ""
	case p != nil:
		return b.identifier.ProcessCgroup(p.Slot)
	case in != nil:
		return in.Path()
	}
	return ""
}

// rows returns the rows of the processes that are new, ran or waited for a child, by PID, and then
// all others if all is set.
func rows(t *proc.Table, all bool) iter.Seq[*proc.Process] {
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
