// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"errors"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// Reader reads the CPU time of the node and of its processes, window by window. It reads processes
// from one CPU time source, and with the kind Auto it continues with CPU clocks or procfs after BPF
// has failed three scans in a row. The node's CPU time does not depend on the change of source.
//
// In each window call Begin next to reading the energy counters, then Read. A Reader is not safe
// for concurrent use.
type Reader struct {
	options Options
	source  Source
	traits  Traits // of source, as of when it was opened
	clock   NodeClock
	stat    *StatClock
	precise *preciseClock // the clock if windows are too short for /proc/stat, otherwise nil
	table   proc.Table

	want    Want
	times   Times
	scanned units.CPUTime // Node.Process as of the last scan that succeeded
	scanErr error         // of a scan in Begin

	failures int   // failed scans in a row
	resuming *Past // until a scan has succeeded after Resume
}

// Window holds the CPU time of the node, and the scan of the processes that followed.
type Window struct {
	Times
	// Table is the scan of the window. The pointer is the same in all windows of a Reader.
	Table *proc.Table
	// Replaced reports whether another source has replaced BPF. Then Table is the first scan of
	// that source, and unrelated to the scans before it.
	Replaced bool
}

// NewReader returns a Reader of a source that was opened with the same options. Close closes the
// source.
func NewReader(source Source, o Options) *Reader {
	r := &Reader{options: o, source: source, traits: source.Traits(), stat: NewStatClock(o.Root)}
	r.table = *proc.New(r.traits.Traits)
	if o.Topology != nil {
		r.stat.divide(o.Topology)
	}
	switch {
	case o.Clock != nil:
		r.clock = o.Clock
	case o.Window > 0 && o.Window < TickWindow && r.traits.Exact:
		r.precise = newPreciseClock(o.Root, r.stat, &r.table, r.traits.clock())
		r.clock = r.precise
	default:
		r.useStat()
	}
	r.times = r.stat.times()
	return r
}

// clock returns the clock of the source, or of this process.
func (t *Traits) clock() func() time.Duration {
	if t.now != nil {
		return t.now
	}
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}

// useStat counts the node's CPU time by /proc/stat from now on.
func (r *Reader) useStat() {
	r.clock, r.stat.perCPU, r.stat.countsCreated = r.stat, r.options.PerCPU, !r.traits.Exact
}

// Topology returns how the node's CPUs are divided, nil if they are not.
func (r *Reader) Topology() *divide.Topology { return r.options.Topology }

// Domains returns the CPU time of each domain as of the last Begin or Resume, nil without a
// topology. The slice is valid until the next Begin.
func (r *Reader) Domains() []Node { return r.times.Domains }

// Traits describes the CPU time source in use.
func (r *Reader) Traits() Traits {
	t := r.source.Traits()
	if r.options.Hardware != nil && !t.Exact {
		t.Uncounted = errNotBPF
	}
	return t
}

var errNotBPF = errors.New("hardware events are not counted: only the CPU time source bpf can count them for each process")

// Exact reports whether the CPU time source in use is exact.
func (r *Reader) Exact() bool { return r.traits.Exact }

// CgroupPath returns the path of the cgroup with the ID in Process.Cgroup, below the root of the
// version 2 hierarchy. It returns an empty string if the path is not available.
func (r *Reader) CgroupPath(cgroup uint64) string {
	if r.traits.Paths == nil {
		return ""
	}
	return r.traits.Paths.Path(cgroup)
}

// Table returns the table of all scans. Its usage is valid after a scan that succeeded. The pointer
// stays the same for the Reader's life.
func (r *Reader) Table() *proc.Table { return &r.table }

// Begin begins a window and returns the node's CPU time until at, which is now and has a monotonic
// clock reading. After an error it returns the time of the window before, and the next window
// covers this one. In windows that are too short for /proc/stat, Begin scans the processes; while
// such scans fail, the time stays as it is.
func (r *Reader) Begin(at time.Time, want Want) (Node, error) {
	r.want = want
	if r.precise != nil {
		if r.scanErr = r.scan(); r.scanErr != nil && !r.isBroken() {
			return r.times.Node, nil
		}
		if r.scanErr != nil {
			r.precise.handOver()
			_ = r.precise.Close() // it was only read from
			r.precise = nil
			r.useStat()
		}
	}
	times, err := r.clock.Read(at)
	if err == nil {
		r.times = times
	}
	return r.times.Node, err
}

// Read scans the processes of the window that Begin began. After an error the Table has its rows
// but no usage, and the next scan covers the window of this one. If the scan failed for the third
// time in a row, another source may replace BPF: then Replaced is set, and err is the reason.
func (r *Reader) Read() (Window, error) {
	err := r.scanErr
	if r.scanErr = nil; err == nil && r.precise == nil {
		err = r.scan()
	}
	replaced := err != nil && r.isBroken()
	if replaced {
		r.replaceSource()
		_ = r.scan() // if the scan fails, the next window's scan is the baseline
	}
	return Window{Times: r.times, Table: &r.table, Replaced: replaced}, err
}

func (r *Reader) scan() error {
	used := units.Advance(r.scanned, r.times.Node.Process)
	if err := r.source.Scan(&r.table, Request{Want: r.want, Used: used, Created: r.stat.created}); err != nil {
		r.failures++
		return err
	}
	r.failures, r.scanned, r.resuming = 0, r.times.Node.Process, nil
	return nil
}

// maxFailures is the number of failed scans in a row after which another source replaces BPF.
const maxFailures = 3

// isBroken reports whether BPF has failed often enough to be replaced by another source.
func (r *Reader) isBroken() bool {
	return r.failures >= maxFailures && r.traits.Exact && r.options.Kind == Auto
}

// replaceSource replaces BPF by CPU clocks or procfs.
func (r *Reader) replaceSource() {
	_ = r.source.Close() // it was only read from
	r.source, _ = openClocks(r.options)
	r.traits, r.failures, r.table = r.source.Traits(), 0, *proc.New(r.source.Traits().Traits)
	r.useStat()
	if r.resuming != nil {
		r.resumeTable() // the new source also continues from the saved state
	}
}

// Close closes the source and the files of the clock.
func (r *Reader) Close() error {
	err := errors.Join(r.source.Close(), r.stat.Close())
	if r.precise != nil {
		err = errors.Join(err, r.precise.Close())
	}
	if r.options.Topology != nil {
		err = errors.Join(err, r.options.Topology.Close())
	}
	return err
}
