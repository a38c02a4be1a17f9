// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
)

// BPF reads CPU times with BPF programs: in nanoseconds, with the cgroup of each process and with the exact
// last slice of each that ends. The node's own times are those of /proc/stat.
//
// A process that is on a CPU during the pass shows what it had used at the scheduler's last tick; the rest
// is in the next pass. What endings had no room in the buffer is in the Table's Untraced.
type BPF struct {
	nodeReader
	name    string
	list    lister
	slack   units.Slack // of what is held for each process
	endings endings
	cgroups *cgroupPaths
	bootNow func() time.Duration

	described time.Duration // when the lister described all processes
	counted   time.Duration // when the tasks were counted
	hidden    bool          // whether more were there than listed

	table   *Table  // whose rows are those of the previous listing, nil if none's are
	rows    []int32 // the row of each process of that listing
	highest []int32 // the highest row up to each

	ended   map[identity]ending // not yet matched to a row
	missing map[identity]await
	givenUp map[identity]struct{}
	lossEnd uint64 // the pass until which those that went missing may be among what was lost

	weights [][]uint64         // of ended whose threads ended in more than one domain
	one     [MaxDomains]uint64 // scratch of weightsOf
	changes int                // of the topology, that the programs were told of

	groups  map[uint64]int32 // scratch of giveShortLived: a row of each cgroup
	parents map[int32]int32  // scratch of giveShortLived: the row of each parent
	forks   map[int32]int32  // who was the parent of each process that ended since the previous pass
	note    func(*tasks.Ended)
}

// divider is a lister or endings that divides what threads used by domain.
type divider interface {
	// SetDomains sets the domain of each CPU, by its number.
	SetDomains(of []int32) error
}

// lister lists all processes, about in the order in which they were created. A process may show less than
// it did, while one of its threads ends, but never more than it used.
type lister interface {
	Read() ([]tasks.Process, error)
	Close() error
}

// updater is a lister that also tells what changed since the call before. Unless all is set, what is told of those
// that have not run may be as it was when they last ran, other than their CPU time and cgroups.
type updater interface {
	Update(all bool) (tasks.Listing, error)
}

// endings tells which processes ended.
type endings interface {
	Drain(yield func(*tasks.Ended)) (lostCount, lostRun uint64, err error)
	Close() error
}

type identity struct {
	pid   int32
	start time.Duration
}

type ending struct {
	run    units.CPUTime
	cgroup uint64
	parent int32
	// where says where a divided node ran it: above 0 in the domain before that number, below 0 as weights, counted
	// down from -1, say. It is 0 where that is not known.
	where int32
}

// await says since when a process is gone whose end is not known, in which pass that was seen first and last, and
// what it can have used since it was listed.
type await struct {
	since       time.Duration
	first, pass uint64
	most        units.CPUTime
}

// maxAwait is how long a process that is gone is waited for: the kernel tells of its end when it frees it,
// an RCU grace period after it was taken off the list.
const maxAwait = 60 * time.Second

// maxGivenUp is how many of those that were not waited for any longer are remembered.
const maxGivenUp = 1 << 16

// describeAgain is how often all processes are described though they have not run: their parent may have ended, and the
// kernel may have taken memory from them.
const describeAgain = time.Minute

// initialRoom is for how many processes the list has room at first.
const initialRoom = 16384

// OpenBPF loads the programs. It fails where the kernel or its permissions do not allow them, and where the
// processes below root are not this kernel's own. A topology that is not nil divides CPU time by its domains.
func OpenBPF(root string, topology *Topology) (*BPF, error) {
	b := newBPF(root, nil, nil)
	if topology != nil {
		b.divide(topology)
	}
	if err := b.open(); err != nil {
		return nil, oneLine(err, b.Close())
	}
	return b, nil
}

// What the programs are opened with, so that a test can refuse them.
var (
	openScan = func(domains int) (lister, error) {
		return orNil[lister](tasks.OpenScan(initialRoom, domains))
	}
	openStream  = func(domains int) (lister, error) { return orNil[lister](tasks.OpenStream(domains)) }
	openEndings = func(domains int) (endings, error) {
		return orNil[endings](tasks.OpenEndings(tasks.EndingsBuffer, domains))
	}
)

// orNil keeps a nil pointer from becoming an interface that is not nil.
func orNil[I any, P interface{ *S }, S any](opened P, err error) (I, error) {
	if err != nil {
		var none I
		return none, err
	}
	return any(opened).(I), nil
}

func (b *BPF) open() error {
	if err := b.isThisKernel(); err != nil {
		return err
	}
	b.name = "bpf (task scan)"
	list, scanErr := openScan(len(b.domains))
	if scanErr != nil {
		b.name = "bpf (task stream)"
		var err error
		if list, err = openStream(len(b.domains)); err != nil {
			return oneLine(scanErr, err)
		}
	}
	b.list = list
	hook, err := openEndings(len(b.domains))
	if err != nil {
		return err
	}
	b.endings = hook
	b.cgroups.listen()
	if err := b.setDomains(); err != nil {
		return err
	}
	return b.sameProcesses()
}

// setDomains tells the programs which CPU is in which domain, where that has changed.
func (b *BPF) setDomains() error {
	if b.topology == nil || b.changes == b.topology.changes {
		return nil
	}
	for _, program := range []any{b.list, b.endings} {
		if d, ok := program.(divider); ok {
			if err := d.SetDomains(b.topology.of); err != nil {
				return err
			}
		}
	}
	b.changes = b.topology.changes
	return nil
}

// oneLine joins errors as errors.Join does, but in one line.
func oneLine(errs ...error) error {
	var all error
	for _, err := range errs {
		switch {
		case err == nil:
		case all == nil:
			all = err
		default:
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	return all
}

func newBPF(root string, list lister, ends endings) *BPF {
	b := &BPF{
		nodeReader: newNodeReader(root),
		list:       list,
		endings:    ends,
		cgroups:    newCgroupPaths(root),
		bootNow:    bootNow,
		ended:      map[identity]ending{},
		missing:    map[identity]await{},
		givenUp:    map[identity]struct{}{},
		groups:     map[uint64]int32{},
		parents:    map[int32]int32{},
		forks:      map[int32]int32{},
	}
	b.note = b.noteEnding
	return b
}

// bootNow is the clock that start times are taken from.
func bootNow() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

var errOtherKernel = errors.New("the processes below root_path are not those of this kernel, PID namespace and time namespace")

// isThisKernel says whether /proc below the root is this kernel's: a recorded tree is not.
func (b *BPF) isThisKernel() error {
	const bootID = "sys/kernel/random/boot_id"
	id, err := b.read(bootID)
	if err != nil {
		return err
	}
	id = bytes.Clone(id)
	own := newNodeReader("/")
	ownID, err := own.read(bootID)
	err = errors.Join(err, own.proc.Close())
	if err != nil {
		return err
	}
	if !bytes.Equal(id, ownID) {
		return errOtherKernel
	}
	return nil
}

// sameProcesses says whether /proc below the root numbers processes as the kernel does: that of a container
// with a PID namespace of its own does not.
func (b *BPF) sameProcesses() error {
	listed, err := b.list.Read()
	if err != nil {
		return err
	}
	same := 0
	for i := range listed {
		var p Process
		text, err := b.proc.ReadOf(int32(listed[i].Pid), "stat", b.buf)
		if err != nil || parseProcess(text, &p) != nil {
			continue
		}
		if p.Start != time.Duration(listed[i].Start).Truncate(time.Duration(Tick)) {
			return errOtherKernel
		}
		if same++; same == 8 {
			break
		}
	}
	if same == 0 {
		return errOtherKernel
	}
	return nil
}

// Name implements Source.
func (b *BPF) Name() string { return b.name }

// Lacks says what the source does without, nil if nothing: containers that live between two passes are found only
// as long as their cgroups are there.
func (b *BPF) Lacks() error { return b.cgroups.refused }

// Exact implements Source.
func (*BPF) Exact() bool { return true }

// Close implements Source.
func (b *BPF) Close() error {
	errs := []error{b.proc.Close(), b.cgroups.close()}
	if b.list != nil {
		errs = append(errs, b.list.Close())
	}
	if b.endings != nil {
		errs = append(errs, b.endings.Close())
	}
	return errors.Join(errs...)
}

// ReadProcesses implements Source.
func (b *BPF) ReadProcesses(t *Table) error {
	now := b.bootNow()
	late := describeAgain
	if t.Sizes {
		late = recheck
	}
	known := b.table == t && t.scans > 0 && now-b.described < late && now >= b.described
	b.table = nil // until the table has what this listing tells
	if b.topology != nil {
		b.topology.Refresh(now)
		if err := b.setDomains(); err != nil {
			return err
		}
		t.divide(b.topology)
	}
	// The list comes before the endings: a process that ends in between is in both, and kept for the next
	// pass; the other way round it could be in neither.
	l, err := b.update(!known)
	if err != nil {
		return err
	}
	lostCount, lost, err := b.endings.Drain(b.note)
	if err != nil {
		return err
	}
	b.cgroups.learn()
	if lostCount > 0 || lost > 0 { // either is told first
		b.lossEnd = t.scans + 1 // one that ended after it was listed goes missing in the next pass
	}
	if t.scans == 0 {
		t.exact, t.baseline = true, now
	}
	kept := 0
	if known {
		kept = b.unmoved(t, &l)
	}
	t.beginKeeping(now, kept)
	t.take(l.Weights)
	for _, i := range l.Changed {
		if int(i) < kept {
			var p Process
			fill(&p, &l.Processes[i])
			t.advance(b.rows[i], &p)
		}
	}
	t.Processes = slices.Grow(t.Processes, len(l.Processes)-kept)[:len(l.Processes)]
	for i := kept; i < len(l.Processes); i++ {
		fill(&t.Processes[i], &l.Processes[i])
	}
	t.match(byAge, func(p *Process) (units.CPUTime, bool) { return b.final(p, t) })
	if len(b.missing) > len(t.awaited) {
		for id, w := range b.missing {
			if w.pass != t.scans { // it is listed again
				delete(b.missing, id)
			}
		}
	}
	t.activate()
	b.giveShortLived(t)
	clear(b.forks)
	slices.Sort(t.Active)
	b.locate(t, l.Processes, kept)
	b.table = t
	if (lostCount > 0 || lost > 0) && t.scans > 0 {
		t.LostEnds += lostCount
		t.Untraced = min(t.Untraced+min(units.CPUTime(lost), Unbounded), Unbounded)
	}
	if !known {
		b.described = now
	}
	// Tasks that begin between the listing and the counting look hidden. They are counted again soon.
	if !known || b.hidden && now-b.counted >= recheck {
		var threads uint64
		for i := range l.Processes {
			threads += uint64(l.Processes[i].Threads)
		}
		b.counted, b.hidden = now, hides(b.tasks(), threads)
	}
	t.Hidden = b.hidden
	t.addUp()
	if b.slack.Ample(len(l.Processes), cap(b.rows), now) {
		b.shrink(len(l.Processes))
	}
	t.scans++
	return nil
}

// shrink gives back the memory that was needed for more processes than there are.
func (b *BPF) shrink(processes int) {
	b.rows, b.highest = slices.Clone(b.rows), slices.Clone(b.highest)
	b.ended, b.missing, b.givenUp = units.Rebuilt(b.ended), units.Rebuilt(b.missing), units.Rebuilt(b.givenUp)
	b.groups, b.parents, b.forks = map[uint64]int32{}, map[int32]int32{}, map[int32]int32{}
	b.cgroups.shared = map[uint64]int{}
	if l, ok := b.list.(shrinker); ok {
		b.table = nil                               // the list begins anew
		_ = l.Shrink(max(initialRoom, 2*processes)) // it goes on with the room that it has
	}
}

// shrinker is a lister that can give back memory.
type shrinker interface {
	// Shrink leaves room for this many processes. After an error the room is what it was.
	Shrink(room int) error
}

// update lists all processes, and what changed since the previous call if the lister tells.
func (b *BPF) update(all bool) (tasks.Listing, error) {
	if u, ok := b.list.(updater); ok {
		return u.Update(all)
	}
	listed, err := b.list.Read()
	return tasks.Listing{Processes: listed}, err
}

// unmoved returns how many rows of the table, from the first, are those of as many processes from the first of the
// listing, with none of the others to come before any of them: the order of creation is not quite that of the start
// times.
func (b *BPF) unmoved(t *Table, l *tasks.Listing) int {
	n := min(l.Same, len(b.rows), len(l.Processes))
	eldest := Process{Start: math.MaxInt64}
	for i := n; i < len(l.Processes); i++ {
		p := Process{PID: int32(l.Processes[i].Pid), Start: time.Duration(l.Processes[i].Start)}
		if byAge(&p, &eldest) < 0 {
			eldest.PID, eldest.Start = p.PID, p.Start
		}
	}
	for n > 0 && (int(b.highest[n-1]) != n-1 || byAge(&eldest, &t.Processes[n-1]) < 0) {
		n--
	}
	return n
}

// locate notes which row each process of the listing has, from the first that moved on.
func (b *BPF) locate(t *Table, listed []tasks.Process, from int) {
	b.rows, b.highest = b.rows[:from], b.highest[:from]
	row, highest := int32(from), int32(from-1)
	for i := from; i < len(listed); i++ {
		id := identity{int32(listed[i].Pid), time.Duration(listed[i].Start)}
		if int(row) >= len(t.Processes) || t.Processes[row].PID != id.pid || t.Processes[row].Start != id.start {
			row = int32(rowOf(t.Processes, id))
		}
		highest = max(highest, row)
		b.rows, b.highest = append(b.rows, row), append(b.highest, highest)
		row++
	}
}

func (b *BPF) noteEnding(e *tasks.Ended) {
	id := identity{int32(e.Pid), time.Duration(e.Start)}
	b.ended[id] = ending{run: units.CPUTime(e.Run), cgroup: e.Cgroup, parent: int32(e.Parent), where: b.where(e.Weights)}
	b.forks[id.pid] = int32(e.Parent)
}

// where remembers where an ended process ran.
func (b *BPF) where(weights []uint64) int32 {
	in := slices.IndexFunc(weights, func(w uint64) bool { return w > 0 })
	if in < 0 || !slices.ContainsFunc(weights[in+1:], func(w uint64) bool { return w > 0 }) {
		return int32(in + 1)
	}
	b.weights = append(b.weights, slices.Clone(weights))
	return -int32(len(b.weights))
}

// weightsOf returns in what proportion the domains ran an ended process, nil where nothing is divided.
func (b *BPF) weightsOf(e ending) []uint64 {
	if b.topology == nil {
		return nil
	}
	if e.where < 0 {
		return b.weights[-e.where-1]
	}
	b.one = [MaxDomains]uint64{}
	b.one[max(e.where-1, 0)] = 1
	return b.one[:len(b.domains)]
}

func fill(p *Process, t *tasks.Process) {
	*p = Process{
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

		LastCPU:  int32(t.Cpu),
		Resident: t.Resident * pageSize,
		parts:    int32(t.Block),
	}
}

// final returns what a process that is gone used in all, as soon as that is known.
func (b *BPF) final(p *Process, t *Table) (units.CPUTime, bool) {
	id := identity{p.PID, p.Start}
	if e, ok := b.ended[id]; ok {
		delete(b.ended, id)
		delete(b.missing, id)
		p.parts = t.division.add(0, max(e.run, 1), b.weightsOf(e))
		return e.run, true
	}
	w, ok := b.missing[id]
	if !ok {
		w.first, w.most = t.scans, t.longestLastSlice(p)
	}
	if !ok || t.Now < w.since {
		w.since = t.Now
	}
	if t.Now-w.since < maxAwait {
		w.pass = t.scans
		b.missing[id] = w
		return 0, false
	}
	delete(b.missing, id)
	// If the buffer had no room for it, its time is in what was lost. Else the kernel did not call the hook, as
	// happens for some milliseconds after another program was detached from it (seen with Linux 6.18).
	if w.first > b.lossEnd {
		t.LostEnds++
		t.Untraced = min(t.Untraced+w.most, Unbounded)
	}
	if len(b.givenUp) >= maxGivenUp {
		clear(b.givenUp)
	}
	b.givenUp[id] = struct{}{}
	return p.CPU, true
}

// giveShortLived hands what ended without ever being in a pass to a row of the same cgroup, or else to its
// nearest ancestor's, or to nobody.
func (b *BPF) giveShortLived(t *Table) {
	if len(b.ended) == 0 {
		b.weights = b.weights[:0]
		return
	}
	clear(b.groups)
	clear(b.parents)
	clear(b.cgroups.shared)
	for id, e := range b.ended {
		if rowOf(t.Processes, id) >= 0 { // it ended during the pass, which shows it
			continue
		}
		if t.scans == 0 || b.isOld(id, t) {
			delete(b.ended, id)
			continue
		}
		if e.cgroup == rootCgroup {
			b.ancestor(e.parent, func(pid int32) bool { b.parents[pid] = -1; return false })
		} else {
			b.groups[e.cgroup] = -1
		}
	}
	if len(b.groups)+len(b.parents) == 0 {
		return
	}
	for i := range t.Processes {
		p := &t.Processes[i]
		if row, ok := b.groups[p.Cgroup]; ok && row < 0 && !p.Zombie {
			b.groups[p.Cgroup] = int32(i)
		}
		if _, ok := b.parents[p.PID]; ok {
			b.parents[p.PID] = int32(i)
		}
	}
	for id, e := range b.ended {
		if rowOf(t.Processes, id) >= 0 {
			continue
		}
		delete(b.ended, id)
		row := int32(-1)
		if e.cgroup == rootCgroup { // where v1 is in use everything is there
			b.ancestor(e.parent, func(pid int32) bool { row = b.parents[pid]; return row >= 0 })
		} else {
			if row = b.groups[e.cgroup]; row < 0 {
				if i := b.cgroups.share(t, e.cgroup, e.run); i >= 0 {
					in := &t.ShortLivedIn[i]
					in.parts = t.division.add(in.parts, e.run, b.weightsOf(e))
				}
			}
		}
		if row >= 0 {
			t.giveShortLived(row, e.run, b.weightsOf(e))
		} else {
			t.ShortLived += e.run
			t.nobody = t.division.add(t.nobody, e.run, b.weightsOf(e))
		}
	}
}

// isOld says whether a process that ended without being in this pass is not of this interval: it ended before
// the first pass, which would have shown it, or it is not waited for any longer.
func (b *BPF) isOld(id identity, t *Table) bool {
	if _, ok := b.givenUp[id]; ok {
		delete(b.givenUp, id)
		return true
	}
	return id.start < t.baseline
}

// ancestor calls yield with a PID, and as long as it returns false with the parent of each that ended since the
// previous pass.
func (b *BPF) ancestor(pid int32, yield func(int32) bool) {
	for range maxAncestors {
		if yield(pid) {
			return
		}
		parent, ok := b.forks[pid]
		if !ok || parent == pid {
			return
		}
		pid = parent
	}
}

// maxAncestors bounds the way up to a process that still runs: numbers that are used again may form a circle.
const maxAncestors = 32

// rootCgroup is the id of the root of the v2 hierarchy (kernfs numbers its root 1).
const rootCgroup = 1

// rowOf returns the row of a process in a table that is ordered by age, -1 if it has none.
func rowOf(rows []Process, id identity) int {
	want := Process{PID: id.pid, Start: id.start}
	lo, hi := 0, len(rows)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if byAge(&rows[mid], &want) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(rows) && rows[lo].PID == id.pid && rows[lo].Start == id.start {
		return lo
	}
	return -1
}
