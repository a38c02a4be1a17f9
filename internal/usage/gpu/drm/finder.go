// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// The bounds of the cost of finding clients.
const (
	// perSecond is the budget of an interval per second of its length, minBudget and maxBudget
	// bound the budget, and firstBudget is the budget of the first Read. They are in microseconds
	// of the costs below. A look that exceeds the budget reduces the budgets of later intervals.
	perSecond, minBudget, maxBudget, firstBudget = 6_000, 2_000, 30_000, 500_000
	// The costs in microseconds of a look at a process, of a descriptor, of its text, and of
	// counting descriptors. BenchmarkThisMachine measures them.
	lookCost, descriptorCost, textCost, countCost = 10, 6, 8, 3
	// sweepRows is the number of rows of the table that an interval checks for processes that ran
	// without a look at them.
	sweepRows = 1024
	// maxLook is the maximum number of descriptors in one look. The next look at the process
	// continues after them.
	maxLook = 2048
	// maxTexts is the maximum number of texts read in one look.
	maxTexts = 256
	// lastDescriptor is the highest descriptor of a process that is read.
	lastDescriptor = 1<<14 - 1
	// maxClients is the maximum number of clients that are read each interval, and of processes of
	// KFD times its GPUs. maxOfProcess is the maximum number of clients of one process.
	maxClients, maxOfProcess = 1 << 14, 512
	// The time between two looks at a process that runs and has the same number of descriptors is
	// the age of the process, within these bounds.
	minPause = time.Second
	maxPause = time.Minute
	// The descriptors of a process that runs are counted again after a sixteenth of the time since
	// their number changed, at most after maxRest.
	restPart = 16
	maxRest  = 4 * time.Second
)

// finder finds clients by looks at the descriptors of processes.
type finder struct {
	reader    *reader
	devices   *devices
	processes *processes
	clients   *clients
	self      int32 // PID of the process that reads, 0 if it is not in the tree

	table   *proc.Table
	isFirst bool // Read
	budget  int  // microseconds
	asleep  []string
	// nextActive is the next row of Table.Active, and nextRow the next row of the table, to be
	// looked at.
	nextActive, nextRow int
	look                look
	looked              []int32 // PIDs, scratch of lookAtLost
}

// look is a look at the descriptors of one process.
type look struct {
	row     *proc.Process
	entries []int32 // descriptors that may be a GPU's
	claimed bool    // new clients were opened in this interval
	clients int     // of the process, if counted is set
	counted bool
	unread  bool // a client could not be read
	denied  bool
}

// selfOf returns the PID of this process below a root, 0 if it is not there, as in a simulation.
func selfOf(root string) int32 {
	self, _ := filepath.EvalSymlinks(filepath.Join(root, "proc/self"))
	pid, _ := strconv.ParseInt(filepath.Base(self), 10, 32)
	return int32(pid)
}

// find searches for clients that are not in the list.
func (f *finder) find(last, now time.Time, t *proc.Table) {
	budget := firstBudget
	if f.isFirst = last.IsZero(); !f.isFirst {
		budget = max(minBudget, min(int(now.Sub(last).Seconds()*perSecond), maxBudget))
	}
	f.budget = budget + min(0, f.budget)
	f.table, f.asleep = t, f.devices.asleep(f.asleep[:0])
	f.lookAtLost()
	f.lookAtActive()
	f.sweep()
}

// lookAtLost looks at processes that may have another descriptor of a client whose descriptor is
// closed.
func (f *finder) lookAtLost() {
	f.looked = f.looked[:0]
	for _, c := range f.clients.list {
		for _, pid := range [...]int32{c.pid, c.other} {
			if !c.lost || f.budget <= 0 || slices.Contains(f.looked, pid) {
				continue
			}
			if row := f.table.Find(pid); row != nil {
				f.looked = append(f.looked, pid)
				f.lookAt(row)
			}
		}
	}
}

// lookAtActive looks at processes that ran. New processes come first. The others follow, beginning
// with the first row that exceeded the budget of the last Read.
func (f *finder) lookAtActive() {
	active, rows := f.table.Active, f.table.Rows
	for _, i := range active {
		if _, known := f.processes.of(&rows[i]); !known {
			f.lookAtDue(&rows[i], true)
		}
	}
	for range active {
		if f.budget <= 0 {
			return
		}
		f.nextActive = (f.nextActive + 1) % len(active)
		f.lookAtDue(&rows[active[f.nextActive]], true)
	}
}

// sweep looks at processes that ran without a look at them. The first Read sweeps all rows.
func (f *finder) sweep() {
	rows := f.table.Rows
	n := len(rows)
	if !f.isFirst {
		n = min(n, sweepRows)
	}
	for range n {
		if f.budget <= 0 {
			return
		}
		f.nextRow = (f.nextRow + 1) % len(rows)
		f.lookAtDue(&rows[f.nextRow], false)
	}
}

// lookAtDue looks at a process if a look is due, within the budget. If counts is set, a look is
// also due if the process has another number of descriptors than before.
func (f *finder) lookAtDue(row *proc.Process, counts bool) {
	if f.budget <= 0 || row.PID == 0 || row.PID == f.self || row.Is(proc.Kernel) || row.Is(proc.Zombie) {
		return // these processes open no GPU
	}
	st, known := f.processes.of(row)
	if !known || uint64(row.CPU) != st.cpu && (f.table.Now >= st.due || counts && f.recount(row, st)) {
		f.lookAt(row)
	}
}

// recount reports whether a process may have another number of descriptors than at the last look.
func (f *finder) recount(row *proc.Process, st *process) bool {
	now := f.table.Now
	if st.descriptors < 0 {
		return !st.denied
	}
	if now < st.recount {
		return false
	}
	f.budget -= countCost
	n, err := f.reader.count(subjectOf(row))
	if err != nil || n != st.descriptors {
		return true
	}
	st.recount = now + min((now-st.since)/restPart, maxRest)
	if st.from == 0 {
		st.cpu = uint64(row.CPU)
	}
	return false
}

func subjectOf(row *proc.Process) kernfs.Subject {
	return kernfs.Subject{PID: row.PID, Start: row.Start}
}

// lookAt looks at the descriptors of a process.
func (f *finder) lookAt(row *proc.Process) {
	st, known := f.processes.of(row)
	before := process{descriptors: -1}
	if known {
		before = *st
	}
	l := &f.look
	*l = look{row: row, entries: l.entries[:0], claimed: f.claims(row, &before, known)}
	var found listed
	descriptors, err := f.reader.count(subjectOf(row))
	if err == nil && (descriptors > 0 || !f.reader.numbers) {
		found, err = f.reader.list(subjectOf(row), before.from)
		l.entries = append(l.entries, found.entries...)
	}
	l.unread, l.denied = errors.Is(err, kernfs.ErrUnread), denied(err)
	for _, fd := range l.entries {
		f.open(fd)
	}
	f.budget -= lookCost + descriptorCost*found.seen + textCost*len(l.entries)
	now := f.table.Now
	after := process{
		pid: row.PID, start: row.Start, from: found.next, seen: int32(found.seen), cpu: uint64(row.CPU), denied: l.denied,
		due: now + max(minPause, min(now-row.Start, maxPause)), descriptors: descriptors, since: now,
	}
	if before.descriptors == descriptors {
		after.since = before.since
	}
	if before.from != 0 {
		after.seen += before.seen
	}
	if err != nil || int64(after.seen) != descriptors {
		after.descriptors = -1
	}
	if found.next != 0 || l.unread {
		after.due, after.cpu, after.descriptors = now, 0, -1
	}
	f.processes.set(st, after)
}

// claims reports whether a new client of a process was opened in this interval. This is the case if
// the process started in the interval, or did not run between the last look and the last Read.
func (f *finder) claims(row *proc.Process, before *process, known bool) bool {
	if !f.isFirst && row.Is(proc.Born) && f.table.BornSinceLastScan(&row.Sight) {
		return true
	}
	return known && before.from == 0 && uint64(row.CPU-min(row.Used, row.CPU)) <= before.cpu
}

// open records the client of a descriptor that may be a GPU's.
func (f *finder) open(fd int32) {
	l := &f.look
	text, node, err := f.reader.text(subjectOf(l.row), fd, f.asleep)
	if err != nil {
		l.denied = l.denied || denied(err)
		l.unread = l.unread || errors.Is(err, kernfs.ErrUnread) || errors.Is(err, errAsleep)
		return
	}
	info := &f.clients.info
	info.parse(text)
	d := f.devices.of(info, node)
	switch {
	case d == nil:
	case !info.hasClient:
		d.silent = true
	default:
		k := key{d, info.client}
		if f.clients.byKey[k] != nil || f.mayAdd() {
			h := holder{pid: l.row.PID, parent: l.row.Parent, start: l.row.Start, fd: fd}
			f.clients.meet(k, h, info, f.table.Now-l.row.Start, l.claimed)
		}
	}
}

// mayAdd reports whether another client of the process may be read each interval.
func (f *finder) mayAdd() bool {
	l := &f.look
	if !l.counted {
		l.counted = true
		for _, c := range f.clients.list {
			if c.pid == l.row.PID {
				l.clients++
			}
		}
	}
	l.clients++
	return l.clients <= maxOfProcess && len(f.clients.list) < maxClients
}
