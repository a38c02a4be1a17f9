// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"errors"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
)

// TickWindow is the shortest interval that the ticks of procfs resolve: 100 ticks of a CPU, so that
// rounding is 1 % of what one busy CPU uses.
const TickWindow = time.Second

// Options selects what a Reader reads.
type Options struct {
	// Root is where the host's root directory is: "/", or where it is mounted in a container.
	Root string
	// Kind is the CPU time source to use.
	Kind SourceKind
	// Window is how far the intervals are apart. If it is shorter than TickWindow, an exact source
	// gives the node's CPU time, too.
	Window time.Duration
	// Topology, if set, divides CPU time by its domains, too. The Reader closes it.
	Topology *divide.Topology
	// Slices has an exact source note on which CPUs the threads of each process ran, so that
	// Table.Slices returns them. A Topology implies it.
	Slices bool
	// Names makes an exact source provide the names and users of short-lived processes in
	// Table.ShortLivedBy.
	Names bool
	// PerCPU makes the Reader count the busy time of each CPU, too.
	PerCPU bool
	// BeforeScan, if set, is called right before each scan of a source that is not exact, for
	// counters that must be read before the processes are.
	BeforeScan func()
	// Counters, if set, returns the counters that BeforeScan read.
	Counters cgroup.CPUTime
}

// Reader reads the CPU time of the node and of its processes, interval by interval. It reads them
// from one CPU time source, and with the kind Auto it continues with CPU clocks or procfs after BPF
// has failed three scans in a row.
//
// In each interval call ReadNode next to reading the energy counters, then ReadProcesses. A Reader
// is not safe for concurrent use.
type Reader struct {
	options Options
	source  Source
	runtime *Runtime // gives the node's CPU time where the window is too short for /proc/stat, else nil
	table   scan.Table
	node    Node
	earlier Node // what node was when the source in use took over
	domains []domainNode
	nodes   []Node // what Domains returned last

	resuming *Past // until a scan has succeeded after Resume
	unread   bool  // the node's CPU time since the past is not read yet

	failures int       // failed scans in a row
	scanned  time.Time // the last successful scan
	now      time.Time // of the interval
	scanErr  error     // of the interval's scan, where ReadNode scans
	blind    *Node     // /proc/stat when scans began to fail
}

// domainNode holds a Reader's CPU times of a domain, as those of the node.
type domainNode struct{ node, earlier, blind Node }

// OpenReader opens a CPU time source and returns a Reader of it. With the kind Auto it never fails,
// and rejected is why BPF is not used.
func OpenReader(o Options) (r *Reader, rejected, err error) {
	source, rejected, err := Open(o)
	if err != nil {
		if o.Topology != nil {
			err = errors.Join(err, o.Topology.Close())
		}
		return nil, nil, err
	}
	return NewReader(source, o), rejected, nil
}

// NewReader returns a Reader of a source that is open already. Close closes the source.
func NewReader(source Source, o Options) *Reader {
	r := &Reader{options: o, source: source}
	if o.Window > 0 && o.Window < TickWindow && source.Exact() {
		r.runtime = NewRuntime(o.Root, clockOf(source))
	}
	r.countCPUs()
	r.shareCounters()
	if s, ok := source.(naming); ok && o.Names {
		s.nameExits()
	}
	if o.Topology != nil {
		r.domains, r.nodes = make([]domainNode, len(o.Topology.Domains())), make([]Node, len(o.Topology.Domains()))
		if s, ok := source.(divisible); ok && source.Domains() == nil {
			s.divide(o.Topology)
		}
		if r.runtime != nil {
			r.runtime.divide(o.Topology)
		}
	}
	return r
}

// clockOf returns the clock of a source that has one, and else one of this process.
func clockOf(s Source) func() time.Duration {
	if s, ok := s.(clocked); ok {
		return s.clock()
	}
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}

// countCPUs makes the source count the time of each CPU, if that is asked for.
func (r *Reader) countCPUs() {
	if s, ok := r.source.(countsCPUs); ok && r.options.PerCPU {
		s.countCPUs()
	}
}

// shareCounters lets the source use the counters that BeforeScan reads.
func (r *Reader) shareCounters() {
	if s, ok := r.source.(sharesCounters); ok {
		s.shareCounters(r.options.Counters)
	}
}

// CPUs returns the busy time of each CPU so far, by its number, as of the last ReadNode. It is nil
// unless Options.PerCPU is set, and where the ticks of /proc/stat are too coarse: the slices of an
// exact source have to do then. After the source was replaced the times begin at 0 again. The slice
// is valid until the next ReadNode.
func (r *Reader) CPUs() []units.CPUTime {
	if s, ok := r.source.(countsCPUs); ok && r.runtime == nil {
		return s.CPUs()
	}
	return nil
}

// Topology returns how the node's CPUs are divided, nil if they are not.
func (r *Reader) Topology() *divide.Topology { return r.options.Topology }

// Domains returns the CPU time of each domain of the topology as of the last ReadNode, nil without
// a topology. The slice is valid until the next call.
func (r *Reader) Domains() []Node {
	for i := range r.domains {
		r.nodes[i] = r.domains[i].node
	}
	return r.nodes
}

// Source returns the CPU time source in use.
func (r *Reader) Source() Source { return r.source }

// CgroupPath returns the path of the cgroup with the ID in Process.Cgroup, below the root of the
// version 2 hierarchy. It returns an empty string if the path is unknown.
func (r *Reader) CgroupPath(cgroup uint64) string {
	if s, ok := r.source.(pathed); ok {
		return s.CgroupPath(cgroup)
	}
	return ""
}

// Table returns the last successful scan. The pointer stays the same for the Reader's life.
func (r *Reader) Table() *scan.Table { return &r.table }

// ReadNode returns the node's CPU time so far at now, which must have a monotonic clock reading.
// The time goes on where a source that was replaced left it. After an error it is the time that was
// last known.
func (r *Reader) ReadNode(now time.Time) (Node, error) {
	r.now = now
	if s, ok := r.source.(timed); ok {
		s.setTime(now)
	}
	if r.runtime != nil {
		r.scanErr = r.scan()
	}
	node, err := r.readNode()
	if err == nil {
		r.node = node
	}
	return r.node, err
}

func (r *Reader) readNode() (Node, error) {
	switch {
	case r.runtime == nil:
		node, err := r.source.ReadNode()
		for i, domain := range r.source.Domains() {
			r.domains[i].node = plus(r.domains[i].earlier, domain)
		}
		return plus(r.earlier, node), err
	case r.failures > 0:
		return r.readBlind(), nil
	default:
		if err := r.resumeRuntime(); err != nil {
			return r.node, err
		}
		node, err := r.runtime.Node(&r.table, r.now)
		for i := range r.domains {
			r.domains[i].node = plus(r.domains[i].earlier, r.runtime.domain(i))
		}
		return plus(r.earlier, node), err
	}
}

// resumeRuntime adds the time since the past to what the runtime goes on from: its windows begin
// with the first scan.
func (r *Reader) resumeRuntime() error {
	if !r.unread {
		return nil
	}
	node, err := r.source.ReadNode()
	if err != nil {
		return err
	}
	r.unread = false
	r.earlier = plus(r.earlier, node)
	for i, domain := range r.source.Domains() {
		r.domains[i].earlier = plus(r.domains[i].earlier, domain)
	}
	return nil
}

// readBlind returns the node's CPU time while scans fail, from which the runtime takes it. The time
// stands still until procfs replaces the source, and then includes what /proc/stat counted
// meanwhile. If /proc/stat cannot be read, nothing shows that the node was idle, and all of the
// time counts as busy.
func (r *Reader) readBlind() Node {
	node, err := r.source.ReadNode()
	domains := r.source.Domains()
	if err == nil && r.blind == nil {
		r.blind = &node
		for i := range domains {
			r.domains[i].blind = domains[i]
		}
	}
	if !r.shouldFallBack() || r.scanned.IsZero() {
		return r.node
	}
	known := err == nil && r.blind != nil
	for i := range r.domains {
		d := &r.domains[i]
		d.node = plus(d.node, r.meanwhile(known, d.blind, domains[i]))
	}
	if !known {
		return plus(r.node, r.meanwhile(false, Node{}, Node{}))
	}
	return plus(r.node, r.meanwhile(true, *r.blind, node))
}

// meanwhile returns what the CPU time grew by from before to now, as far as that is known, or else
// the time since the last successful scan, all of it busy.
func (r *Reader) meanwhile(known bool, before, now Node) Node {
	grown := Node{
		Busy: units.Advance(before.Busy, now.Busy), Total: units.Advance(before.Total, now.Total),
		Process: units.Advance(before.Process, now.Process), Interrupt: units.Advance(before.Interrupt, now.Interrupt),
	}
	if !known || grown.Total == 0 {
		elapsed := units.CPUTime(max(r.now.Sub(r.scanned), 0))
		grown = Node{Busy: elapsed, Total: elapsed, Process: elapsed}
	}
	return grown
}

func plus(a, b Node) Node {
	return Node{Busy: a.Busy + b.Busy, Total: a.Total + b.Total, Process: a.Process + b.Process, Interrupt: a.Interrupt + b.Interrupt}
}

// ReadProcesses scans the processes into the Table. After an error the Table is as it was, and the
// next scan covers what this one missed. If the scan failed for the third time in a row, another
// source may replace BPF: then replaced is true, err is why, and the Table is the first scan of
// that source, which has nothing in common with the scans before it.
func (r *Reader) ReadProcesses() (replaced bool, err error) {
	if err = r.scanErr; r.runtime == nil {
		err = r.scan()
	}
	r.scanErr = nil
	if err == nil || !r.shouldFallBack() {
		return false, err
	}
	r.fallBack()
	return true, err
}

func (r *Reader) scan() error {
	if r.options.BeforeScan != nil && !r.source.Exact() {
		r.options.BeforeScan()
	}
	if err := r.source.ReadProcesses(&r.table); err != nil {
		r.failures++
		return err
	}
	r.failures, r.blind, r.scanned, r.resuming = 0, nil, r.now, nil
	return nil
}

// maxFailures is how many scans in a row may fail before another source replaces BPF.
const maxFailures = 3

// shouldFallBack reports whether BPF has failed often enough to switch to another source.
func (r *Reader) shouldFallBack() bool {
	return r.failures >= maxFailures && r.source.Exact() && r.options.Kind == Auto
}

// fallBack replaces the source by CPU clocks or procfs. If that cannot be read either, the next
// ReadNode and ReadProcesses take its baseline.
func (r *Reader) fallBack() {
	_ = r.source.Close() // nothing more is read from it
	if r.runtime != nil {
		_ = r.runtime.Close() // it was only read from
		r.runtime = nil
	}
	r.source, _ = openClocks(r.options)
	r.failures, r.table = 0, scan.Table{FreshResident: r.table.FreshResident, FreshLastCPU: r.table.FreshLastCPU}
	r.countCPUs()
	r.shareCounters()
	if r.resuming != nil {
		r.resumeSource() // it counts since the past, too
	} else {
		r.earlier = r.node
		for i := range r.domains {
			r.domains[i].earlier = r.domains[i].node
		}
	}
	_, _ = r.source.ReadNode()
	_ = r.scan()
}

// Close closes the source.
func (r *Reader) Close() error {
	err := r.source.Close()
	if r.runtime != nil {
		err = errors.Join(err, r.runtime.Close())
	}
	if r.options.Topology != nil {
		err = errors.Join(err, r.options.Topology.Close())
	}
	return err
}
