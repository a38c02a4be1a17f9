// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
)

// ends is what is known of processes that ended.
type ends struct {
	endings endings
	note    func(*tasks.Ended)
	ended   map[identity]ending // that no row was matched with yet
	missing map[identity]await  // gone, and no end is known
	givenUp map[identity]struct{}
	// lossEnd is the number of the last scan of all processes in which one that went missing may be one whose end was lost.
	// lossUnlisted reports whether ends were lost since the last list of all.
	lossEnd      uint64
	lossUnlisted bool
	one          [MaxDomains]uint64 // scratch of weightsOf

	homes   map[uint64]int32 // a row of each cgroup in which short-lived processes ended since all were scanned, -1 for none
	parents map[int32]int32  // scratch of giveShortLived: the row of each parent
	forks   map[int32]int32  // the parent of each process that ended since the previous scan
}

// endings tells which processes ended.
type endings interface {
	Drain(yield func(*tasks.Ended)) (lostCount, lostRun uint64, err error)
	Close() error
}

// ending is the end of a process.
type ending struct {
	run    units.CPUTime // in all
	cgroup uint64
	parent int32
	domain int32               // where it ran, the first one if unknown
	parts  *[MaxDomains]uint64 // what it used by domain, in proportion, if that was in several
}

// await is a process that is gone and whose end is not known: since when, in which scan that was seen first and last, and
// the most that it can have used since it was listed.
type await struct {
	since       time.Duration
	first, last uint64
	most        units.CPUTime
}

// maxAwait is how long the end of a process that is gone is waited for. The kernel tells it when it frees the process, an RCU
// grace period after it took the process off the list.
const maxAwait = 60 * time.Second

// maxGivenUp is how many processes are remembered whose end is no longer waited for.
const maxGivenUp = 1 << 16

// lost is what is not known of processes that ended.
type lost struct {
	count uint64
	run   units.CPUTime // of whole lives
}

// isAny reports whether any end was lost. The kernel adds to one of both first.
func (l lost) isAny() bool { return l.count > 0 || l.run > 0 }

// drain takes in which processes ended.
func (b *BPF) drain() (lost, error) {
	count, run, err := b.endings.Drain(b.note)
	if err != nil {
		return lost{}, err
	}
	return lost{count, min(units.CPUTime(run), Unbounded)}, nil
}

// addLost adds what is not known of processes that ended. What ended before the baseline does not count.
func (t *Table) addLost(l lost) {
	if t.scans > 0 {
		t.LostEnds += l.count
		t.Untraced = min(t.Untraced+l.run, Unbounded)
	}
}

// forgetListed forgets processes that were missing and are listed again.
func (b *BPF) forgetListed(t *Table) {
	if len(b.missing) <= len(t.awaited) {
		return
	}
	for id, w := range b.missing {
		if w.last != t.scans {
			delete(b.missing, id)
		}
	}
}

func (b *BPF) noteEnding(e *tasks.Ended) {
	id := identity{int32(e.Pid), time.Duration(e.Start)}
	ended := ending{run: units.CPUTime(e.Run), cgroup: e.Cgroup, parent: int32(e.Parent)}
	ended.domain, ended.parts = ranIn(e.Weights)
	b.ended[id] = ended
	b.forks[id.pid] = int32(e.Parent)
}

// ranIn returns the domain in which a process ran, and what it used by domain if it ran in several.
func ranIn(weights []uint64) (domain int32, parts *[MaxDomains]uint64) {
	in := slices.IndexFunc(weights, func(w uint64) bool { return w > 0 })
	if in < 0 || !slices.ContainsFunc(weights[in+1:], func(w uint64) bool { return w > 0 }) {
		return int32(max(in, 0)), nil
	}
	parts = new([MaxDomains]uint64)
	copy(parts[:], weights)
	return int32(in), parts
}

// weightsOf returns what a process that ended used by domain, in proportion; nil if the node is not divided.
func (b *BPF) weightsOf(e ending) []uint64 {
	if b.topology == nil {
		return nil
	}
	if e.parts != nil {
		return e.parts[:len(b.domains)]
	}
	b.one = [MaxDomains]uint64{}
	b.one[e.domain] = 1
	return b.one[:len(b.domains)]
}

// final returns the CPU time of a process that is gone, and false while that is not known.
func (b *BPF) final(p *Process, t *Table) (units.CPUTime, bool) {
	id := identity{p.PID, p.Start}
	if p.final {
		return p.CPU, true
	}
	if e, ok := b.ended[id]; ok {
		delete(b.ended, id)
		delete(b.missing, id)
		p.parts = t.addParts(0, max(e.run, 1), b.weightsOf(e))
		return e.run, true
	}
	if t.resuming { // it may have ended before anybody was told
		return p.CPU, true
	}
	w, ok := b.missing[id]
	if !ok {
		w.first, w.most = t.scans, mostIn(t.Now-b.listed, p)
	}
	if !ok || t.Now < w.since {
		w.since = t.Now
	}
	if t.Now-w.since < maxAwait {
		w.last = t.scans
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

// giveShortLived gives the CPU time of processes that ended without being in any scan to a row of the same cgroup. If their
// cgroup is not known (cgroup v1), it goes to the row of their nearest ancestor. The rest belongs to no row.
func (b *BPF) giveShortLived(t *Table) {
	if len(b.ended) == 0 {
		return
	}
	clear(b.parents)
	clear(b.cgroups.shared)
	given, search := false, false
	for id, e := range b.ended {
		if rowOf(t.Processes, id) >= 0 { // it ended during the scan, which has it
			continue
		}
		if t.scans == 0 || b.isOld(id, t) {
			delete(b.ended, id)
			continue
		}
		given = true
		if e.cgroup == rootCgroup {
			b.ancestor(e.parent, func(pid int32) bool { b.parents[pid] = -1; return false })
			search = true
		} else if !b.knowsHome(t, e.cgroup) {
			b.homes[e.cgroup] = -1
			search = true
		}
	}
	if !given {
		return
	}
	if search {
		b.findHomes(t)
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
			if row = b.homes[e.cgroup]; row < 0 {
				if i := b.cgroups.share(t, e.cgroup, e.run); i >= 0 {
					in := &t.ShortLivedIn[i]
					in.parts = t.addParts(in.parts, e.run, b.weightsOf(e))
				}
			}
		}
		if row >= 0 {
			t.giveShortLived(row, e.run, b.weightsOf(e))
		} else {
			t.ShortLived += e.run
			t.unplaced = t.addParts(t.unplaced, e.run, b.weightsOf(e))
		}
	}
}

// knowsHome reports whether homes has a row of the cgroup, or has it that there is none.
func (b *BPF) knowsHome(t *Table, cgroup uint64) bool {
	row, ok := b.homes[cgroup]
	if !ok || row < 0 {
		return ok
	}
	return int(row) < len(t.Processes) && t.Processes[row].Cgroup == cgroup && !t.Processes[row].Zombie
}

// findHomes finds the rows of cgroups and parents that have none yet.
func (b *BPF) findHomes(t *Table) {
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

// isOld reports whether a process that ended without being in this scan ended before this interval: before the baseline, which
// would have shown it, or its end is no longer waited for.
func (b *BPF) isOld(id identity, t *Table) bool {
	if _, ok := b.givenUp[id]; ok {
		delete(b.givenUp, id)
		return true
	}
	return id.start < t.baseline
}

// ancestor calls yield with a PID, and as long as it returns false with the parent of each that ended since the
// previous scan.
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

// maxAncestors bounds the way up to a process that still runs: PIDs that are reused may form a circle.
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
