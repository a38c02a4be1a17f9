// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// Procfs is the CPU time source that reads /proc, with the resolution of a Tick. Scans do not
// allocate memory after the buffers have grown to the size of the node.
type Procfs struct {
	procFiles
	topology *divide.Topology // nil: the node is not divided
	newest   uint64           // the ID of the newest task at the last scan, 0 if it is not available
	cached   *kernfs.Dir      // reads files of processes by names that the kernel has in its cache
	first    *kernfs.Guard[*firstRead]
	list     *kernfs.Guard[*listing]
	from     int64 // position in /proc for the start of the next listing
	scan     procfsScan
	cgroups  *cgroup.Tree // whose CPU counters are read before the processes, or nil
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

// Close implements kernfs.Job.
func (f *firstRead) Close() error { return f.proc.Close() }

func (f *firstRead) readStat()   { f.got, f.err = f.proc.ReadOf(f.pid, "stat", f.buf) }
func (f *firstRead) readStatus() { f.got, f.err = f.proc.ReadOf(f.pid, "status", f.buf) }

func (f *firstRead) readCgroup() { f.got, f.err = f.proc.ReadOf(f.pid, "cgroup", f.buf) }

// lookUp makes the kernel cache the names of the files of processes.
func (f *firstRead) lookUp(pids []int32) {
	for _, pid := range pids {
		f.proc.LookUpOf(pid, "stat")
	}
}

// guardFirstReads returns a Guard of first reads.
func guardFirstReads(options kernfs.GuardOptions[*firstRead]) *kernfs.Guard[*firstRead] {
	options.New = func() *firstRead {
		proc := kernfs.NewKillable(filepath.Join(options.Root, "proc"), "exe", "cgroup", "status") // which identify a new process
		return &firstRead{proc: proc, buf: make([]byte, 4096)}
	}
	return kernfs.NewGuard(options)
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

// Close implements kernfs.Job.
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
	// listTime is the maximum time that a scan lists processes. On a machine without a free CPU,
	// listing many processes takes longer. Then the next scan continues the listing.
	listTime = 500 * time.Millisecond
	// listStep is the number of processes between two checks of the time.
	listStep = 64
)

// guardListing returns a Guard of listings of processes. most is the maximum duration of a listing.
func guardListing(options kernfs.GuardOptions[*listing], most time.Duration) *kernfs.Guard[*listing] {
	options.Pause = listPause
	options.New = func() *listing {
		return &listing{proc: kernfs.New(filepath.Join(options.Root, "proc")), most: most}
	}
	return kernfs.NewGuard(options)
}

// NewProcfs returns a source that reads below o.Root. It does not access the machine. Of the other
// options only Topology applies.
func NewProcfs(o Options) *Procfs {
	return &Procfs{
		procFiles: newProcFiles(o.Root), topology: o.Topology, cgroups: o.Cgroups,
		cached: kernfs.NewCached(filepath.Join(o.Root, "proc")),
		first:  guardFirstReads(kernfs.GuardOptions[*firstRead]{Root: o.Root, Waits: o.Waits}),
		list:   guardListing(kernfs.GuardOptions[*listing]{Root: o.Root, Waits: o.Waits}, listTime),
	}
}

// Traits implements Source.
func (p *Procfs) Traits() Traits {
	return Traits{Name: "procfs", Traits: proc.Traits{ChildTimes: true, Rounding: 2 * Tick}, Unread: p.unread()}
}

// Close implements Source.
func (p *Procfs) Close() error {
	return errors.Join(p.first.Close(), p.list.Close(), p.cached.Close(), p.proc.Close())
}

// unread returns Traits.Unread.
func (p *Procfs) unread() error {
	switch err := p.list.Err(""); {
	case errors.Is(err, kernfs.ErrSlow):
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
func (p *Procfs) Scan(t *proc.Table, of Request) error {
	s, err := p.begin(t)
	if err != nil {
		return err
	}
	if p.cgroups != nil {
		p.cgroups.ReadCPUTime()
	}
	if err := s.readListed(); err != nil {
		return err
	}
	s.readMissed()
	all, newest := p.tasks()
	s.MissRemaining()
	s.End(of.Used)
	t.Unseen.Hidden = s.unreadable || hides(all, s.threads)
	p.findMissed(t, newest)
	p.findDiscarding(t)
	return nil
}

// begin starts a scan.
func (p *Procfs) begin(t *proc.Table) (*procfsScan, error) {
	now, err := p.uptime()
	if err != nil {
		_, _ = p.cached.Close(), p.list.Job().Close() // /proc may be mounted anew
		return nil, err
	}
	if p.topology != nil {
		p.topology.Refresh(now)
		t.Divide(p.topology)
	}
	p.first.Begin(time.Unix(0, 0).Add(now))
	p.list.Begin(time.Unix(0, 0).Add(now))
	p.scan = procfsScan{source: p, Scan: t.Begin(now)}
	return &p.scan, nil
}

// procfsScan reports what /proc shows.
type procfsScan struct {
	*proc.Scan
	source     *Procfs
	threads    uint64 // of all processes that were read
	unreadable bool   // a process could not be read
	lookedUp   bool   // the names of files of listed processes were looked up
}

// readListed reports each process that list returns. readMissed reports the processes of the
// previous scan that the listing lacks, which are all processes while the listing is blocked.
func (s *procfsScan) readListed() error {
	pids, _, err := s.list()
	if err != nil {
		return err
	}
	s.lookUp(pids)
	for _, pid := range pids {
		s.read(pid, s.Table().Find(pid), true)
	}
	return nil
}

// lookUp looks up the names of the files of processes without a row. If a user blocks the lookups,
// each name is looked up when the file is read, and lookUp has no effect for a minute.
func (s *procfsScan) lookUp(pids []int32) {
	isNew := func(yield func(int32) bool) {
		for _, pid := range pids {
			if s.Table().Find(pid) == nil && !yield(pid) {
				return
			}
		}
	}
	s.lookedUp = s.source.cached.NeverWaits() && s.source.first.DoForAll(isNew, (*firstRead).lookUp)
}

// list returns the PIDs that a listing of /proc finds within listTime, which continues the previous
// listing if that was incomplete. While the listing is blocked, list returns no PIDs. whole reports
// whether it returns all PIDs.
func (s *procfsScan) list() (pids []int32, whole bool, err error) {
	p := s.source
	l := p.list.Job()
	l.from = p.from
	if err := p.list.Do(kernfs.Subject{}, (*listing).read); err != nil {
		if s.Table().Len() == 0 {
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
	slices.Sort(l.pids) // as a real /proc lists them
	s.Expect(len(l.pids))
	whole = l.from == 0 && l.next == 0
	s.unreadable = !whole
	return l.pids, whole, nil
}

// readMissed reports each process of the previous scan that the listing lacks and that still runs:
// a listing of /proc can miss one.
func (s *procfsScan) readMissed() {
	for old := range s.Remaining() {
		s.read(old.PID, old, false)
	}
}

// read reports a process, unless it has exited. old is the newest row of its PID, or nil. A process
// that cannot be read keeps its row, and the next scan that can read the process reports the
// difference. A PID that /proc does not list may now be the ID of a thread: /proc has a directory
// for the thread, with the times of its process.
func (s *procfsScan) read(pid int32, old *proc.Process, listed bool) {
	var now proc.Sight
	switch err := s.source.readProcess(pid, &now, old == nil && !s.lookedUp); {
	case err == nil && !listed && now.Start != old.Start:
	case err == nil:
		s.See(&now)
		s.threads += uint64(now.Threads)
	case !gone(err):
		s.unreadable = true
		if old != nil {
			s.Run(old, old.CPU)
		}
	}
}

func (p *Procfs) readProcess(pid int32, q *proc.Sight, isFirst bool) error {
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
	if err := p.first.Do(kernfs.Subject{PID: pid}, read); err != nil {
		return nil, err
	}
	return f.got, f.err
}

// gone reports whether an error means that a process exited while it was read.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || errors.Is(err, errReleased)
}

// hiddenThreads is the number of tasks that may start between a scan and the reading of the number
// of tasks.
const hiddenThreads = 16

// hides reports whether more tasks exist than a scan found. It tolerates a difference that grows
// with the number of tasks, because tasks start and exit between the scan and the reading of their
// number.
func hides(all, shown uint64) bool { return all > shown+max(hiddenThreads, shown/100) }

// findMissed records whether tasks were created since the last scan that this scan does not show.
// newest is the ID of the newest task, 0 if it is not available.
func (p *Procfs) findMissed(t *proc.Table, newest uint64) {
	t.Unseen.Missed = p.newest > 0 && newest > 0 && createdSince(p.newest, newest) > t.BornThreads()
	p.newest = newest
}

// createdSince returns an upper bound of the number of tasks created between two IDs of the newest
// task. The kernel assigns IDs in ascending order and begins again at its limit.
func createdSince(before, newest uint64) uint64 {
	if newest < before {
		return math.MaxUint64
	}
	return newest - before
}

// findDiscarding looks for processes that ignore SIGCHLD. The kernel discards the times of their
// children. Children that use less than a tick have no times to lose. Therefore only a process is
// examined that had a child that exited without adding to the child times. SA_NOCLDWAIT has the
// same effect, but /proc does not show it.
func (p *Procfs) findDiscarding(t *proc.Table) {
	looked := int32(0)
	for i := range t.Ended {
		e := &t.Ended[i]
		if e.Is(proc.Kernel) || e.Is(proc.Zombie) || e.Parent == looked {
			continue
		}
		looked = e.Parent
		parent := t.Find(e.Parent)
		if parent == nil || parent.Is(proc.Born) || parent.Is(proc.Discards) || parent.Start > e.Start || parent.ChildUsed > 0 {
			continue
		}
		if b, err := p.readFirst(parent.PID, (*firstRead).readStatus); err == nil && IgnoresSIGCHLD(b) {
			parent.Flags |= proc.Discards
		}
	}
	for q := range t.All() {
		if q.Is(proc.Discards) {
			t.Unseen.Untraced = proc.Unbounded
			return
		}
	}
}
