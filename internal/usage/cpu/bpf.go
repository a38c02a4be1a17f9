// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"errors"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// BPF is the CPU time source that runs BPF programs. It counts in nanoseconds, and reports the
// cgroup of each process and the exact last slice of each process that ends.
//
// The CPU time of a process that is on a CPU during the scan ends at the scheduler's last tick;
// the next scan finds the rest. The CPU clock of the process has the same delay since Linux 4.8
// (kernel/sched/cputime.c, thread_group_cputime). The CPU time of exits that did not fit into the
// buffer is in Unseen.Untraced.
type BPF struct {
	procFiles
	name     string
	topology *divide.Topology // nil: the node is not divided
	list     lister
	cgroups  *cgroupPaths
	bootNow  func() time.Duration
	slack    units.Slack // of the memory per process

	programs domainsOfPrograms
	hidden   hiddenTasks
	hook     switchHook
	counting eventCounting
	ends     ends

	lastListing
}

// lastListing describes the previous listing.
type lastListing struct {
	table      *proc.Table   // has the rows of the listing, nil without a listing
	renumbered uint64        // Renumbered of the table
	listed     []proc.Slot   // of each process of the listing, and of each process born since
	before     []proc.Slot   // scratch of seeListed
	described  time.Duration // when the lister described all processes
}

// lister lists all processes, approximately in the order of creation. While a thread ends, a
// process may show less CPU time than before. It never shows more CPU time than it used.
type lister interface {
	// List also reports what changed since the previous call. Unless all is set, a process that has
	// not run may be described as it was when it last ran, except for its CPU time and cgroups.
	List(all bool) (tasks.Listing, error)
	// Shrink leaves room for this many processes. An error leaves the room unchanged.
	Shrink(room int) error
	Close() error
}

// domainsOfPrograms is the state of the topology in the BPF programs.
type domainsOfPrograms struct {
	changes  int   // number of changes of the topology that were passed to the programs
	slicing  bool  // the programs must record the CPU time of each thread
	unsliced error // the reason if they cannot, otherwise nil
}

func newBPF(o Options, list lister, hook endings) *BPF {
	b := &BPF{
		procFiles: newProcFiles(o.Root),
		topology:  o.Topology,
		list:      list,
		cgroups:   newCgroupPaths(o.Root),
		bootNow:   bootNow,
	}
	b.ends.init(hook, o)
	return b
}

// Traits implements Source. Up to three features can be unavailable. Without creation events, the
// source finds short-lived containers only while their cgroups exist. Without slices, all CPU time
// of a process counts on the last CPU of one thread. Without the switch hook, each scan visits all
// processes.
func (b *BPF) Traits() Traits {
	return Traits{
		Traits: proc.Traits{Exact: true, ReportsEnds: true},
		Name:   b.name, Lacks: oneline.Join(b.programs.unsliced, b.cgroups.refused, b.hook.refused),
		Uncounted: b.counting.uncounted(), Paths: b.cgroups.Paths, now: b.bootNow,
	}
}

// Close implements Source.
func (b *BPF) Close() error {
	errs := []error{b.proc.Close(), b.cgroups.close(), b.hook.close()}
	if b.list != nil {
		errs = append(errs, b.list.Close())
	}
	if b.ends.endings != nil {
		errs = append(errs, b.ends.endings.Close())
	}
	errs = append(errs, b.counting.close())
	return errors.Join(errs...)
}

// Scan implements Source.
func (b *BPF) Scan(t *proc.Table, of Request) error {
	b.ends.mu.Lock()
	defer b.ends.mu.Unlock()
	now := b.bootNow()
	b.counting.flush(now, b.hook.visitor)
	err := b.scan(t, of, now)
	b.counting.check(&b.hook)
	b.counting.end(t, b.ends.lostCycles, err)
	b.pollSwitches(now)
	return err
}

// scan scans all processes, or the processes that ran.
func (b *BPF) scan(t *proc.Table, of Request, now time.Duration) error {
	if b.table != t || b.renumbered != t.Renumbered() {
		b.table, b.renumbered = nil, t.Renumbered()
	}
	all := b.table == nil || of.Resident && (now < b.described || now-b.described >= recheck)
	if err := b.divideTable(t, now); err != nil {
		return err
	}
	if done, err := b.scanRan(t, now, all || of.All); done || err != nil {
		return err
	}
	// The exits are read after the list: a process that exits in between is in both. In the other
	// order, it could be in neither.
	l, err := b.list.List(all)
	if err != nil {
		b.table = nil
		return err
	}
	if err := b.ends.drain(); err != nil {
		b.table = nil
		return err
	}
	b.cgroups.drain()
	s := t.Begin(now)
	b.seeListed(s, &l)
	s.End(0)
	b.table = t
	if all {
		b.described = now
	}
	t.Unseen.Hidden = b.hidden.find(&b.procFiles, &l, now)
	b.considerHook(&l, now, !all && !of.All)
	if b.slack.Ample(len(l.Processes), cap(b.listed), now) {
		b.shrink(len(l.Processes))
	}
	return nil
}

// divideTable makes the programs and the table divide CPU time, if the node is divided.
func (b *BPF) divideTable(t *proc.Table, now time.Duration) error {
	if b.topology == nil {
		return nil
	}
	b.topology.Refresh(now)
	t.Divide(b.topology)
	return b.setDomains()
}

// setDomains passes the domain of each CPU to the programs if it has changed.
func (b *BPF) setDomains() error {
	if b.topology == nil || b.programs.changes == b.topology.Changes() {
		return nil
	}
	if err := b.ends.endings.SetDomains(b.topology.ByCPU()); err != nil {
		return err
	}
	b.programs.changes = b.topology.Changes()
	return nil
}

// seeListed reports a listing of all processes, and the exits. The first processes (Listing.Same)
// were at the same index in the previous listing: only the changed ones are reported, and they
// still run.
func (b *BPF) seeListed(s *proc.Scan, l *tasks.Listing) {
	s.Expect(len(l.Processes))
	same := 0
	if b.table != nil {
		same = min(l.Same, len(b.listed), len(l.Processes))
	}
	slices := addSlices(s, l.Slices)
	for _, i := range l.Changed {
		if int(i) < same {
			b.see(s, &l.Processes[i], slices)
		}
	}
	b.before = append(b.before[:0], b.listed[same:]...)
	b.listed = b.listed[:same]
	for i := same; i < len(l.Processes); i++ {
		b.listed = append(b.listed, b.see(s, &l.Processes[i], slices).Slot)
	}
	b.ends.report(s, b.cgroups)
	if b.table == nil {
		s.MissRemaining()
		return
	}
	for _, slot := range b.before {
		if p := &s.Rows[slot]; p.PID != 0 && !s.Saw(p) {
			s.Miss(p)
			b.listed = append(b.listed, slot) // a later visit may still see it
		}
	}
}

// scanRan scans only the processes that ran, if that is enough and cheaper. It returns false, and
// leaves the table as it is, if all processes must be scanned.
func (b *BPF) scanRan(t *proc.Table, now time.Duration, all bool) (done bool, err error) {
	if all {
		b.hook.ready(now) // before the list: every process that runs after the list is marked
		return false, nil
	}
	ran, ok := b.hook.visit(now)
	if !ok {
		return false, nil
	}
	// Processes are reported before exits, as in a scan of all processes.
	if err := b.ends.drain(); err != nil {
		b.table = nil
		return false, err
	}
	b.cgroups.drain()
	s := t.Begin(now)
	slices := addSlices(s, ran.Slices)
	for i := range ran.Processes {
		if p := b.see(s, &ran.Processes[i], slices); p.Is(proc.Born) {
			b.listed = append(b.listed, p.Slot)
		}
	}
	b.ends.report(s, b.cgroups)
	s.EndPartial()
	t.Unseen.Hidden = b.hidden.found
	return true, nil
}

// see reports a process.
func (b *BPF) see(s *proc.Scan, t *tasks.Process, slices addedSlices) *proc.Process {
	p := proc.Sight{
		ID:     proc.ID{PID: int32(t.Pid), Start: time.Duration(t.Start)},
		Parent: int32(t.Parent), Threads: int32(t.Threads), LastCPU: int32(t.Cpu),
		Flags: proc.HasUID, Comm: t.Comm, UID: t.Uid,
		Cgroup: t.Cgroup, Cgroups: t.Cgroups, Execs: t.Execs,
		Resident: t.Resident * pageSize, CPU: units.CPUTime(t.Run), Split: slices.split(t), Events: t.Events,
	}
	if t.Flags&tasks.KernelThread != 0 {
		p.Flags |= proc.Kernel
	}
	if t.Flags&tasks.Zombie != 0 {
		p.Flags |= proc.Zombie
	}
	b.ends.newest = max(b.ends.newest, p.Start)
	return s.See(&p)
}

// addedSlices are the slices of a listing that were added to a scan.
type addedSlices struct {
	first proc.Split // of the unused slice 0
	count uint32
}

// addSlices adds the slices of a listing.
func addSlices(s *proc.Scan, from []tasks.Slice) (added addedSlices) {
	for i := range from {
		next := proc.Split(0)
		if from[i].Next > 0 {
			next = added.first + proc.Split(from[i].Next)
		}
		split := s.AddSlice(int32(from[i].Cpu), from[i].Run, next)
		if i == 0 {
			added.first = split
		}
	}
	added.count = uint32(len(from))
	return added
}

// split returns the slices of a process. It returns 0 if they did not fit in the listing: the
// process must not get slices that the scan adds later.
func (a addedSlices) split(t *tasks.Process) proc.Split {
	if t.Slice == 0 || t.Slice >= a.count {
		return 0
	}
	return a.first + proc.Split(t.Slice)
}

// hiddenTasks compares the threads of a listing with the number of tasks, from time to time.
type hiddenTasks struct {
	counted time.Duration // when the tasks were counted, 0 before the first time
	found   bool          // whether there were more than listed
}

// countAgain is the time between two counts of the tasks while no task is hidden.
const countAgain = time.Minute

// find reports whether there are more tasks than listed. Tasks that begin between the listing and
// the counting look hidden, so they are counted again soon.
func (h *hiddenTasks) find(files *procFiles, l *tasks.Listing, now time.Duration) bool {
	again := countAgain
	if h.found {
		again = recheck
	}
	if h.counted == 0 || now < h.counted || now-h.counted >= again {
		var threads uint64
		for i := range l.Processes {
			threads += uint64(l.Processes[i].Threads)
		}
		all, _ := files.tasks()
		h.counted, h.found = now, hides(all, threads)
	}
	return h.found
}

// shrink frees the memory that an earlier, larger number of processes needed.
func (b *BPF) shrink(processes int) {
	b.listed, b.before, b.table = nil, nil, nil // the next listing describes all processes
	b.ends.shrink()
	_ = b.list.Shrink(max(minRoom, 2*processes)) // after an error, the room stays as it is
}
