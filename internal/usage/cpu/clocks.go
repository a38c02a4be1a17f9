// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// Clocks is the CPU time source that reads the CPU clocks of processes (clock_getcpuclockid(3)):
// CPU time in nanoseconds of all threads, including exited ones, for a tenth of the cost of
// /proc/<pid>/stat. If a clock does not change, the process has not run, and its row is not
// changed. All other values of a process are read from /proc, as Procfs does: when the process is
// new, when tasks were created since the previous scan, and in scans of all processes.
//
// The clock of a process that is running on another CPU is up to a scheduler tick old
// (kernel/sched/cputime.c, thread_group_cputime). The next scan has the rest.
type Clocks struct {
	Procfs
	clock   func(pid int32) (units.CPUTime, error)
	isOwn   func(number int32) bool // reports whether a number is the ID of a thread of this process
	spread  bool                    // each scan needs LastCPU: CPU time is counted by domain or CPU
	numbers numbers
	gate    gate
	unread  []int32       // PIDs of new processes that the latest scan did not read in time
	fresh   time.Duration // when the memory of all processes was read last
	table   *proc.Table   // has the rows of the latest scan
	total   uint64        // the number of tasks at that scan
	ended   []int32       // scratch of refreshKin: the PIDs of processes that ended, and of their parents
	parents []int32
	scan    clocksScan
}

var errOtherNamespace = errors.New("the receiver does not share the PID namespace of the host: " +
	"use hostPID: true on Kubernetes, --pid=host with Docker")

// OpenClocks returns a source that reads below o.Root as NewProcfs does. It fails if the clocks of
// this process's PID namespace do not belong to the processes of the host.
func OpenClocks(o Options) (*Clocks, error) {
	if err := checkClocks(o.Root); err != nil {
		return nil, err
	}
	c := newClocks(o, gatedFrom, ReadCPUClock)
	c.isOwn = isOwnThread
	return c, nil
}

// NewSimulatedClocks returns a source that reads the clocks of a simulated host, whose files are
// below o.Root. The clock of a process that does not exist is EINVAL. Only tests call it.
func NewSimulatedClocks(o Options, clock func(pid int32) (time.Duration, error)) *Clocks {
	const from = 1 // simulated cgroups are small
	return newClocks(o, from, func(pid int32) (units.CPUTime, error) {
		now, err := clock(pid)
		return units.CPUTime(now), err
	})
}

// newClocks returns a source whose gate reads the counters of cgroups with at least from processes.
func newClocks(o Options, from int, clock func(pid int32) (units.CPUTime, error)) *Clocks {
	return &Clocks{
		Procfs: *NewProcfs(o), clock: clock, isOwn: func(int32) bool { return false },
		spread: o.Topology != nil || o.PerCPU, gate: newGate(o, from),
	}
}

// initialPIDNamespace is the target of ns/pid of processes in the first PID namespace
// (include/linux/proc_ns.h, PROC_PID_INIT_INO).
const initialPIDNamespace = "pid:[4026531836]"

// checkClocks returns the reason if the clocks of the processes below root cannot be read: the PIDs
// belong to another namespace, or the kernel refuses or lacks such clocks.
func checkClocks(root string) error {
	if _, err := os.Stat(filepath.Join(root, "proc/stat")); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("root_path: %s does not contain the /proc of the host: %w", root, err)
	}
	self, pid := filepath.Join(root, "proc/self"), os.Getpid()
	if target, err := os.Readlink(self); err != nil || target != strconv.Itoa(pid) {
		return errOtherNamespace
	}
	if target, err := os.Readlink(filepath.Join(self, "ns/pid")); err != nil || target != initialPIDNamespace {
		return errOtherNamespace
	}
	before, err := ReadCPUClock(0)
	if err != nil {
		return fmt.Errorf("read the CPU clock of this process: %w", err)
	}
	now, err := ReadCPUClock(int32(pid))
	if err != nil {
		return fmt.Errorf("read the CPU clock of a process: %w", err)
	}
	if after, err := ReadCPUClock(0); err != nil || now < before || now > after {
		return fmt.Errorf("the CPU clock of a process shows %v, its own clock %v", time.Duration(now), time.Duration(before))
	}
	return nil
}

// Close implements Source.
func (c *Clocks) Close() error { return errors.Join(c.Procfs.Close(), c.gate.close()) }

// Traits implements Source.
func (c *Clocks) Traits() Traits {
	return Traits{
		Name: "clocks", Traits: proc.Traits{ChildTimes: true, Late: lateInCgroup, ChildRounding: 2 * Tick}, Unread: c.Procfs.unread(),
	}
}

// Scan implements Source.
func (c *Clocks) Scan(t *proc.Table, of Request) error {
	p, err := c.begin(t)
	if err != nil {
		return err
	}
	now := t.Now
	tasks, newest := c.tasks()
	last := clampInt32(int64(newest))
	created, known := of.Created, of.Created > 0
	c.scan = clocksScan{procfsScan: p, clocks: c, given: c.numbers.since(last, created, known, tasks), zombies: c.scan.zombies[:0]}
	s := &c.scan
	if c.table != t {
		s.given.all = true
		c.gate.reset()
	}
	c.table = nil // until this scan has succeeded
	if now < c.fresh || now-c.fresh >= recheck {
		s.all = of.Resident
	}
	isQuiet := s.given.none() && known && created == c.numbers.created && tasks == c.total
	s.moved = !isQuiet || of.All || of.LastCPU || c.spread
	s.unseen = c.numbers.unseen(s.given)
	isListed := t.Scans() == 0 || s.unseen.count() > maxProbes || now < c.numbers.listed || now-c.numbers.listed >= listAgain
	c.gate.begin(t, s.all || s.given.all || isListed)
	s.debt = maxDebt
	if of.All {
		s.debt = lastDebt
	}
	err = s.readAll(now, isListed, tasks)
	c.gate.end()
	if err != nil {
		return err
	}
	s.End(of.Used)
	t.Unseen.Hidden = s.unreadable || hides(tasks, s.threads)
	c.findMissed(t, newest)
	s.placeAll()
	c.table, c.total = t, tasks
	c.numbers.advance(last, created, known)
	if s.all || s.given.all {
		c.fresh = now
	}
	c.findDiscarding(t)
	return nil
}

// clocksScan is a scan of the clocks and of /proc.
type clocksScan struct {
	*procfsScan
	clocks  *Clocks
	given   given         // since the previous scan
	unseen  given         // PIDs that the previous scan may have missed
	all     bool          // the files of all processes are to be read
	moved   bool          // the files of processes that ran are to be read
	listed  bool          // the PIDs come from a listing of /proc, which contains no thread IDs
	zombies []int32       // PIDs of processes that became zombies
	debt    time.Duration // the maximum debt before clocks of idle processes are read
}

// readAll reports each process. While the listing is blocked or incomplete, it finds new processes
// by their PIDs.
func (s *clocksScan) readAll(now time.Duration, isListed bool, tasks uint64) (err error) {
	unread := s.clocks.unread
	s.clocks.unread = nil
	if isListed {
		if isListed, err = s.readListed(now); err != nil {
			return err
		}
	}
	for old := range s.Remaining() {
		s.look(old.PID, old)
	}
	if !isListed {
		s.probe(unread)
	}
	for p := range s.Table().All() {
		if s.Saw(p) {
			s.threads += uint64(p.Threads)
		}
	}
	s.lookAtLeft(tasks, s.debt)
	s.MissRemaining()
	s.refreshKin()
	return nil
}

// probe reports new processes by their PIDs. It looks up the PIDs that the kernel has assigned
// since the previous scan, unless they are many, and the PIDs that the previous scan did not read
// in time.
func (s *clocksScan) probe(unread []int32) {
	look := func(pid int32) {
		if known := s.Table().Find(pid); known == nil || !s.Saw(known) {
			s.look(pid, nil)
		}
	}
	few := s.unseen.count() <= maxProbes
	if few {
		s.unseen.each(look)
	}
	for _, pid := range unread {
		if !few || !s.unseen.has(pid) {
			look(pid)
		}
	}
}

// readListed reports each process that list returns. whole reports whether all processes were
// listed.
func (s *clocksScan) readListed(now time.Duration) (whole bool, err error) {
	pids, whole, err := s.list()
	if err != nil || len(pids) == 0 {
		return false, err
	}
	n := &s.clocks.numbers
	n.most = s.source.pidMax()
	s.lookUp(pids)
	s.listed = true
	for _, pid := range pids {
		s.look(pid, s.Table().Find(pid))
	}
	s.listed = false
	if n.listed = now; !whole {
		n.listed -= listAgain // the next scan lists the others
	}
	return whole, nil
}

// look reports a process, unless it has exited. old is its row of the previous scan, or nil. A
// process that cannot be read keeps this row, and the next scan that can read the process reports
// the difference.
//
// The clock is read before the files: if the process runs in between, the next scan finds that its
// clock moved.
func (s *clocksScan) look(pid int32, old *proc.Process) {
	gate := &s.clocks.gate
	if old != nil && !s.given.has(pid) && gate.leavesOut(old) {
		s.Run(old, old.CPU)
		return
	}
	clock, err := s.clocks.clock(pid)
	if err == nil && (old == nil || s.given.has(pid)) && !s.listed && s.clocks.isOwn(pid) {
		err = syscall.EINVAL
	}
	if errors.Is(err, syscall.EINVAL) { // there is no process, or the number is a thread ID
		if old != nil && s.moved {
			gate.forget(old, gate.groupOf(old))
			gate.exited = append(gate.exited, old.Parent)
		}
		return
	}
	if err == nil && old != nil {
		gate.noteRead(old.Slot, clock > old.CPU)
	}
	if err == nil && old != nil && clock >= old.CPU && !s.mustRead(pid, old, clock > old.CPU) {
		gate.explain(&old.Sight, gate.groupOf(old), clock-old.CPU)
		if clock > old.CPU {
			old.Flags |= proc.Stale
		}
		s.Run(old, clock)
		return
	}
	var now proc.Sight
	if err == nil {
		err = s.source.readProcess(pid, &now, old == nil && !s.lookedUp)
	}
	if err == nil && old != nil && now.Start != old.Start { // the clock may belong to the other process
		clock, err = s.clocks.clock(pid)
	}
	switch {
	case err == nil:
		now.CPU = clock
		s.follow(&now, old)
		s.See(&now)
	case !gone(err) && !errors.Is(err, syscall.EINVAL):
		s.unreadable = true
		if old != nil {
			s.Run(old, old.CPU)
		} else if errors.Is(err, kernfs.ErrUnread) {
			s.clocks.unread = append(s.clocks.unread, pid)
		}
	}
}

// follow updates the gate by the values that were read of a process.
func (s *clocksScan) follow(now *proc.Sight, old *proc.Process) {
	gate := &s.clocks.gate
	switch {
	case old != nil && old.Start == now.Start:
		if now.ChildCPU > old.ChildCPU {
			gate.waited = append(gate.waited, now.PID)
		}
		if now.Is(proc.Zombie) && !old.Is(proc.Zombie) {
			s.zombies = append(s.zombies, now.PID)
		}
		gate.explain(now, gate.groupOf(old), units.Advance(old.CPU, now.CPU)+units.Advance(old.ChildCPU, now.ChildCPU))
	case s.Table().BornSinceLastScan(now):
		gate.explain(now, nil, now.CPU+now.ChildCPU)
	}
	if old != nil && old.Start != now.Start { // another process has the PID
		gate.forget(old, gate.groupOf(old))
	}
}

// mustRead reports whether the files of a process that has a row of the previous scan must be read.
func (s *clocksScan) mustRead(pid int32, old *proc.Process, ran bool) bool {
	return s.all || s.given.has(pid) || s.moved && (ran || old.Is(proc.Stale))
}

// refreshKin reads the files of the parents and children of exited processes. Such a child has
// another parent even if it has not run, and the clock of a parent that waited may not yet show
// that the parent ran.
func (s *clocksScan) refreshKin() {
	t, c := s.Table(), s.clocks
	ended, parents := c.ended[:0], c.parents[:0]
	ended = append(ended, s.zombies...)
	for i := range t.Ended {
		e := &t.Ended[i]
		ended, parents = append(ended, e.PID), append(parents, e.Parent)
		c.gate.leave(e.Slot)
	}
	c.ended, c.parents = ended, parents
	if len(ended) == 0 {
		return
	}
	slices.Sort(ended)
	slices.Sort(parents)
	for p := range t.All() {
		if isIn(ended, p.Parent) || isIn(parents, p.PID) {
			s.refresh(p)
		}
	}
}

// refresh reads the files of a process that has a row. If another process has the PID, the other
// process gets its own row.
func (s *clocksScan) refresh(p *proc.Process) {
	var now proc.Sight
	if s.source.readProcess(p.PID, &now, false) != nil {
		return
	}
	now.CPU = p.CPU
	if now.Start == p.Start {
		s.follow(&now, p)
	} else { // the clock may belong to the other process
		clock, err := s.clocks.clock(p.PID)
		if err != nil {
			return
		}
		s.clocks.gate.leave(p.Slot)
		s.Miss(p)
		now.CPU = clock
	}
	s.See(&now)
}

// pidMax returns the upper bound of task IDs, 0 if it cannot be read (proc_sys_kernel(5),
// pid_max).
func (p *Procfs) pidMax() int32 {
	b, err := p.read("sys/kernel/pid_max")
	if err != nil {
		return 0
	}
	most, ok := parsePID(bytes.TrimSpace(b))
	if !ok {
		return 0
	}
	return most
}
