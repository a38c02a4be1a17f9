// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"errors"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// TickWindow is the shortest interval that the ticks of procfs resolve: 100 ticks of a CPU, so that rounding is 1 % of
// what one busy CPU uses.
const TickWindow = time.Second

// Options selects what a Reader reads.
type Options struct {
	// Root is where the host's root directory is: "/", or where it is mounted in a container.
	Root string
	// Kind is the CPU time source to use.
	Kind Kind
	// Window is how far the intervals are apart. If it is shorter than TickWindow, an exact source gives the node's CPU
	// time, too.
	Window time.Duration
	// BeforeScan, if set, is called right before each scan of a source that is not exact, for counters that must be read
	// before the processes are.
	BeforeScan func()
}

// Reader reads the CPU time of the node and of its processes, interval by interval. It reads them from one CPU time
// source, and with the kind Auto it continues with procfs after BPF has failed three scans in a row.
//
// In each interval call ReadNode next to reading the energy counters, then ReadProcesses. A Reader is not safe for
// concurrent use.
type Reader struct {
	options Options
	source  Source
	runtime *Runtime // gives the node's CPU time where the window is too short for /proc/stat, else nil
	table   Table
	node    Node
	earlier Node // what node was when the source in use took over

	failures int       // failed scans in a row
	scanned  time.Time // the last successful scan
	now      time.Time // of the interval
	scanErr  error     // of the interval's scan, where ReadNode scans
	blind    *Node     // /proc/stat when scans began to fail
}

// OpenReader opens a CPU time source and returns a Reader of it. With the kind Auto it never fails, and rejected tells why
// BPF is not used.
func OpenReader(o Options) (r *Reader, rejected, err error) {
	source, rejected, err := Open(o.Kind, o.Root)
	if err != nil {
		return nil, nil, err
	}
	return NewReader(source, o), rejected, nil
}

// NewReader returns a Reader of a source that is open already. Close closes the source.
func NewReader(source Source, o Options) *Reader {
	r := &Reader{options: o, source: source}
	if o.Window > 0 && o.Window < TickWindow && source.Exact() {
		r.runtime = NewRuntime(o.Root)
	}
	return r
}

// Source returns the CPU time source in use.
func (r *Reader) Source() Source { return r.source }

// Table returns the last successful scan. The pointer stays the same for the Reader's life.
func (r *Reader) Table() *Table { return &r.table }

// ReadNode returns the node's CPU time so far at now, which must have a monotonic clock reading. The time goes on where
// a source that was replaced left it. After an error it is the time that was last known.
func (r *Reader) ReadNode(now time.Time) (Node, error) {
	r.now = now
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
		return plus(r.earlier, node), err
	case r.failures > 0:
		return r.readBlind(), nil
	default:
		return r.runtime.Node(&r.table, r.now)
	}
}

// readBlind returns the node's CPU time while scans fail, from which the runtime takes it. The time stands still until
// procfs replaces the source, and then includes what /proc/stat counted meanwhile. If /proc/stat cannot be read, nothing
// shows that the node was idle, and all of the time counts as busy.
func (r *Reader) readBlind() Node {
	node, err := r.source.ReadNode()
	if err == nil && r.blind == nil {
		r.blind = &node
	}
	if !r.shouldFallBack() || r.scanned.IsZero() {
		return r.node
	}
	var meanwhile Node
	if r.blind != nil {
		meanwhile = Node{
			Busy: units.Advance(r.blind.Busy, node.Busy), Total: units.Advance(r.blind.Total, node.Total),
			Process: units.Advance(r.blind.Process, node.Process),
		}
	}
	if err != nil || meanwhile.Total == 0 {
		elapsed := units.CPUTime(max(r.now.Sub(r.scanned), 0))
		meanwhile = Node{Busy: elapsed, Total: elapsed, Process: elapsed}
	}
	return plus(r.node, meanwhile)
}

func plus(a, b Node) Node {
	return Node{Busy: a.Busy + b.Busy, Total: a.Total + b.Total, Process: a.Process + b.Process}
}

// ReadProcesses scans the processes into the Table. After an error the Table is as it was, and the next scan covers what
// this one missed. If the scan failed for the third time in a row, procfs may replace the source: then replaced is true,
// err is why, and the Table is procfs's first scan, which has nothing in common with the scans before it.
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
	r.failures, r.blind, r.scanned = 0, nil, r.now
	return nil
}

// maxFailures is how many scans in a row may fail before procfs replaces BPF.
const maxFailures = 3

// shouldFallBack reports whether BPF has failed often enough to switch to procfs.
func (r *Reader) shouldFallBack() bool {
	return r.failures >= maxFailures && r.source.Exact() && r.options.Kind == Auto
}

// fallBack replaces the source by procfs. If procfs cannot be read either, the next ReadNode and ReadProcesses take its
// baseline.
func (r *Reader) fallBack() {
	_ = r.source.Close() // nothing more is read from it
	if r.runtime != nil {
		_ = r.runtime.Close() // it was only read from
		r.runtime = nil
	}
	r.source, r.failures, r.earlier, r.table = NewProcfs(r.options.Root), 0, r.node, Table{Sizes: r.table.Sizes}
	_, _ = r.source.ReadNode()
	_ = r.scan()
}

// Close closes the source.
func (r *Reader) Close() error {
	err := r.source.Close()
	if r.runtime != nil {
		err = errors.Join(err, r.runtime.Close())
	}
	return err
}
