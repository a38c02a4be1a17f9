// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/stall"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
)

// Procfs is the CPU time source that reads /proc, with the resolution of a Tick. A scan allocates
// nothing once its buffers have grown to the size of the node.
type Procfs struct {
	procFiles
	topology *divide.Topology // nil: the node is not divided
	newest   uint64           // the ID of the newest task at the last scan, 0 if it is unknown
	cached   *kernfs.Dir      // reads files of processes by names that the kernel has in its cache
	first    *stall.Guard[*firstRead]
	list     *stall.Guard[*listing]
	from     int64        // position in /proc for the start of the next listing
	cgroups  *cgroup.Tree // whose CPU counters are read before the processes, nil: none
}

// firstRead reads a file of a process by a name that the kernel may have to look up, which can
// block (dev/kernel-reads.md).
type firstRead struct {
	proc *kernfs.Dir
	buf  []byte
	pid  int32
	got  []byte
	err  error
}

// Close implements stall.Job.
func (f *firstRead) Close() error { return f.proc.Close() }

func (f *firstRead) readStat()   { f.got, f.err = f.proc.ReadOf(f.pid, "stat", f.buf) }
func (f *firstRead) readStatus() { f.got, f.err = f.proc.ReadOf(f.pid, "status", f.buf) }

func (f *firstRead) readCgroup() { f.got, f.err = f.proc.ReadOf(f.pid, "cgroup", f.buf) }

// guardFirstReads returns a Guard of first reads.
func guardFirstReads(options stall.Options[*firstRead]) *stall.Guard[*firstRead] {
	options.New = func() *firstRead {
		proc := kernfs.NewKillable(filepath.Join(options.Root, "proc"), "exe", "cgroup", "status") // which identify a new process
		return &firstRead{proc: proc, buf: make([]byte, 4096)}
	}
	return stall.New(options)
}

// listing lists the processes, which any user can block (dev/kernel-reads.md).
type listing struct {
	proc *kernfs.Dir
	most time.Duration // maximum duration
	from int64         // start position in /proc
	next int64         // start position of the next listing, 0 after a complete listing
	pids []int32
	err  error
}

// Close implements stall.Job.
func (l *listing) Close() error { return l.proc.Close() }

func (l *listing) read() {
	l.pids = l.pids[:0]
	began := time.Now()
	l.next, l.err = l.proc.EachFrom(l.from, func(name []byte) bool {
		if pid, ok := parsePID(name); ok {
			l.pids = append(l.pids, pid)
		}
		return len(l.pids) == 0 || len(l.pids)%listStep > 0 || time.Since(began) < l.most
	})
}

const (
	// listPause is the minimum time until the processes are listed again after a blocked listing.
	listPause = time.Second
	// listTime is how long a scan lists processes. On a machine without a free CPU, listing many
	// processes takes longer. Then the next scan continues the listing.
	listTime = 500 * time.Millisecond
	// listStep is the number of processes between two checks of the time.
	listStep = 64
)

// guardListing returns a Guard of listings of processes. most is the maximum duration of a listing.
func guardListing(options stall.Options[*listing], most time.Duration) *stall.Guard[*listing] {
	options.Pause = listPause
	options.New = func() *listing {
		return &listing{proc: kernfs.New(filepath.Join(options.Root, "proc")), most: most}
	}
	return stall.New(options)
}

// NewProcfs returns a source that reads below o.Root. It touches nothing. Of the other options only
// Topology applies.
func NewProcfs(o Options) *Procfs {
	return &Procfs{
		procFiles: newProcFiles(o.Root), topology: o.Topology, cgroups: o.Cgroups,
		cached: kernfs.NewCached(filepath.Join(o.Root, "proc")),
		first:  guardFirstReads(stall.Options[*firstRead]{Root: o.Root, Waits: o.Waits}),
		list:   guardListing(stall.Options[*listing]{Root: o.Root, Waits: o.Waits}, listTime),
	}
}

// Traits implements Source.
func (p *Procfs) Traits() Traits {
	return Traits{Name: "procfs", Rounding: 2 * Tick, Unread: p.unread()}
}

// Close implements Source.
func (p *Procfs) Close() error {
	return errors.Join(p.first.Close(), p.list.Close(), p.cached.Close(), p.proc.Close())
}

// unread returns Traits.Unread.
func (p *Procfs) unread() error {
	switch err := p.list.Err(""); {
	case errors.Is(err, stall.ErrSlow):
		return errListSlow
	case err != nil:
		return errListBlocked
	}
	return p.first.Err("CPU times")
}

var (
	errListBlocked = errors.New("new processes may not be found, because a process blocks the listing of /proc")
	errListSlow    = errors.New("new processes may be found late, because the listing of /proc is slow")
)

// Scan implements Source.
func (p *Procfs) Scan(t *scan.Table, of Request) error {
	if _, err := p.beginScan(t); err != nil {
		return err
	}
	if p.cgroups != nil {
		p.cgroups.ReadCPUTime()
	}
	s := procfsScan{source: p, table: t}
	if err := s.readListed(); err != nil {
		t.Abort()
		return err
	}
	s.readMissed()
	all, newest := p.tasks()
	t.Hidden = s.unreadable || hides(all, s.threads)
	t.Finish(of.Used)
	p.findMissed(t, newest)
	p.findDiscarding(t)
	return nil
}

// beginScan starts a scan and returns its time since boot.
func (p *Procfs) beginScan(t *scan.Table) (now time.Duration, err error) {
	if now, err = p.uptime(); err != nil {
		_, _ = p.cached.Close(), p.list.Job().Close() // /proc may be mounted anew
		return 0, err
	}
	if p.topology != nil {
		p.topology.Refresh(now)
		t.Divide(p.topology)
	}
	t.Begin(now)
	p.first.Begin(time.Unix(0, 0).Add(now))
	p.list.Begin(time.Unix(0, 0).Add(now))
	return now, nil
}

// procfsScan fills a table with rows.
type procfsScan struct {
	source     *Procfs
	table      *scan.Table
	threads    uint64 // of all rows
	next       int    // the row of the previous scan that isFirst compares next
	unreadable bool   // a process could not be read
}

// readListed adds a row for each process that list returns. readMissed adds the processes of the
// previous scan that the listing lacks, which are all processes while the listing is blocked.
func (s *procfsScan) readListed() error {
	pids, _, err := s.list()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		s.add(pid)
	}
	s.table.Sort(scan.ByPID)
	return nil
}

// list returns the PIDs that a listing of /proc finds within listTime, which continues the previous
// listing if that was incomplete. While the listing is blocked, list returns no PIDs. whole reports
// whether it returns all PIDs.
func (s *procfsScan) list() (pids []int32, whole bool, err error) {
	p := s.source
	l := p.list.Job()
	l.from = p.from
	if err := p.list.RunShared(0, (*listing).read); err != nil {
		if len(s.table.Before) == 0 {
			return nil, false, fmt.Errorf("list the processes in /proc: %w", err)
		}
		s.unreadable = true
		return nil, false, nil
	}
	p.from = l.next
	if l.err != nil {
		_ = p.proc.Close() // /proc may be mounted anew
		return nil, false, l.err
	}
	whole = l.from == 0 && l.next == 0
	s.unreadable = !whole
	return l.pids, whole, nil
}

// readMissed adds a row for each process of the previous scan that the listing lacks and that still
// runs: a listing of /proc can miss one.
func (s *procfsScan) readMissed() {
	t := s.table
	t.EachMissed(func(old *scan.Process) {
		end := len(t.Processes)
		s.add(old.PID)
		// The number may be a thread's now: /proc has a directory for it with the times of its
		// process, but does not list it.
		if len(t.Processes) > end && t.Processes[end].Start != old.Start {
			t.Processes = t.Processes[:end]
		}
	})
	t.Sort(scan.ByPID)
}

// add adds the row of a process, unless the process is gone. A process that cannot be read keeps
// its row of the previous scan, and the next scan that can read it has the rest.
func (s *procfsScan) add(pid int32) {
	t := s.table
	t.Processes = append(t.Processes, scan.Process{})
	q := &t.Processes[len(t.Processes)-1]
	err := s.source.readProcess(pid, q, s.isFirst(pid))
	if err == nil {
		s.threads += uint64(q.Threads)
		return
	}
	if !gone(err) {
		s.unreadable = true
		if old := t.Previous(pid); old != nil {
			*q = *old
			return
		}
	}
	t.Processes = t.Processes[:len(t.Processes)-1]
}

// isFirst reports whether the previous scan has no process with the PID, so that the kernel has not
// looked up its files. It is fast if called in ascending order of PIDs. Another process may have
// the PID now.
func (s *procfsScan) isFirst(pid int32) bool {
	before := s.table.Before
	if s.next > 0 && before[s.next-1].PID >= pid {
		return s.table.Previous(pid) == nil
	}
	for s.next < len(before) && before[s.next].PID < pid {
		s.next++
	}
	return s.next == len(before) || before[s.next].PID != pid
}

func (p *Procfs) readProcess(pid int32, q *scan.Process, isFirst bool) error {
	b, err := p.readStat(pid, isFirst)
	if err != nil {
		return err
	}
	q.PID = pid
	return ParseProcess(b, q)
}

// readStat reads the text of a process.
func (p *Procfs) readStat(pid int32, isFirst bool) ([]byte, error) {
	if isFirst {
		return p.readFirst(pid, (*firstRead).readStat)
	}
	b, err := p.cached.ReadOf(pid, "stat", p.buf)
	if errors.Is(err, kernfs.ErrNotCached) {
		return p.readFirst(pid, (*firstRead).readStat)
	}
	return b, err
}

// readCgroup reads the text of the cgroups of a process.
func (p *Procfs) readCgroup(pid int32) ([]byte, error) {
	b, err := p.cached.ReadOf(pid, "cgroup", p.buf)
	if errors.Is(err, kernfs.ErrNotCached) {
		return p.readFirst(pid, (*firstRead).readCgroup)
	}
	return b, err
}

// readFirst reads a file of a process by a name that the kernel may have to look up.
func (p *Procfs) readFirst(pid int32, read func(*firstRead)) ([]byte, error) {
	f := p.first.Job()
	f.pid = pid
	if err := p.first.Run(pid, 0, read); err != nil {
		return nil, err
	}
	return f.got, f.err
}

// gone reports whether an error means that a process ended while it was being read.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || errors.Is(err, errReleased)
}

// hiddenThreads is how many tasks may come between a scan and the reading of their number.
const hiddenThreads = 16

// hides reports whether a scan that showed some tasks misses some of all that exist. Tasks come and
// go between the scan and the reading of their number: the more there are, the more.
func hides(all, shown uint64) bool { return all > shown+max(hiddenThreads, shown/100) }

// findMissed notes whether tasks were created since the last scan that this one does not show.
// newest is the ID of the newest task, 0 if it is unknown.
func (p *Procfs) findMissed(t *scan.Table, newest uint64) {
	t.Missed = p.newest > 0 && newest > 0 && createdSince(p.newest, newest) > t.BornThreads()
	p.newest = newest
}

// createdSince returns an upper bound of how many tasks were created while the ID of the newest one
// changed. The kernel assigns IDs in ascending order and begins again at its limit.
func createdSince(before, newest uint64) uint64 {
	if newest < before {
		return math.MaxUint64
	}
	return newest - before
}

// findDiscarding looks for processes that ignore SIGCHLD. The kernel drops the times of their
// children, and children that use less than a tick leave nothing that is missed. Only a process of
// which a child ended without adding to its child times is looked at. SA_NOCLDWAIT has the same
// effect, and /proc does not show it.
func (p *Procfs) findDiscarding(t *scan.Table) {
	looked := int32(0)
	for i := range t.Ended {
		e := &t.Ended[i]
		if e.Kernel || e.Zombie || e.Parent == looked {
			continue
		}
		looked = e.Parent
		parent, old := scan.Find(t.Processes, e.Parent), t.Previous(e.Parent)
		if parent == nil || old == nil || parent.Discards || parent.Start > e.Start || parent.ChildCPU > old.ChildCPU {
			continue
		}
		b, err := p.readFirst(parent.PID, (*firstRead).readStatus)
		parent.Discards = err == nil && IgnoresSIGCHLD(b)
	}
	for i := range t.Processes {
		if t.Processes[i].Discards {
			t.Untraced = scan.Unbounded
			return
		}
	}
}
