// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
)

// ends holds the process exits since the previous scan. A scan holds mu, and so does drainBetween.
type ends struct {
	mu      sync.Mutex
	endings endings
	note    func(*tasks.Ended)
	between func(*tasks.Ended) // noteBetween
	lost    lost               // since the previous scan
	newest  time.Duration      // no row of any scan started later; 0 before the first scan
	ended   map[scan.ID]ending // that no row was matched with yet
	missing map[scan.ID]await  // gone, and no end is known
	givenUp map[scan.ID]struct{}
	// lossEnd is the number of the last scan of all processes in which one that went missing may be
	// one whose end was lost. lossUnlisted reports whether ends were lost since the last list of
	// all.
	lossEnd      uint64
	lossUnlisted bool
	one          [divide.MaxDomains]uint64 // scratch of weightsOf

	shortLived map[origin]shortLived // since the previous scan
	named      int                   // how many of its keys have a name
	namesOf    map[nameHolder]int    // the same by cgroup and user
	names      bool                  // short-lived processes are named
	elsewhere  shortLived            // the same, for origins beyond maxOrigins
	homes      map[uint64]int32      // a row of each cgroup in which short-lived processes ended since all were scanned, -1 for none
	parents    map[int32]int32       // scratch of giveShortLived: the row of each parent
	forks      map[int32]int32       // the parent of each process of the root cgroup that ended since the previous scan
}

// endings reports which processes ended.
type endings interface {
	Drain(yield func(*tasks.Ended)) (tasks.Lost, error)
	Close() error
}

// fillable is endings that report when they must be drained.
type fillable interface {
	// Watch calls halfFull from another goroutine whenever half of the room for ends is taken,
	// until Close.
	Watch(halfFull func()) error
}

// origin determines which row gets the CPU time of a short-lived process.
type origin struct {
	cgroup uint64
	parent int32 // 0 unless the cgroup is the root
	by     exitName
}

// exitName is the name and the user of a process that ended. The zero exitName is not known.
type exitName struct {
	comm  scan.Comm
	uid   uint32
	known bool
}

// nameHolder is a user in a cgroup.
type nameHolder struct {
	cgroup uint64
	uid    uint32
}

// shortLived is the CPU time of short-lived processes. Its parts, nil if the node is not divided,
// add up to run.
type shortLived struct {
	run   units.CPUTime
	parts *[divide.MaxDomains]uint64
}

// maxOrigins is the maximum number of origins between two scans, maxNamed of those with a name, and
// maxNamesOf of those of one user in one cgroup: a user can choose any number of names.
// maxNamesInRoot replaces maxNamesOf in the root cgroup, which holds all processes of a v1 host and
// has origins for each parent. maxForks is the maximum number of exited processes whose parents are
// remembered, more than fit in the buffer.
const (
	maxOrigins     = 1 << 16
	maxNamed       = 1 << 13
	maxNamesOf     = 1 << 8
	maxNamesInRoot = maxNamed / 4
	maxForks       = 1 << 17
)

// ending is the end of a process.
type ending struct {
	run    units.CPUTime // in all
	cgroup uint64
	parent int32
	by     exitName
	domain int32                      // where it ran, the first one if unknown
	parts  *[divide.MaxDomains]uint64 // what it used by domain, in proportion, if that was in several
}

// await is a process that is gone and whose end is not known: since when, in which scan that was
// seen first and last, and the most that it can have used since it was listed.
type await struct {
	since       time.Duration
	first, last uint64
	most        units.CPUTime
}

// maxAwait is how long the end of a process that is gone is waited for. The kernel reports it when
// it frees the process, an RCU grace period after it took the process off the list.
const maxAwait = 60 * time.Second

// maxGivenUp is how many processes are remembered whose end is no longer waited for.
const maxGivenUp = 1 << 16

// lost counts the exited processes whose end was missed, and their CPU time.
type lost struct {
	count      uint64
	run        units.CPUTime // of whole lives
	incomplete uint64        // processes whose ends lack CPU time of their threads
}

// isAny reports whether any end was lost. The kernel adds to one of both first.
func (l lost) isAny() bool { return l.count > 0 || l.run > 0 }

// watch makes the kernel report when the buffer is half full, if the kernel supports that.
func (b *BPF) watch() error {
	if w, ok := b.endings.(fillable); ok {
		return w.Watch(b.drainBetween)
	}
	return nil
}

// drain removes the process exits from the buffer and counts those that did not fit.
func (b *BPF) drain(note func(*tasks.Ended)) error {
	now, err := b.endings.Drain(note)
	if err == nil {
		b.lost.count += now.Count
		b.lost.run = min(b.lost.run+min(units.CPUTime(now.Run), scan.Unbounded), scan.Unbounded)
		b.lost.incomplete += now.Incomplete
	}
	return err
}

// drainBetween drains the buffer between two scans, so that it does not overflow. The result of the
// next scan is the same as if all exits had stayed in the buffer.
func (b *BPF) drainBetween() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.newest > 0 { // before the first scan, short-lived processes cannot be distinguished
		_ = b.drain(b.between) // a scan finds what is left, and reports the error
	}
}

// takeLost drains the buffer in a scan, and returns the losses since the previous scan.
func (b *BPF) takeLost() (lost, error) {
	if err := b.drain(b.note); err != nil {
		return lost{}, err
	}
	all := b.lost
	b.lost = lost{}
	return all, nil
}

// forgetListed removes processes that were missing and are listed again.
func (b *BPF) forgetListed(t *scan.Table) {
	if len(b.missing) <= t.Awaited() {
		return
	}
	for id, w := range b.missing {
		if w.last != t.Scans() {
			delete(b.missing, id)
		}
	}
}

// noteEnding keeps a process exit for the scan.
func (b *BPF) noteEnding(e *tasks.Ended) {
	id := scan.ID{PID: int32(e.Pid), Start: time.Duration(e.Start)}
	ended := ending{run: units.CPUTime(e.Run), cgroup: e.Cgroup, parent: int32(e.Parent), by: nameOf(e)}
	ended.domain, ended.parts = ranIn(e.Weights)
	b.ended[id] = ended
	b.noteParent(e)
}

// noteBetween records a process exit between two scans. A process that started after all listed
// processes is in no scan: only sums are kept of these processes, however many there are. The
// number of the other processes is bounded, because they existed during the previous scan.
func (b *BPF) noteBetween(e *tasks.Ended) {
	if time.Duration(e.Start) <= b.newest {
		b.noteEnding(e)
		return
	}
	b.noteParent(e)
	b.addShortLived(b.originOf(e.Cgroup, int32(e.Parent), nameOf(e)), units.CPUTime(e.Run), e.Weights)
}

// noteNewest records the start of the youngest row after a scan. Processes that started before the
// baseline are also older.
func (b *BPF) noteNewest(t *scan.Table) {
	b.newest = max(b.newest, t.Baseline-1)
	if n := len(t.Processes); n > 0 {
		b.newest = max(b.newest, t.Processes[n-1].Start)
	}
}

// noteParent notes the parent of a process that ended, if its CPU time may go to an ancestor.
func (b *BPF) noteParent(e *tasks.Ended) {
	if e.Cgroup == rootCgroup && len(b.forks) < maxForks {
		b.forks[int32(e.Pid)] = int32(e.Parent)
	}
}

// AwaitExits waits for two RCU grace periods: after the first one the kernel frees the processes that
// ended and reports their exits, which each CPU does by the end of the second one.
func (*BPF) AwaitExits() {
	const (
		global = 1                     // MEMBARRIER_CMD_GLOBAL (linux/membarrier.h)
		extra  = 10 * time.Millisecond // a CPU may be late
	)
	for range 2 { // a kernel with CPUs in nohz_full mode refuses it
		_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0)
	}
	time.Sleep(extra)
}

func nameOf(e *tasks.Ended) exitName { return exitName{comm: e.Comm, uid: e.UID, known: true} }

// originOf returns the origin of a short-lived process. It has no name if there are too many names
// already.
func (b *BPF) originOf(cgroup uint64, parent int32, by exitName) origin {
	from := origin{cgroup: cgroup}
	if cgroup == rootCgroup { // where v1 is in use everything is there
		from.parent = parent
	}
	if !b.names {
		return from
	}
	named := from
	named.by = by
	if _, ok := b.shortLived[named]; ok {
		return named
	}
	holder, most := nameHolder{cgroup, by.uid}, maxNamesOf
	if cgroup == rootCgroup {
		most = maxNamesInRoot
	}
	if b.named >= maxNamed || b.namesOf[holder] >= most {
		return from
	}
	b.named++
	b.namesOf[holder]++
	return named
}

// addShortLived adds the CPU time of a short-lived process, which ran in the domains in proportion
// to weights.
func (b *BPF) addShortLived(from origin, run units.CPUTime, weights []uint64) {
	sum, ok := b.shortLived[from]
	if !ok && len(b.shortLived) >= maxOrigins {
		b.elsewhere.add(run, weights, b.numDomains())
		return
	}
	sum.add(run, weights, b.numDomains())
	b.shortLived[from] = sum
}

// add adds the CPU time of a process, which ran in the domains in proportion to weights.
func (s *shortLived) add(run units.CPUTime, weights []uint64, domains int) {
	s.run += run
	if domains == 0 {
		return
	}
	if s.parts == nil {
		s.parts = new([divide.MaxDomains]uint64)
	}
	var parts [divide.MaxDomains]units.CPUTime
	units.Divide(parts[:domains], run, weights[:min(domains, len(weights))])
	for i, part := range parts {
		s.parts[i] += uint64(part)
	}
}

// weights returns the parts as weights, nil if the node is not divided.
func (s *shortLived) weights(domains int) []uint64 {
	if s.parts == nil {
		return nil
	}
	return s.parts[:domains]
}

// ranIn returns the domain in which a process ran, and what it used by domain if it ran in several.
func ranIn(weights []uint64) (domain int32, parts *[divide.MaxDomains]uint64) {
	in := slices.IndexFunc(weights, func(w uint64) bool { return w > 0 })
	if in < 0 || !slices.ContainsFunc(weights[in+1:], func(w uint64) bool { return w > 0 }) {
		return int32(max(in, 0)), nil
	}
	parts = new([divide.MaxDomains]uint64)
	copy(parts[:], weights)
	return int32(in), parts
}

// weightsOf returns what a process that ended used by domain, in proportion; nil if the node is not
// divided.
func (b *BPF) weightsOf(e ending) []uint64 {
	if b.topology == nil {
		return nil
	}
	if e.parts != nil {
		return e.parts[:b.numDomains()]
	}
	b.one = [divide.MaxDomains]uint64{}
	b.one[e.domain] = 1
	return b.one[:b.numDomains()]
}

// final returns the CPU time of a process that is gone, and false while that is not known.
func (b *BPF) final(p *scan.Process, t *scan.Table) (units.CPUTime, bool) {
	id := scan.ID{PID: p.PID, Start: p.Start}
	if p.Final {
		return p.CPU, true
	}
	if e, ok := b.ended[id]; ok {
		delete(b.ended, id)
		delete(b.missing, id)
		p.Block = t.AddParts(0, max(e.run, 1), b.weightsOf(e))
		return e.run, true
	}
	if t.Resuming() { // it may have ended before the programs were loaded
		return p.CPU, true
	}
	w, ok := b.missing[id]
	if !ok {
		w.first, w.most = t.Scans(), p.MostIn(t.Now-b.listed)
	}
	if !ok || t.Now < w.since {
		w.since = t.Now
	}
	if t.Now-w.since < maxAwait {
		w.last = t.Scans()
		b.missing[id] = w
		return 0, false
	}
	delete(b.missing, id)
	// If the buffer had no room for it, its time is in what was lost. Else the kernel did not call
	// the hook, as happens for some milliseconds after another program was detached from it (seen
	// with Linux 6.18).
	if w.first > b.lossEnd {
		t.LostEnds++
		t.Untraced = min(t.Untraced+w.most, scan.Unbounded)
	}
	if len(b.givenUp) >= maxGivenUp {
		clear(b.givenUp)
	}
	b.givenUp[id] = struct{}{}
	return p.CPU, true
}

// giveShortLived gives the CPU time of processes that ended without being in any scan to a row of
// the same cgroup. If their cgroup is not known (cgroup v1), it goes to the row of their nearest
// ancestor. The rest belongs to no row.
func (b *BPF) giveShortLived(t *scan.Table) {
	b.findShortLived(t)
	if len(b.shortLived) == 0 {
		return
	}
	clear(b.parents)
	clear(b.cgroups.shared)
	clear(b.cgroups.paths)
	if len(b.homes) > maxOrigins { // of several partial scans
		b.homes = emptied(b.homes)
	}
	search := false
	for from := range b.shortLived {
		if from.cgroup == rootCgroup {
			b.ancestor(from.parent, func(pid int32) bool { b.parents[pid] = -1; return false })
			search = true
		} else if !b.knowsHome(t, from.cgroup) {
			b.homes[from.cgroup] = -1
			search = true
		}
	}
	if search {
		b.findHomes(t)
	}
	for from, sum := range b.shortLived {
		b.give(t, from, &sum)
	}
	t.AddUnplaced(b.elsewhere.run, b.elsewhere.weights(b.numDomains()))
	b.shortLived, b.elsewhere = emptied(b.shortLived), shortLived{}
	b.named, b.namesOf = 0, emptied(b.namesOf)
}

// burst is the number of elements above which a map is discarded, because clearing a map costs in
// proportion to its largest size.
const burst = 1024

// emptied returns the map without elements, or a new one.
func emptied[M ~map[K]V, K comparable, V any](m M) M {
	if len(m) > burst {
		return M{}
	}
	clear(m)
	return m
}

// findShortLived adds up the exited processes that are not in this scan. It leaves the exits of
// listed processes to the next scan.
func (b *BPF) findShortLived(t *scan.Table) {
	before := len(b.ended)
	for id, e := range b.ended {
		if rowOf(t.Processes, id) >= 0 {
			continue
		}
		delete(b.ended, id)
		if t.Scans() > 0 && !b.isOld(id, t) {
			b.addShortLived(b.originOf(e.cgroup, e.parent, e.by), e.run, b.weightsOf(e))
		}
	}
	if before > burst {
		b.ended = units.Shrunk(b.ended)
	}
}

// give assigns the CPU time of short-lived processes to a row or a cgroup, or leaves it
// unattributed.
func (b *BPF) give(t *scan.Table, from origin, sum *shortLived) {
	row, inRoot := int32(-1), from.cgroup == rootCgroup
	if inRoot {
		b.ancestor(from.parent, func(pid int32) bool { row = b.parents[pid]; return row >= 0 })
	} else {
		row = b.homes[from.cgroup]
	}
	switch {
	case from.by.known && (row >= 0 || !inRoot) && b.giveNamed(t, from, row, sum):
	case row >= 0:
		t.GiveShortLived(row, sum.run, sum.weights(b.numDomains()))
	default:
		if !inRoot {
			if i := b.cgroups.share(t, from.cgroup, sum.run); i >= 0 {
				in := &t.ShortLivedIn[i]
				in.Block = t.AddParts(in.Block, sum.run, sum.weights(b.numDomains()))
			}
		}
		t.AddUnplaced(sum.run, sum.weights(b.numDomains()))
	}
}

// giveNamed lists the CPU time of short-lived processes by name. It returns false if their cgroup
// is unknown, because their program is then unknown as well.
func (b *BPF) giveNamed(t *scan.Table, from origin, row int32, sum *shortLived) bool {
	n := scan.NamedTime{Comm: from.by.comm, UID: from.by.uid, Row: row, Used: sum.run}
	if row < 0 {
		if n.Path = b.cgroups.pathOf(from.cgroup); n.Path == "" {
			return false
		}
	}
	if sum.run > 0 {
		n.Block = t.AddParts(0, sum.run, sum.weights(b.numDomains()))
		t.ShortLivedBy = append(t.ShortLivedBy, n)
		t.AddUnplaced(sum.run, sum.weights(b.numDomains()))
	}
	return true
}

// knowsHome reports whether homes has a row of the cgroup, or has it that there is none.
func (b *BPF) knowsHome(t *scan.Table, cgroup uint64) bool {
	row, ok := b.homes[cgroup]
	if !ok || row < 0 {
		return ok
	}
	return int(row) < len(t.Processes) && t.Processes[row].Cgroup == cgroup && !t.Processes[row].Zombie
}

// findHomes finds the rows of cgroups and parents that have none yet.
func (b *BPF) findHomes(t *scan.Table) {
	for i := range t.Processes {
		p := &t.Processes[i]
		if row, ok := b.homes[p.Cgroup]; ok && row < 0 && !p.Zombie {
			b.homes[p.Cgroup] = int32(i)
		}
		if _, ok := b.parents[p.PID]; ok {
			b.parents[p.PID] = int32(i)
		}
	}
}

// isOld reports whether a process that ended without being in this scan ended before this interval:
// before the baseline, which would have shown it, or its end is no longer waited for.
func (b *BPF) isOld(id scan.ID, t *scan.Table) bool {
	if _, ok := b.givenUp[id]; ok {
		delete(b.givenUp, id)
		return true
	}
	return id.Start < t.Baseline
}

// ancestor calls yield with a PID and, as long as yield returns false, with the parent of each
// process of the root cgroup that ended since the previous scan.
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

// maxAncestors bounds the way up to a process that still runs: PIDs that are reused may form a
// circle.
const maxAncestors = 32

// rootCgroup is the id of the root of the v2 hierarchy (kernfs numbers its root 1).
const rootCgroup = 1

// rowOf returns the row of a process in a table that is ordered by age, -1 if it has none.
func rowOf(rows []scan.Process, id scan.ID) int {
	want := scan.Process{PID: id.PID, Start: id.Start}
	lo, hi := 0, len(rows)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if scan.ByAge(&rows[mid], &want) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(rows) && rows[lo].PID == id.PID && rows[lo].Start == id.Start {
		return lo
	}
	return -1
}
