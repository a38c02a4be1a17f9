// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/stall"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
)

// What finding clients may cost.
const (
	// perSecond is the budget of an interval for each second of it, minBudget and maxBudget bound
	// it, and firstBudget is that of the first Read. They are in microseconds of the estimates
	// below. What a look takes beyond it, later intervals lack.
	perSecond, minBudget, maxBudget, firstBudget = 6_000, 2_000, 30_000, 500_000
	// What it costs, in microseconds, to look at a process, at a descriptor and at its text, and to
	// ask for the number of descriptors. BenchmarkThisMachine measures them.
	lookCost, descriptorCost, textCost, countCost = 10, 6, 8, 3
	// sweepRows is how many rows of the table an interval looks for processes that were not looked
	// at when they ran.
	sweepRows = 1024
	// maxLook is how many descriptors one look takes. The next look at the process goes on from
	// there.
	maxLook = 2048
	// maxTexts is the maximum number of texts read of descriptors that may be a GPU's.
	maxTexts = 256
	// lastDescriptor is the last descriptor of a process that is looked at.
	lastDescriptor = 1<<14 - 1
	// maxClients is how many clients are read each interval, and how many processes of KFD's, once
	// for each of its GPUs. maxOfProcess is how many clients are read of one process.
	maxClients, maxOfProcess = 1 << 14, 512
	// The time between two looks at a process that runs and whose number of descriptors is the
	// same: its age, within these.
	minPause = time.Second
	maxPause = time.Minute
	// The time until the descriptors of a process that runs are counted again: a sixteenth of the time
	// for which their number is known to be the same, up to maxRest.
	restPart = 16
	maxRest  = 4 * time.Second
)

// process is the search state of the process in a slot of the table.
type process struct {
	pid    int32
	from   int32 // the descriptor that the next look starts at
	seen   int32 // the number of those before it
	denied bool  // its descriptors may not be seen
	start  time.Duration
	// cpu is its CPU time when it was last known to have no other clients than those that are
	// known.
	cpu         uint64
	due         time.Duration // when it is looked at again although the number of its descriptors is the same
	descriptors int64         // their number, negative where it is not known
	since       time.Duration // when that number was first seen
	recount     time.Duration // when they are counted again
	ran         uint64        // the last Read before which it ran
}

// processes are by slot.
type processes struct {
	bySlot []process
	denied int
	exact  bool // every process that runs is active in the table
}

// of returns what is known of the process of a row. known reports whether it was looked at before.
func (p *processes) of(row *scan.Process) (st *process, known bool) {
	st = &p.bySlot[row.Slot]
	if st.pid == row.PID && st.start == row.Start {
		return st, true
	}
	return st, false
}

// set replaces what is known of the process in a slot.
func (p *processes) set(st *process, to process) {
	if st.denied {
		p.denied--
	}
	if to.denied {
		p.denied++
	}
	*st = to
}

// follow drops what is known of processes that ended, and notes which ran before a Read.
func (p *processes) follow(t *scan.Table, read uint64) {
	if n := t.Slots(); n < len(p.bySlot) { // slots have been renumbered
		*p = processes{bySlot: make([]process, n)}
	} else {
		p.bySlot = append(p.bySlot, make([]process, n-len(p.bySlot))...)
	}
	for i := range t.Ended {
		if st := &p.bySlot[t.Ended[i].Slot]; st.pid == t.Ended[i].PID {
			p.set(st, process{})
		}
	}
	p.exact = t.Exact
	for _, i := range t.Active {
		if st, known := p.of(&t.Processes[i]); known {
			st.ran = read
		}
	}
}

// slept reports whether a process is known not to have run before a Read.
func (p *processes) slept(h *holder, read uint64) bool {
	if !p.exact || int(h.slot) >= len(p.bySlot) {
		return false
	}
	st := &p.bySlot[h.slot]
	return st.pid == h.pid && st.start == h.start && st.ran != read
}

// find looks for clients that are not known yet.
func (s *Source) find(now time.Time, t *scan.Table) {
	budget := firstBudget
	if !s.last.IsZero() {
		budget = max(minBudget, min(int(now.Sub(s.last).Seconds()*perSecond), maxBudget))
	}
	l := &s.look
	l.budget, l.now, l.table = budget+min(0, l.budget), now, t
	s.lookAtLost(t)
	s.passOn(now)
	s.lookAtNew(t)
	s.lookAtActive(t)
	s.sweep(t)
	l.table = nil
}

// lookAtLost looks at processes that closed the descriptor by which they had a client: they may
// have it by another.
func (s *Source) lookAtLost(t *scan.Table) {
	if !s.anyLost {
		return
	}
	s.looked = s.looked[:0]
	for _, c := range s.clients {
		if !c.lost || s.look.budget <= 0 || slices.Contains(s.looked, c.pid) {
			continue
		}
		if _, err := s.numberOf(c.pid, c.start); err != nil {
			continue // most have ended
		}
		s.looked = append(s.looked, c.pid)
		if i := slices.IndexFunc(t.Processes, func(p scan.Process) bool { return p.PID == c.pid }); i >= 0 {
			s.lookAt(&t.Processes[i])
		}
	}
}

// lookAtNew looks at processes that were never looked at and ran.
func (s *Source) lookAtNew(t *scan.Table) {
	for _, i := range t.Active {
		row := &t.Processes[i]
		if s.look.budget <= 0 {
			return
		}
		if _, known := s.processes.of(row); !known && s.opens(row) {
			s.lookAt(row)
		}
	}
}

// lookAtActive looks at processes that ran, those first that come after the last one that it had no
// budget for.
func (s *Source) lookAtActive(t *scan.Table) {
	n := len(t.Active)
	for i := range n {
		at := (i + s.firstActive) % n
		if s.look.budget <= 0 {
			s.firstActive = at
			return
		}
		row := &t.Processes[t.Active[at]]
		if st, known := s.processes.of(row); known && s.opens(row) && uint64(row.CPU) != st.cpu && (t.Now >= st.due || s.recount(row, st, t.Now)) {
			s.lookAt(row)
		}
	}
}

// opens reports whether a process may open a GPU. The one that reads does not.
func (s *Source) opens(row *scan.Process) bool {
	return !row.Kernel && !row.Zombie && row.PID != s.self
}

// recount reports whether a process may have another number of descriptors than at the last look.
func (s *Source) recount(row *scan.Process, st *process, now time.Duration) bool {
	if st.descriptors < 0 {
		return !st.denied
	}
	if now < st.recount {
		return false
	}
	s.look.budget -= countCost
	n, err := s.numberOf(row.PID, row.Start)
	if err != nil || n != st.descriptors {
		return true
	}
	st.recount = now + min((now-st.since)/restPart, maxRest)
	if st.from == 0 {
		st.cpu = uint64(row.CPU)
	}
	return false
}

// numberOf returns the number of a process's descriptors: the size of their directory, from Linux
// 6.2 on (fs/proc/fd.c, proc_fd_getattr), which every user may ask for. Before, it is 0.
func (s *Source) numberOf(pid int32, start time.Duration) (int64, error) {
	if f := s.files.Job(); s.cached.NeverWaits() {
		n, err := s.cached.SizeOf(pid, "fd")
		if f.size, f.err = n, err; !errors.Is(err, kernfs.ErrNotCached) {
			return s.counted(err), err
		}
	}
	err := s.run(pid, start, 0, (*files).readSize)
	return s.counted(err), err
}

// counted returns the number of descriptors that was read.
func (s *Source) counted(err error) int64 {
	if err != nil {
		return 0
	}
	n := s.files.Job().size
	if s.entries != nil {
		n = s.entries(n)
	}
	s.numbers = s.numbers || n > 0
	return n
}

// sweep looks at processes that ran since the last look at them. The first Read sweeps all rows.
func (s *Source) sweep(t *scan.Table) {
	rows := len(t.Processes)
	if !s.last.IsZero() {
		rows = min(rows, sweepRows)
	}
	for range rows {
		if s.look.budget <= 0 {
			return
		}
		s.nextRow = (s.nextRow + 1) % len(t.Processes)
		row := &t.Processes[s.nextRow]
		if st, known := s.processes.of(row); s.opens(row) && (!known || uint64(row.CPU) != st.cpu && t.Now >= st.due) {
			s.lookAt(row)
		}
	}
}

// look is a look at the descriptors of one process.
type look struct {
	budget int // microseconds
	now    time.Time
	table  *scan.Table

	row     *scan.Process
	claimed bool // new clients were opened in this interval
	found   listed
	clients int  // of the process, negative if they are not counted yet
	unread  bool // a client could not be read
	denied  bool
}

// lookAt looks at the descriptors of a process.
func (s *Source) lookAt(row *scan.Process) {
	st, known := s.processes.of(row)
	l := &s.look
	l.row, l.found, l.unread, l.denied, l.clients = row, listed{nodes: l.found.nodes[:0]}, false, false, -1
	l.claimed = !s.last.IsZero() && row.Born && l.table.BornSinceLastScan(row)
	from := int32(0)
	if known {
		from = st.from
		l.claimed = l.claimed || st.from == 0 && uint64(row.CPU-min(row.Used, row.CPU)) <= st.cpu
	}
	err := s.run(row.PID, row.Start, 0, (*files).readSize)
	descriptors := s.counted(err)
	if err == nil && (descriptors > 0 || !s.numbers) {
		if err = s.run(row.PID, row.Start, from, (*files).list); !errors.Is(err, stall.ErrUnread) {
			found := s.files.Job().found
			l.found = listed{append(l.found.nodes, found.nodes...), found.seen, found.next}
		}
	}
	l.unread = errors.Is(err, stall.ErrUnread)
	for _, fd := range l.found.nodes {
		s.open(fd)
	}
	l.budget -= lookCost + descriptorCost*l.found.seen + textCost*len(l.found.nodes)
	age := l.table.Now - row.Start
	to := process{
		pid: row.PID, start: row.Start, from: l.found.next, seen: int32(l.found.seen), cpu: uint64(row.CPU),
		denied: l.denied || denied(err),
		due:    l.table.Now + max(minPause, min(age, maxPause)), descriptors: descriptors, since: l.table.Now,
	}
	if known && st.descriptors == descriptors {
		to.since = st.since
	}
	if from != 0 {
		to.seen += st.seen
	}
	if err != nil || int64(to.seen) != descriptors {
		to.descriptors = -1
	}
	if l.found.next != 0 || l.unread {
		to.due, to.cpu, to.descriptors = l.table.Now, 0, -1
	}
	s.processes.set(st, to)
}

// run runs a read of files of a process, and returns its error.
func (s *Source) run(pid int32, start time.Duration, fd int32, read func(*files)) error {
	f := s.files.Job()
	f.pid, f.fd = pid, fd
	if err := s.files.Run(pid, start, read); err != nil {
		return err
	}
	return f.err
}

// open records the client of a descriptor that may be a GPU's.
func (s *Source) open(fd int32) {
	l := &s.look
	var err error
	if slices.ContainsFunc(s.devices, func(d *device) bool { return d.asleep }) {
		if err = s.run(l.row.PID, l.row.Start, fd, (*files).readLink); err == nil && s.isAsleep(s.files.Job().target) {
			l.unread = true
			return
		}
	}
	if err == nil {
		err = s.run(l.row.PID, l.row.Start, fd, (*files).readText)
	}
	if err != nil {
		l.denied, l.unread = l.denied || denied(err), l.unread || errors.Is(err, stall.ErrUnread)
		return
	}
	f := s.files.Job()
	node, _ := nodeOf(f.target)
	s.info.parse(f.text)
	d := s.deviceOf(&s.info, node)
	if d == nil {
		return
	}
	if !s.info.hasClient {
		s.target = append(s.target[:0], f.target...)
		err := s.run(l.row.PID, l.row.Start, fd, (*files).readLink)
		d.silent = d.silent || err == nil && bytes.Equal(s.files.Job().target, s.target) // else it is another file by now
		return
	}
	h := holder{pid: l.row.PID, parent: l.row.Parent, start: l.row.Start, slot: l.row.Slot, fd: fd}
	s.meet(key{d, s.info.client}, h, l.claimed)
}

// isAsleep reports whether a link names a node of a GPU that must not be woken.
func (s *Source) isAsleep(link []byte) bool {
	node, _ := nodeOf(link)
	return slices.ContainsFunc(s.devices, func(d *device) bool { return d.asleep && d.name == s.nodes[string(node)] })
}

// mayMeet reports whether another client of the process that is looked at may be read each
// interval.
func (s *Source) mayMeet() bool {
	l := &s.look
	if l.clients < 0 {
		l.clients = 0
		for _, c := range s.clients {
			if c.pid == l.row.PID {
				l.clients++
			}
		}
	}
	l.clients++
	return l.clients <= maxOfProcess && len(s.clients) < maxClients
}

// gone reports whether an error means that a process or a descriptor is gone.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

func denied(err error) bool { return errors.Is(err, fs.ErrPermission) }
