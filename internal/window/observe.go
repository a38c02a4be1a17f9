// SPDX-License-Identifier: Apache-2.0

package window

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// Collect returns the interval since the last measurement. The first measurement is the baseline.
// End must be called after the shares of the interval were added to the ledger.
func (b *Collector) Collect(m *Measurement) *attribution.Interval {
	if !b.begun {
		b.last = *m
	}
	b.beginInterval(m)
	b.excludeLate(m)
	b.claimEnded(m)
	changed := b.identify(m)
	b.claimRunning(m, changed)
	b.findMoved(m)
	b.claimByCounters(m)
	b.claimRest(m)
	b.claimInterrupts(m)
	for _, pass := range b.passes {
		pass(&b.table, m)
	}
	if !b.begun {
		b.dropRows()
		b.Keys.forgetWork()
	}
	b.fillClaims()
	b.claimGPUs(m)
	b.updateRequests(m)
	return &b.interval
}

// End ends the interval that Collect returned for a measurement.
func (b *Collector) End(m *Measurement) {
	b.closeEnded()
	b.programs.endInterval()
	b.Cgroups.Sweep()
	// If the kernel did not report the exits of a burst of processes, their rows are kept for the
	// slack time.
	if t := m.Table; t.Scans() > 0 && b.slack.Ample(t.Len()-t.Awaited(), len(b.claimants), t.Now) {
		b.Shrink(t)
	}
	b.last = *m
	b.begun = true
}

// WithoutClaims returns a copy of m without claims, for the first measurement by a new CPU time
// source. The new source cannot report which processes ran since the last measurement, so the
// active energy of the interval is unattributed. If the utilization of the node is not available
// either, all energy of the interval is unattributed. StartOver must follow End.
func (b *Collector) WithoutClaims(m *Measurement) *Measurement {
	without := *m
	without.Table = &proc.Table{Unseen: proc.Unseen{Hidden: true}, Now: m.Table.Now}
	if without.Node.Total == b.last.Node.Total {
		elapsed := units.CPUTime(m.ReadAt.Sub(b.last.ReadAt))
		without.Node.Busy += elapsed
		without.Node.Total += elapsed
		without.Node.Process += elapsed
	}
	b.gpus.forgetReplaced(m.Table)
	return &without
}

// StartOver continues with another CPU time source. m.Table is its first scan. Processes keep
// their series.
func (b *Collector) StartOver(m *Measurement, exact bool) {
	b.last = *m

	b.endUsers(m)
	before := b.claimants
	for slot := range before {
		b.Identifier.Forget(int32(slot))
	}
	b.Cgroups.Restart()
	b.Exact, b.claimants = exact, make([]claimant, len(m.Table.Rows))
	b.identify(m)
	for p := range processes(m.Table, true) {
		b.update(&b.claimants[p.Slot], p, m)
	}
	for i := range before { // they end with the next interval: the first scan of the source may fail
		b.leave(&before[i])
	}
	b.Cgroups.ReadNew() // the next interval needs readings to start from
	b.Keys.forgetWork()
}

// beginInterval starts the interval that ends with a measurement, without claims.
func (b *Collector) beginInterval(m *Measurement) {
	iv := &b.interval
	iv.At = m.Stamp
	iv.Elapsed = m.ReadAt.Sub(b.last.ReadAt)
	iv.EndsCollection = m.EndsCollection
	iv.Resolution = 0
	if !b.Exact {
		iv.Resolution = cpu.Tick
	}
	iv.Zones = iv.Zones[:0]
	for i := range m.Readings {
		r := &m.Readings[i]
		zone, replaced := b.zones.number(r)
		reading := attribution.ZoneReading{
			Zone: zone, Domain: b.domain(r.Zone), Kind: b.kind(r.Zone, m.Attributed), Total: r.Total, Replaced: replaced,
		}
		if reading.OK, reading.Unmeasured = b.zones.isNew(zone, r); reading.OK {
			reading.Age = ageOf(r, m)
		}
		iv.Zones = append(iv.Zones, reading)
	}
	b.beginGPUs(m)
	b.clearRows()
	b.node.Busy = m.Node.Busy - b.last.Node.Busy
	b.node.Total = m.Node.Total - b.last.Node.Total
	// Most of the time since the state has no weights.
	for i := range b.node.Unweighed {
		b.node.Unweighed[i] = b.restored
	}
	b.restored = false
}

// domain returns the index in Interval.Domains of a zone's domain.
func (b *Collector) domain(z *power.Zone) int {
	if z.Kind == power.GPU {
		return b.gpu(z.Domain)
	}
	if b.divider != nil {
		if i, ok := b.divider.topology.Index(z.Domain); ok {
			return 1 + i
		}
	}
	return 0
}

// kind returns the index of a zone's kind in the ledger, attribution.NotAttributed if the zone is
// only reported.
func (b *Collector) kind(z *power.Zone, attributed []power.Kind) int {
	if !slices.Contains(attributed, z.Kind) {
		return attribution.NotAttributed
	}
	return slices.Index(b.Kinds, power.Class{Zone: z.Kind, Method: z.Method})
}

// updateRequests updates the CPU time that containers request, once a minute.
func (b *Collector) updateRequests(m *Measurement) {
	if !b.Requests || m.ReadAt.Sub(b.requested) < cgroup.RereadRequest {
		return
	}
	b.requested = m.ReadAt
	for i := range b.claimants {
		if c := &b.claimants[i]; c.open {
			b.Ledger.SetRequest(c.id, b.Cgroups.Request(c.cgroup, m.ReadAt))
		}
	}
}

// Shrink frees the memory that was needed for more processes than there are. End calls it a while
// after a burst of processes. It has no effect unless Collect has read the scan in t.
func (b *Collector) Shrink(t *proc.Table) {
	if b.scan != t.Scans() {
		return
	}
	slots := t.Shrink()
	claimants := make([]claimant, len(slots))
	for slot, before := range slots {
		if int(before) < len(b.claimants) {
			claimants[slot], b.claimants[before] = b.claimants[before], claimant{}
		}
	}
	for i := range b.claimants { // of processes that ended in a scan that was not observed
		if c := &b.claimants[i]; c.open {
			b.leave(c)
			b.release(c, int32(i))
		}
	}
	b.claimants, b.sleepers = claimants, units.Shrunk(b.sleepers)
	b.gpus.shrink(t)
	b.Identifier.Shrink(slots)
	b.Cgroups.Shrink()
	b.freeRows()
	if b.divider != nil {
		b.divider.shrink()
	}
	b.closeEnded()
	b.ended = nil
	b.Ledger.Shrink()
}
