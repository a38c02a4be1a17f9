// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
)

// visitor lists the processes that ran.
type visitor interface {
	// Visit returns the processes that ran since the previous call, in any order, their slices, and
	// how many they are; none of them if they are more than most. A process that runs during the
	// call may show the rest of its CPU time in the next one. A process that ended may be missing.
	Visit(most int) (ran tasks.Listing, count int, err error)
	Close() error
}

// scanRan scans only the processes that ran, if that is enough and cheaper. It returns false, and
// leaves the table as it is, if all processes must be scanned. described reports whether the lister
// must describe all processes, and all whether the rows of all must be up to date.
func (b *BPF) scanRan(t *scan.Table, now time.Duration, described, all bool) (done bool, err error) {
	if described || all || t.Finals() > max(64, len(t.Processes)/8) {
		b.hook.ready(now) // before the list: all that it lacks is marked
		return false, nil
	}
	ran, ok := b.hook.visit(now)
	if !ok {
		return false, nil
	}
	// The processes come before the ends, as in a scan of all.
	lost, err := b.takeLost()
	if err != nil {
		return false, err
	}
	b.lossUnlisted = b.lossUnlisted || lost.isAny()
	b.cgroups.learn()
	t.BeginPartial(now)
	takeSlices(t, ran.Slices)
	b.fillRan(t, ran.Processes)
	b.endRows(t)
	b.giveShortLived(t)
	b.forks = emptied(b.forks)
	slices.Sort(t.Active)
	b.table = t
	t.AddLost(lost.count+lost.incomplete, lost.run)
	t.Hidden = b.hidden
	t.AddUp()
	b.noteNewest(t)
	t.EndScan()
	return true, nil
}

// fillRan brings the rows of processes that ran up to date, and adds rows for new ones.
func (b *BPF) fillRan(t *scan.Table, ran []tasks.Process) {
	b.born = b.born[:0]
	for i := range ran {
		var p scan.Process
		fill(&p, &ran[i])
		row := b.rowOf(t, scan.ID{PID: p.PID, Start: p.Start})
		if row < 0 {
			b.born = append(b.born, p)
			continue
		}
		if t.Processes[row].Cgroup != p.Cgroup {
			b.settle(p.Cgroup, row)
		}
		t.Advance(row, &p)
	}
	if len(b.born) == 0 {
		return
	}
	first := t.InsertBorn(scan.ByAge, b.born)
	for i := first; i < len(t.Processes); i++ {
		if t.Processes[i].Born {
			b.settle(t.Processes[i].Cgroup, int32(i))
		}
	}
	// The processes of the previous list from there on have other rows.
	n, _ := slices.BinarySearch(b.highest, int32(first))
	b.rows, b.highest = b.rows[:n], b.highest[:n]
}

// hints is how many rows are remembered by the last bits of their PIDs.
const hints = 1024

// rowOf returns the row of a process, -1 if it has none. It first looks where a process with a like
// PID was last time: most of those that run do so again, and a search touches many rows.
func (b *BPF) rowOf(t *scan.Table, id scan.ID) int32 {
	hint := &b.hints[uint32(id.PID)%hints]
	if i := int(*hint); i < len(t.Processes) && t.Processes[i].PID == id.PID && t.Processes[i].Start == id.Start {
		return *hint
	}
	row := int32(rowOf(t.Processes, id))
	if row >= 0 {
		*hint = row
	}
	return row
}

// settle notes the row of a cgroup that was known to have none.
func (b *BPF) settle(cgroup uint64, row int32) {
	if home, ok := b.homes[cgroup]; ok && home < 0 {
		b.homes[cgroup] = row
	}
}

// endRows gives rows whose processes ended all that these used.
func (b *BPF) endRows(t *scan.Table) {
	for id, e := range b.ended {
		if row := b.rowOf(t, id); row >= 0 {
			t.End(row, e.run)
			delete(b.ended, id)
			delete(b.missing, id)
		}
	}
}

// The cost of a scan of the processes that ran, compared with visiting one thread in a scan of all.
// A call of the hook costs about as much as visiting one thread.
const (
	perRan  = 8           // to describe a process
	perScan = 16 * perRan // to take the marks
)

const (
	// considerEvery is how often costs are compared.
	considerEvery = 2 * time.Second
	// dwell is how long the hook stays as it is, attached or not.
	dwell = time.Minute
	// ranRoom is how many processes that ran a scan of these lists at most.
	ranRoom = 4096
)

// switchHook attaches a hook to context switches while that is cheaper than to visit all processes
// in each scan.
type switchHook struct {
	open    func() (visitor, error) // nil where there is none
	opening chan opened             // nil unless it is being opened
	visitor visitor                 // nil while it is not attached
	based   bool                    // whether a scan of all processes has begun since then
	refused error                   // why it cannot be attached; it is not tried again
	changed time.Duration           // when it was attached or detached
	most    int                     // how many processes a scan of those that ran visits at most

	considered time.Duration // when costs were compared last
	switches   uint64        // of the node until then
	partial    uint64        // how many scans since then might leave out processes that did not run
	ran        uint64        // how many processes ran in these
}

type opened struct {
	visitor visitor
	err     error
}

// ready takes the hook once it is attached. It is called before each scan of all processes.
func (h *switchHook) ready(now time.Duration) {
	if h.opening != nil {
		select {
		case o := <-h.opening:
			h.opening, h.visitor, h.refused, h.changed = nil, o.visitor, o.err, now
		default:
		}
	}
	h.based = h.visitor != nil
}

// visit returns the processes that ran since the previous scan, and false if that is not known or
// they are too many.
func (h *switchHook) visit(now time.Duration) (tasks.Listing, bool) {
	if !h.based {
		h.ready(now)
		return tasks.Listing{}, false
	}
	ran, count, err := h.visitor.Visit(h.most)
	if err != nil {
		h.refused = oneline.Join(err, h.detach(now))
		return tasks.Listing{}, false
	}
	if count > h.most {
		return tasks.Listing{}, false
	}
	h.partial++
	h.ran += uint64(count)
	return ran, true
}

// detach unloads the hook.
func (h *switchHook) detach(now time.Duration) error {
	v := h.visitor
	h.visitor, h.based, h.changed = nil, false, now
	return v.Close()
}

// close unloads the hook, also while it is being opened.
func (h *switchHook) close() error {
	if h.opening != nil {
		h.visitor = (<-h.opening).visitor
		h.opening = nil
	}
	if h.visitor == nil {
		return nil
	}
	return h.detach(0)
}

// considerHook compares costs after a scan of all processes, and has the hook attached or detached.
// partial reports whether a scan of those that ran would have been enough.
func (b *BPF) considerHook(l *tasks.Listing, now time.Duration, partial bool) {
	h := &b.hook
	if h.open == nil || h.refused != nil {
		return
	}
	if partial {
		h.partial++
		h.ran += uint64(len(l.Changed))
	}
	elapsed := now - h.considered
	if elapsed >= 0 && elapsed < considerEvery || h.partial == 0 && h.visitor == nil {
		return
	}
	switches, err := b.readSwitches()
	if err != nil {
		return
	}
	count, _ := b.tasks()
	count = max(count, uint64(len(l.Processes)))
	h.most = max(0, int(count)-perScan) / perRan
	if elapsed > 0 && elapsed < dwell && h.considered > 0 {
		h.decide(now, count, units.Advance(h.switches, switches))
	}
	h.considered, h.switches, h.partial, h.ran = now, switches, 0, 0
}

// decide attaches the hook when scans of all threads cost more than one and a half times as much as
// scans of those that ran, and detaches it when they cost less. count is the number of threads,
// switches that of context switches since this was decided last.
func (h *switchHook) decide(now time.Duration, count, switches uint64) {
	all, ran := h.partial*count, perRan*h.ran+perScan*h.partial+switches
	switch {
	case h.opening != nil || h.changed > 0 && now-h.changed < dwell:
	case h.visitor == nil && 2*all > 3*ran:
		h.attach()
	case h.visitor != nil && all < ran:
		h.refused = h.detach(now)
	}
}

// attach has the hook attached. That takes a tenth of a second, so it is done beside the scans.
func (h *switchHook) attach() {
	done, open := make(chan opened, 1), h.open
	h.opening = done
	go func() {
		v, err := open()
		done <- opened{v, err}
	}()
}

// maxStat bounds what is read of /proc/stat, which has a number for each interrupt of the machine.
const maxStat = 1 << 20

var errNoSwitches = errors.New("no number of context switches")

// readSwitches returns the number of context switches since boot on all CPUs.
func (b *BPF) readSwitches() (uint64, error) {
	for {
		text, err := b.proc.Read("stat", b.stat)
		if err != nil {
			return 0, err
		}
		if len(text) < len(b.stat) {
			return parseSwitches(text)
		}
		if len(b.stat) >= maxStat {
			return 0, errNoSwitches
		}
		b.stat = make([]byte, max(8192, 2*len(b.stat)))
	}
}

// parseSwitches parses the number of context switches in the text of /proc/stat.
func parseSwitches(text []byte) (uint64, error) {
	_, rest, ok := bytes.Cut(text, []byte("\nctxt "))
	number, _, whole := bytes.Cut(rest, []byte{'\n'})
	if !ok || !whole {
		return 0, errNoSwitches
	}
	return strconv.ParseUint(string(number), 10, 64)
}
