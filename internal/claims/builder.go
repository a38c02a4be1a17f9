// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/numa"
	"github.com/energyreceiver/energyreceiver/internal/workload"
)

// Options are the dependencies and settings of a Builder.
type Options struct {
	Engine *attribution.Engine
	// Exact reports whether scans account for all CPU time, including processes that ended. If
	// false, the counters of containers' cgroups show the rest.
	Exact      bool
	Identifier *workload.Identifier
	// Cgroups is the tree of the host's cgroups. No other Builder may use it at the same time.
	Cgroups   *cgroup.Tree
	Exclusion *workload.Exclusion // nil: no workload is excluded
	Keys      *Keys               // nil: plain CPU time is the only one
	// Kinds are the kinds of the ledger, by their index.
	Kinds []power.Class
	// Places, if set, reports in which domain of the topology memory is. Claims then weigh there
	// under the keys of memory.
	Places *numa.Places
	// InterruptsUnattributed makes the CPU time of interrupts unattributed. Otherwise the processes
	// that run share their energy.
	InterruptsUnattributed bool
	// MissedUnattributed makes the CPU time of processes that neither a scan nor their own counters
	// show unattributed, up to the amount that the node's counter shows. Otherwise the visible
	// processes share their energy.
	MissedUnattributed bool
	// Requests reports whether the engine needs to know what CPU time containers request.
	Requests bool
	// Topology, if set, divides the node's CPUs: zones of CPU packages then have the usage of their
	// own package.
	Topology *divide.Topology
	// Siblings, if set, makes CPU time count for SMTWeight of it while a thread of the same core is
	// busy, under the allocation keys of Keys that weigh cores.
	Siblings  *divide.Siblings
	SMTWeight float64
	// KeepMemory keeps the memory that was needed for more processes.
	KeepMemory bool
	// Programs names short-lived processes by their program: the engine reports processes by
	// program.
	Programs bool
	// Eager opens a claimant for each process at once. Otherwise one that never ran has one
	// together with others of its workload, unless that makes a difference.
	Eager bool
}

// Measurement is what one tick has read.
type Measurement struct {
	// ReadAt is when, with its monotonic part. Elapsed time is between two of these.
	ReadAt time.Time
	// Stamp is the same moment as in data points. It never steps back.
	Stamp time.Time
	// Node is the node's CPU time so far.
	Node cpu.Node
	// Domains is the CPU time so far of each domain of the topology.
	Domains []cpu.Node
	// CPUs is the busy time of each CPU so far, by number, nil where the table has to do.
	CPUs []units.CPUTime
	// Table is the scan. The Builder reads it in Observe only.
	Table *scan.Table
	// Readings are those of all known zones.
	Readings []power.Reading
	// GPUs is the usage of each GPU since the last measurement.
	GPUs []gpu.Usage
	// Attributed are the zone kinds whose energy is attributed. Zones of other kinds are only
	// reported.
	Attributed []power.Kind
	// EndsCollection reports whether the ledger is emitted next.
	EndsCollection bool
}

// Builder makes the engine's intervals of measurements: Observe turns what each process used since
// the last measurement into claims, and opens and closes claimants as processes come, change and
// go.
//
// A Builder lasts as long as its engine. It is not safe for concurrent use.
type Builder struct {
	// KeepMemory keeps the memory that was needed for more processes.
	KeepMemory bool

	engine     *attribution.Engine
	identifier *workload.Identifier
	exclusion  *workload.Exclusion
	cgroups    *cgroup.Tree
	places     *numa.Places
	keys       *Keys
	kinds      []power.Class

	// As in Options.
	exact, interruptsUnattributed, missedUnattributed, requests, byProgram, eager bool

	zones   zones
	domains *domains // nil: all zones share the node's CPUs
	cores   *cores   // nil: CPU time counts in full
	gpus    gpus
	named   []units.Domain // by their index in the interval

	claimants []claimant // by slot
	sleepers  map[sleepersKey]*sleepers
	slack     units.Slack
	ended     []attribution.Claimant // in this interval
	programs  programs

	requested time.Time // when the engine was last given what containers request

	interval   attribution.Interval
	node       *attribution.Usage // of the interval: the node's CPUs
	claimed    units.CPUTime      // by the interval's claims so far
	shortLived units.CPUTime      // of short-lived processes of which the workload is not known so far
	interrupts units.CPUTime      // of interrupts that is unattributed
	missed     missed
	// unattributed is all unattributed CPU time so far, ofInterrupts the part of it that is that of
	// interrupts.
	unattributed, ofInterrupts units.CPUTime

	last  Measurement
	begun bool
	// restored reports whether the next interval is the time since a state.
	restored bool
	scan     uint64 // the last one that was observed
}

// NewBuilder returns a Builder. It reads nothing yet.
func NewBuilder(o Options) *Builder {
	b := &Builder{
		KeepMemory: o.KeepMemory,

		engine: o.Engine, identifier: o.Identifier, exclusion: o.Exclusion, cgroups: o.Cgroups, places: o.Places, keys: o.Keys, kinds: o.Kinds,

		exact: o.Exact, interruptsUnattributed: o.InterruptsUnattributed, missedUnattributed: o.MissedUnattributed,
		requests: o.Requests, byProgram: o.Programs, eager: o.Eager,

		domains: newDomains(o.Topology), cores: newCores(o.Siblings, o.SMTWeight),
		named: []units.Domain{units.NodeCPUs}, sleepers: map[sleepersKey]*sleepers{},
	}
	if b.domains != nil {
		b.domains.cores, b.domains.keys = b.cores, b.keys
	}
	if o.Topology != nil {
		b.named = append(b.named, o.Topology.Domains()...)
	}
	b.cgroups.Restart()
	b.interval.Domains = make([]attribution.Usage, 1+b.domains.number())
	b.node = &b.interval.Domains[0]
	return b
}

// Last returns the measurement that was observed last. Its table has been overwritten since.
func (b *Builder) Last() *Measurement { return &b.last }

// Interval returns the interval that was observed last. It is valid until the next call of Observe.
func (b *Builder) Interval() *attribution.Interval { return &b.interval }

// Zones returns the zones by the engine's numbers.
func (b *Builder) Zones() []power.Zone { return b.zones.known }

// Domains returns the domains by their index in the intervals and in attribution.Ledger.Domains. A
// GPU's is added when the GPU is first seen. The caller must not change the slice.
func (b *Builder) Domains() []units.Domain { return b.named }

// Held returns how many processes there is room for, and how many containers' cgroups are watched.
func (b *Builder) Held() (processes, containers int) {
	return len(b.claimants), len(b.cgroups.Nodes())
}

// ReadCounters reads the counters of containers' cgroups. Call it right before each scan that is
// not exact.
func (b *Builder) ReadCounters() { b.cgroups.ReadCPUTime() }

// Observe has the engine attribute the interval since the last measurement. The first measurement
// is the baseline.
func (b *Builder) Observe(m *Measurement) {
	if !b.begun {
		b.last = *m
	}
	b.beginInterval(m)
	b.excludeLate(m)
	b.claimEnded(m)
	changed := b.identify(m)
	b.claimRunning(m, changed)
	b.claimByCounters(m)
	b.claimByNames(m)
	b.claimByCgroups(m)
	b.claimRest(m)
	b.claimInterrupts(m)
	b.weigh(m)
	b.claimGPUs(m)
	b.updateRequests(m)
	if !b.begun {
		b.dropUsage()
	}
	b.engine.Observe(&b.interval)
	b.closeEnded()
	b.programs.endInterval()
	b.cgroups.Sweep()
	// If the kernel did not report the ends of a burst of processes, their rows stay for as long as
	// units.SlackTime.
	if t := m.Table; !b.KeepMemory && t.Scans() > 0 && b.slack.Ample(len(t.Processes)-t.Awaited(), len(b.claimants), t.Now) {
		b.Shrink(t)
	}
	b.last = *m
	b.begun = true
}

// StartOver continues with another CPU time source, of which m.Table is the first scan. Nothing
// shows which processes ran since the last measurement, so the interval until m is observed without
// claims and its active energy becomes unattributed; so does all of its energy if nothing shows how
// busy the node was. Processes keep their series.
func (b *Builder) StartOver(m *Measurement, exact bool) {
	without := *m
	without.Table = &scan.Table{Hidden: true, Now: m.Table.Now}
	if without.Node.Total == b.last.Node.Total {
		elapsed := units.CPUTime(m.ReadAt.Sub(b.last.ReadAt))
		without.Node.Busy += elapsed
		without.Node.Total += elapsed
		without.Node.Process += elapsed
	}
	b.gpus.forgetReplaced(m.Table)
	b.Observe(&without)
	b.last = *m

	b.endUsers(m)
	before := b.claimants
	for slot := range before {
		b.identifier.Forget(int32(slot))
	}
	b.cgroups.Restart()
	b.exact, b.claimants = exact, make([]claimant, m.Table.Slots())
	b.identify(m)
	for p := range rows(m.Table, true) {
		b.update(&b.claimants[p.Slot], p, m)
	}
	for i := range before { // with the next interval: until then the first scan of the source may have failed
		b.leave(&before[i])
	}
	b.ReadCounters() // so that the next interval has a counter to start from
	b.keys.forgetWork()
}

// beginInterval starts the interval that ends with a measurement, without claims.
func (b *Builder) beginInterval(m *Measurement) {
	iv := &b.interval
	iv.At = m.Stamp
	iv.Elapsed = m.ReadAt.Sub(b.last.ReadAt)
	iv.EndsCollection = m.EndsCollection
	iv.Resolution = 0
	if !b.exact {
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
			reading.Age = ageOf(r, m.ReadAt)
		}
		iv.Zones = append(iv.Zones, reading)
	}
	b.beginGPUs(m)
	b.node.Busy = m.Node.Busy - b.last.Node.Busy
	b.node.Total = m.Node.Total - b.last.Node.Total
	b.node.Claims = b.node.Claims[:0]
	b.domains.beginPlaces(b.places, b.keys, m.ReadAt)
	b.domains.begin(m, iv.Domains[1:1+b.domains.number()])
	b.claimed, b.shortLived = 0, m.Table.ShortLived
	b.keys.begin()
	b.cores.begin(m)
}

// domain returns the index in Interval.Domains of a zone's domain.
func (b *Builder) domain(z *power.Zone) int {
	if z.Kind == power.GPU {
		return b.gpu(z.Domain)
	}
	return b.domains.of(z)
}

// kind returns the index of a zone's kind in the ledger, attribution.NotAttributed if the zone is
// only reported.
func (b *Builder) kind(z *power.Zone, attributed []power.Kind) int {
	if !slices.Contains(attributed, z.Kind) {
		return attribution.NotAttributed
	}
	return slices.Index(b.kinds, power.Class{Zone: z.Kind, Method: z.Method})
}

// weigh sets the claims' weights under the allocation keys, and divides the claims by domain.
func (b *Builder) weigh(m *Measurement) {
	b.cores.discount(b.keys, b.interval.Elapsed)
	b.node.Unweighed = b.keys.weigh(m.ReadAt, m.Readings, b.node.Claims)
	if b.restored { // of most of the interval no work was measured
		for i := range b.node.Unweighed {
			b.node.Unweighed[i] = true
		}
		b.restored = false
	}
	b.domains.divide(b.node, b.interrupts)
}

// updateRequests updates the CPU time that containers request, once a minute.
func (b *Builder) updateRequests(m *Measurement) {
	if !b.requests || m.ReadAt.Sub(b.requested) < cgroup.RereadRequest {
		return
	}
	b.requested = m.ReadAt
	for i := range b.claimants {
		if c := &b.claimants[i]; c.open {
			b.engine.SetRequest(c.id, b.cgroups.Request(c.cgroup, m.ReadAt))
		}
	}
}

// dropUsage drops what was used until the baseline.
func (b *Builder) dropUsage() {
	b.node.Claims, b.node.Unattributed = b.node.Claims[:0], 0
	b.domains.drop()
	b.keys.forgetWork()
}

// Shrink frees the memory that was needed for more processes than there are. Observe calls it a
// while after a burst of processes. It does nothing unless the scan in t was observed.
func (b *Builder) Shrink(t *scan.Table) {
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
	b.claimants, b.sleepers = claimants, units.Rebuilt(b.sleepers)
	b.gpus.shrink(t)
	b.identifier.Shrink(slots)
	b.cgroups.Shrink()
	for i := range b.interval.Domains {
		b.interval.Domains[i].Claims = nil
	}
	b.closeEnded()
	b.ended = nil
	b.domains.shrink()
	b.keys.shrink()
	b.cores.shrink()
	b.engine.Shrink()
}

// watchesCgroups reports whether anything is read from containers' cgroups.
func (b *Builder) watchesCgroups() bool { return !b.exact || b.requests || b.keys.readCgroups() }

// Outside returns why containers' cgroups cannot be looked at, if anything is read there or depends
// on their paths.
func (b *Builder) Outside() error {
	if !b.watchesCgroups() && !b.exclusion.ByCgroup() {
		return nil
	}
	return b.identifier.Outside(b.last.ReadAt)
}
