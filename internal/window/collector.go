// SPDX-License-Identifier: Apache-2.0

package window

import (
	"cmp"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/numa"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/workload"
)

// Options are the dependencies and settings of a Collector.
type Options struct {
	Ledger *ledger.Ledger
	// Exact reports whether scans account for all CPU time, including processes that ended. If
	// false, the counters of containers' cgroups show the rest.
	Exact      bool
	Identifier *workload.Identifier
	// Cgroups is the tree of the host's cgroups. Its ReadCPUTime must be called right before each
	// scan that is not exact. No other Collector may use it at the same time.
	Cgroups   *cgroup.Tree
	Exclusion *workload.Exclusion // nil: no workload is excluded
	Keys      *Keys               // nil: plain CPU time is the only weight
	// Kinds are the kinds of the ledger, by their index.
	Kinds []power.Class
	// Places, if set, reports the domain of the topology that memory belongs to. The keys of memory
	// then weigh claims in that domain.
	Places *numa.Places
	// InterruptsUnattributed makes the CPU time of interrupts unattributed. Otherwise the processes
	// that run share their energy.
	InterruptsUnattributed bool
	// MissedUnattributed makes the CPU time of missed processes unattributed: the CPU time of the
	// node that neither scans nor the counters of processes and cgroups explain. Otherwise the
	// visible processes share its energy.
	MissedUnattributed bool
	// Requests reports whether the ledger needs the CPU time that containers request.
	Requests bool
	// Watch makes the Collector watch containers' cgroups for EachProcess.
	Watch bool
	// Topology, if set, divides the node's CPUs: zones of CPU packages then have the usage of their
	// own package.
	Topology *divide.Topology
	// Siblings, if set, multiplies CPU time by SMTWeight while the other thread of the core is busy,
	// in the attribution weights of Keys that weigh cores.
	Siblings  *divide.Siblings
	SMTWeight float64
	// ByProgram names short-lived processes by their program: the ledger has series of
	// programs.
	ByProgram bool
}

// Collector converts measurements to intervals. Collect turns the usage of each process since the
// last measurement into claims. It opens and closes the ledger's claimants as processes begin,
// change and end.
//
// A Collector serves one ledger. It is not safe for concurrent use.
type Collector struct {
	Options
	table

	passes  []pass   // in order
	byCPU   bool     // a pass divides CPU time by CPU
	divider *divider // of the last pass; nil: all zones share the node's CPUs
	zones   zones
	gpus    gpus
	named   []units.Domain // by their index in the interval

	claimants []claimant // by slot
	sleepers  map[ownerKey]*sleepers
	slack     units.Slack
	ended     []attribution.Claimant // in this interval
	unowned   unowned
	programs  programs
	requested time.Time // when the ledger last got the requests of containers

	last     Measurement
	begun    bool
	restored bool   // the next interval is the time since a state
	scan     uint64 // the last observed scan
}

// NewCollector returns a Collector. It does not read yet.
func NewCollector(o Options) *Collector {
	o.Exclusion, o.Keys = cmp.Or(o.Exclusion, &workload.Exclusion{}), cmp.Or(o.Keys, &Keys{})
	b := &Collector{Options: o, named: []units.Domain{units.NodeCPUs}, sleepers: map[ownerKey]*sleepers{}}
	if len(b.Keys.weights) > 0 {
		if b.byCPU = o.Siblings != nil; b.byCPU {
			b.passes = append(b.passes, newCores(o.Siblings, o.SMTWeight).discount)
		}
		b.passes = append(b.passes, b.Keys.weigh)
	}
	if o.Topology != nil {
		b.named = append(b.named, o.Topology.Domains()...)
		b.divider = newDivider(o.Topology, o.Places, b.Keys)
		b.passes = append(b.passes, b.divider.divide)
	}
	b.table = newTable(len(b.named) - 1)
	b.Cgroups.Restart()
	return b
}

// Last returns the measurement of the last interval. Its table has been overwritten since.
func (b *Collector) Last() *Measurement { return &b.last }

// Interval returns the last interval. It is valid until the next call of Collect.
func (b *Collector) Interval() *attribution.Interval { return &b.interval }

// Zones returns the zones by their index in the intervals.
func (b *Collector) Zones() []power.Zone { return b.zones.known }

// Domains returns the domains by their index in the intervals and in ledger.Totals.Domains. The
// domain of a GPU is added when the GPU is first seen. The caller must not change the slice.
func (b *Collector) Domains() []units.Domain { return b.named }

// Held returns the number of process slots, and the number of watched container cgroups.
func (b *Collector) Held() (processes, containers int) {
	return len(b.claimants), len(b.Cgroups.Nodes())
}

// EachProcess calls yield with each process of the last observed scan, its identity and the cgroup
// of its container. The cgroup is nil outside of containers, or if no cgroups are watched.
func (b *Collector) EachProcess(t *proc.Table, yield func(*proc.Process, identity.Workload, *cgroup.Node)) {
	for p := range processes(t, true) {
		if c := &b.claimants[p.Slot]; c.open {
			yield(p, b.Ledger.Workload(c.id), c.cgroup)
		}
	}
}

// watchesCgroups reports whether files of containers' cgroups are read.
func (b *Collector) watchesCgroups() bool {
	return !b.Exact || b.Requests || b.Watch
}

// Outside returns the reason why the cgroups of containers cannot be read, or nil. It returns nil
// if neither their files nor their paths are needed.
func (b *Collector) Outside() error {
	if !b.watchesCgroups() && !b.Exclusion.ByCgroup() {
		return nil
	}
	return b.Identifier.Outside(b.last.ReadAt)
}

// maxClaim bounds the usage of one claimant in an interval to two years of CPU time. Sums of claims
// therefore do not overflow, even if a kernel prints a negative number as a number near 2^64.
const maxClaim units.CPUTime = 1 << 56
