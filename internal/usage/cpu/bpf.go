// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
)

// BPF is the CPU time source that runs BPF programs. It counts in nanoseconds, and reports the
// cgroup of each process and the exact last slice of each process that ends. The node's own time is
// that of /proc/stat.
//
// A process that is on a CPU during the scan shows what it had used at the scheduler's last tick;
// the rest is in the next scan. Its CPU clock shows no more: since Linux 4.8 the clock of another
// process lacks the same (kernel/sched/cputime.c, thread_group_cputime). What ends did not fit into
// the buffer is in Table.Untraced.
type BPF struct {
	procFiles
	name     string
	topology *divide.Topology // nil: the node is not divided
	list     lister
	slack    units.Slack // of what is kept for each process
	cgroups  *cgroupPaths
	bootNow  func() time.Duration

	described time.Duration // when the lister described all processes
	counted   time.Duration // when the tasks were counted, 0 before the first time
	hidden    bool          // whether there were more than listed
	changes   int           // of the topology, that the programs know
	slicing   bool          // whether the programs are to note what each thread used
	unsliced  error         // why they do not, nil if they do or need not

	hook   switchHook
	born   []scan.Process // scratch of fillRan
	hints  [hints]int32   // rows by the last bits of their PIDs
	stat   []byte         // scratch of readSwitches
	listed time.Duration  // when all processes were scanned last

	table   *scan.Table // whose rows are those of the previous listing, nil if no table's are
	rows    []int32     // the row of each process of that listing
	highest []int32     // the highest row up to each

	ends
}

// lister lists all processes, about in the order in which they were created. While a thread ends, a
// process may show less CPU time than before. It never shows more than it used.
type lister interface {
	// List returns all processes, and what changed since the previous call. Unless all is set, a
	// process that has not run may be described as it was when it last ran, except for its CPU time
	// and cgroups.
	List(all bool) (tasks.Listing, error)
	Close() error
}

// shrinker is a lister that can free memory.
type shrinker interface {
	// Shrink leaves room for this many processes. An error leaves the room unchanged.
	Shrink(room int) error
}

// divider is endings that divide by domain what threads used.
type divider interface {
	// SetDomains sets the domain of each CPU, by its number.
	SetDomains(of []int32) error
}

// countAgain is how often the tasks are counted while none is hidden.
const countAgain = time.Minute

func newBPF(o Options, list lister, hook endings) *BPF {
	b := &BPF{
		procFiles: newProcFiles(o.Root),
		topology:  o.Topology,
		list:      list,
		cgroups:   newCgroupPaths(o.Root),
		bootNow:   bootNow,
		ends: ends{
			names:   o.Names,
			endings: hook,
			ended:   map[scan.ID]ending{},
			missing: map[scan.ID]await{},
			givenUp: map[scan.ID]struct{}{},
			homes:   map[uint64]int32{},
			parents: map[int32]int32{},
			forks:   map[int32]int32{},

			shortLived: map[origin]shortLived{},
			namesOf:    map[nameHolder]int{},
		},
	}
	b.note, b.between = b.noteEnding, b.noteBetween
	return b
}

// Traits implements Source. The source may lack three things: it finds short-lived containers only
// while their cgroups exist, it divides a process as if all threads had been where the first one was
// last, or each of its scans visits all processes.
func (b *BPF) Traits() Traits {
	return Traits{
		Name: b.name, Exact: true, Lacks: oneline.Join(b.unsliced, b.cgroups.refused, b.hook.refused),
		Paths: b.cgroups.Paths, now: b.bootNow,
	}
}

// numDomains returns how many domains the node is divided into, 0 if it is not.
func (b *BPF) numDomains() int {
	if b.topology == nil {
		return 0
	}
	return len(b.topology.Domains())
}

// Close implements Source.
func (b *BPF) Close() error {
	errs := []error{b.proc.Close(), b.cgroups.close(), b.hook.close()}
	if b.list != nil {
		errs = append(errs, b.list.Close())
	}
	if b.endings != nil {
		errs = append(errs, b.endings.Close())
	}
	return errors.Join(errs...)
}

// Scan implements Source.
func (b *BPF) Scan(t *scan.Table, of Request) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.bootNow()
	all := b.mustDescribe(t, now, of.Resident)
	b.table = nil // until the table has this listing
	if err := b.divideTable(t, now); err != nil {
		return err
	}
	if done, err := b.scanRan(t, now, all, of.All); done || err != nil {
		return err
	}
	l, lost, err := b.listAll(t, all)
	if err != nil {
		return err
	}
	b.cgroups.learn()
	if t.Scans() == 0 {
		t.Exact, t.Baseline = true, now
	}
	kept := 0
	if !all {
		kept = b.unmoved(t, &l)
	}
	b.fillRows(t, &l, now, kept)
	t.Match(scan.ByAge, func(p *scan.Process) (units.CPUTime, bool) { return b.final(p, t) })
	b.forgetListed(t)
	t.Activate()
	b.homes = emptied(b.homes)
	b.giveShortLived(t)
	b.forks = emptied(b.forks)
	slices.Sort(t.Active)
	b.locate(t, l.Processes, kept)
	b.table = t
	t.EndResume()
	t.AddLost(lost.count+lost.incomplete, lost.run)
	if all {
		b.described = now
	}
	b.findHidden(t, &l, now)
	t.AddUp()
	b.listed = now
	b.noteNewest(t)
	b.considerHook(&l, now, !all && !of.All)
	if b.slack.Ample(len(l.Processes), cap(b.rows), now) {
		b.shrink(len(l.Processes))
	}
	t.EndScan()
	return nil
}

// listAll lists all processes, and then takes the ends since the previous scan. In this order, a
// process that ends in between is in both, and is kept for the next scan; in the other order it
// could be in neither.
func (b *BPF) listAll(t *scan.Table, all bool) (l tasks.Listing, ends lost, err error) {
	if l, err = b.list.List(all); err != nil {
		return l, ends, err
	}
	if ends, err = b.takeLost(); err != nil {
		return l, ends, err
	}
	if b.lossUnlisted || ends.isAny() {
		b.lossEnd = t.Scans()
	}
	b.lossUnlisted = ends.isAny() // a process that ended after it was listed goes missing in the next list
	return l, ends, nil
}

// mustDescribe reports whether the lister must describe all processes: the table does not hold the
// previous listing, or the sizes of those that sleep are asked for. No other property that is read
// changes while a process sleeps.
func (b *BPF) mustDescribe(t *scan.Table, now time.Duration, resident bool) bool {
	return b.table != t || t.Scans() == 0 || resident && (now < b.described || now-b.described >= recheck)
}

// divideTable has the programs and the table divide CPU time, if the node is divided.
func (b *BPF) divideTable(t *scan.Table, now time.Duration) error {
	if b.topology == nil {
		return nil
	}
	b.topology.Refresh(now)
	t.Divide(b.topology)
	return b.setDomains()
}

// fillRows starts a scan and fills the table's rows from a listing. The first rows are those of the
// previous scan.
func (b *BPF) fillRows(t *scan.Table, l *tasks.Listing, now time.Duration, kept int) {
	t.BeginKeeping(now, kept)
	takeSlices(t, l.Slices)
	for _, i := range l.Changed {
		if int(i) < kept {
			var p scan.Process
			fill(&p, &l.Processes[i])
			t.Advance(b.rows[i], &p)
		}
	}
	t.Processes = slices.Grow(t.Processes, len(l.Processes)-kept)[:len(l.Processes)]
	for i := kept; i < len(l.Processes); i++ {
		fill(&t.Processes[i], &l.Processes[i])
	}
}

// findHidden compares the threads of a listing with the number of tasks, from time to time. Tasks
// that begin between the listing and the counting look hidden, so they are counted again soon.
func (b *BPF) findHidden(t *scan.Table, l *tasks.Listing, now time.Duration) {
	again := countAgain
	if b.hidden {
		again = recheck
	}
	if b.counted == 0 || now < b.counted || now-b.counted >= again {
		var threads uint64
		for i := range l.Processes {
			threads += uint64(l.Processes[i].Threads)
		}
		all, _ := b.tasks()
		b.counted, b.hidden = now, hides(all, threads)
	}
	t.Hidden = b.hidden
}

// unmoved returns how many rows of the table can stay, counted from the first: they are the first
// processes of the listing, and no other process belongs before any of them. The order of creation
// is not quite the order of start times.
func (b *BPF) unmoved(t *scan.Table, l *tasks.Listing) int {
	n := min(l.Same, len(b.rows), len(l.Processes))
	eldest := scan.Process{Start: math.MaxInt64}
	for i := n; i < len(l.Processes); i++ {
		p := scan.Process{PID: int32(l.Processes[i].Pid), Start: time.Duration(l.Processes[i].Start)}
		if scan.ByAge(&p, &eldest) < 0 {
			eldest.PID, eldest.Start = p.PID, p.Start
		}
	}
	for n > 0 && (int(b.highest[n-1]) != n-1 || scan.ByAge(&eldest, &t.Processes[n-1]) < 0) {
		n--
	}
	return n
}

// locate notes which row each process of the listing has, from the first that moved on.
func (b *BPF) locate(t *scan.Table, listed []tasks.Process, from int) {
	b.rows, b.highest = b.rows[:from], b.highest[:from]
	row, highest := int32(from), int32(from-1)
	for i := from; i < len(listed); i++ {
		id := scan.ID{PID: int32(listed[i].Pid), Start: time.Duration(listed[i].Start)}
		if int(row) >= len(t.Processes) || t.Processes[row].PID != id.PID || t.Processes[row].Start != id.Start {
			row = int32(rowOf(t.Processes, id))
		}
		highest = max(highest, row)
		b.rows, b.highest = append(b.rows, row), append(b.highest, highest)
		row++
	}
}

// setDomains passes the domain of each CPU to the programs if it has changed.
func (b *BPF) setDomains() error {
	if b.topology == nil || b.changes == b.topology.Changes() {
		return nil
	}
	if d, ok := b.endings.(divider); ok {
		if err := d.SetDomains(b.topology.ByCPU()); err != nil {
			return err
		}
	}
	b.changes = b.topology.Changes()
	return nil
}

func fill(p *scan.Process, t *tasks.Process) {
	*p = scan.Process{
		PID:     int32(t.Pid),
		Parent:  int32(t.Parent),
		Threads: int32(t.Threads),
		Kernel:  t.Flags&tasks.KernelThread != 0,
		Zombie:  t.Flags&tasks.Zombie != 0,
		Start:   time.Duration(t.Start),
		CPU:     units.CPUTime(t.Run),
		Comm:    t.Comm,
		Cgroup:  t.Cgroup,
		Cgroups: t.Cgroups,
		Execs:   t.Execs,

		UID:    t.Uid,
		HasUID: true,

		LastCPU:  int32(t.Cpu),
		Resident: t.Resident * pageSize,
		Block:    int32(t.Slice),
	}
}

// takeSlices copies slices from a listing.
func takeSlices(t *scan.Table, from []tasks.Slice) {
	for i := range from {
		t.AddSlice(int32(from[i].Cpu), from[i].Run, int32(from[i].Next))
	}
}

// shrink frees the memory that more processes needed.
func (b *BPF) shrink(processes int) {
	b.rows, b.highest = slices.Clone(b.rows), slices.Clone(b.highest)
	b.ended, b.missing, b.givenUp = units.Shrunk(b.ended), units.Shrunk(b.missing), units.Shrunk(b.givenUp)
	b.homes, b.parents, b.forks = map[uint64]int32{}, map[int32]int32{}, map[int32]int32{}
	b.shortLived, b.namesOf = units.Shrunk(b.shortLived), units.Shrunk(b.namesOf)
	b.born = nil
	b.cgroups.shared = map[uint64]int{}
	if l, ok := b.list.(shrinker); ok {
		b.table = nil                           // the list begins anew
		_ = l.Shrink(max(minRoom, 2*processes)) // it goes on with the room that it has
	}
}
