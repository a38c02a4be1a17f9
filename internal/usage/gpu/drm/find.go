// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// What finding clients may cost.
const (
	// perSecond is the budget of an interval for each second of it, minBudget and maxBudget bound it, and firstBudget is that of
	// the first Read. They are in microseconds of the estimates below. What a look takes beyond it, later intervals lack.
	perSecond, minBudget, maxBudget, firstBudget = 6_000, 2_000, 30_000, 500_000
	// What it costs, in microseconds, to look at a process, at a descriptor and at its text, and to ask for the number of
	// descriptors. BenchmarkThisMachine measures them.
	lookCost, descriptorCost, textCost, countCost = 10, 6, 8, 3
	// sweepRows is how many rows of the table an interval looks for processes that were not looked at when they ran.
	sweepRows = 1024
	// maxLook is how many descriptors one look takes. The next look at the process goes on from there.
	maxLook = 2048
	// maxTexts is how many of them may be read because they may be a GPU's, and maxTime how long a look by texts alone may take.
	// The text of an epoll or inotify descriptor has a line for each file that it watches: 5000 of them take 12 ms.
	maxTexts, maxTime = 256, 10 * time.Millisecond
	// lastDescriptor is the last descriptor of a process that is looked at.
	lastDescriptor = 1<<14 - 1
	// maxClients is how many clients are read each interval, and how many processes of KFD's, once for each of its GPUs.
	// maxOfProcess is how many clients are read of one process.
	maxClients, maxOfProcess = 1 << 14, 512
	// The time between two looks at a process that runs and whose number of descriptors is the same: its age, within these.
	minPause = time.Second
	maxPause = time.Minute
)

// process is what is known of the process in a slot of the table.
type process struct {
	pid    int32
	from   int32 // the descriptor that the next look starts at
	seen   int32 // the number of those before it
	denied bool  // its descriptors may not be seen
	byText bool  // only their texts may be
	start  time.Duration
	// cpu is its CPU time when it was last known to have no other clients than those that are known.
	cpu         uint64
	due         time.Duration // when it is looked at again although the number of its descriptors is the same
	descriptors int64         // their number, negative where it is not known
}

// processes are by slot.
type processes struct {
	bySlot []process
	denied int
}

// of returns what is known of the process of a row. known reports whether it was looked at before.
func (p *processes) of(row *cpu.Process) (st *process, known bool) {
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

// follow drops what is known of processes that ended.
func (p *processes) follow(t *cpu.Table) {
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
}

// find looks for clients that are not known yet.
func (s *Source) find(now time.Time, t *cpu.Table) {
	s.processes.follow(t)
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

// lookAtLost looks at processes that closed the descriptor by which they had a client: they may have it by another.
func (s *Source) lookAtLost(t *cpu.Table) {
	if !s.anyLost {
		return
	}
	s.looked = s.looked[:0]
	for _, c := range s.clients {
		if !c.lost || s.look.budget <= 0 || slices.Contains(s.looked, c.pid) {
			continue
		}
		if _, err := s.proc.SizeOf(c.pid, "fd"); err != nil {
			continue // most have ended
		}
		s.looked = append(s.looked, c.pid)
		if i := slices.IndexFunc(t.Processes, func(p cpu.Process) bool { return p.PID == c.pid }); i >= 0 {
			s.lookAt(&t.Processes[i])
		}
	}
}

// lookAtNew looks at processes that were never looked at and ran.
func (s *Source) lookAtNew(t *cpu.Table) {
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

// lookAtActive looks at processes that ran, those first that come after the last one that it had no budget for.
func (s *Source) lookAtActive(t *cpu.Table) {
	n := len(t.Active)
	for i := range n {
		at := (i + s.firstActive) % n
		if s.look.budget <= 0 {
			s.firstActive = at
			return
		}
		row := &t.Processes[t.Active[at]]
		if st, known := s.processes.of(row); known && s.opens(row) && uint64(row.CPU) != st.cpu && (t.Now >= st.due || s.recount(row, st)) {
			s.lookAt(row)
		}
	}
}

// opens reports whether a process may open a GPU. The one that reads does not.
func (s *Source) opens(row *cpu.Process) bool { return !row.Kernel && !row.Zombie && row.PID != s.self }

// recount reports whether a process may have another number of descriptors than at the last look.
func (s *Source) recount(row *cpu.Process, st *process) bool {
	if st.descriptors < 0 {
		return !st.byText && !st.denied
	}
	s.look.budget -= countCost
	n, err := s.numberOf(row.PID)
	if err != nil || n != st.descriptors {
		return true
	}
	if st.from == 0 {
		st.cpu = uint64(row.CPU)
	}
	return false
}

// numberOf returns the number of a process's descriptors: the size of their directory, from Linux 6.2 on (fs/proc/fd.c,
// proc_fd_getattr), which every user may ask for. Before, it is 0.
func (s *Source) numberOf(pid int32) (int64, error) {
	n, err := s.proc.SizeOf(pid, "fd")
	if s.entries != nil {
		n = s.entries(n)
	}
	s.numbers = s.numbers || n > 0
	return n, err
}

// sweep looks at processes that ran since the last look at them. The first Read sweeps all rows.
func (s *Source) sweep(t *cpu.Table) {
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
	table  *cpu.Table
	each   func(name []byte) bool

	row     *cpu.Process
	claimed bool  // a client that is new was opened in this interval
	from    int32 // first descriptor to look at
	seen    int   // descriptors
	texts   int   // of them that were read
	clients int   // of the process, negative if they are not counted yet
	next    int32 // where the next look goes on, 0 at the end
	unread  bool  // a client could not be read
	denied  bool
	byText  bool // the links may not be read, and a GPU's descriptors are known by their texts
	began   time.Time
}

// lookAt looks at the descriptors of a process.
func (s *Source) lookAt(row *cpu.Process) {
	st, known := s.processes.of(row)
	l := &s.look
	l.row, l.seen, l.texts, l.next, l.unread, l.denied, l.byText, l.clients = row, 0, 0, 0, false, false, false, -1
	l.from = 0
	l.claimed = !s.last.IsZero() && row.Born && l.table.BornSinceLastScan(row)
	if known {
		l.from = st.from
		l.claimed = l.claimed || st.from == 0 && uint64(row.CPU-min(row.Used, row.CPU)) <= st.cpu
	}
	descriptors, err := s.numberOf(row.PID)
	if err == nil && (descriptors > 0 || !s.numbers) {
		err = s.list(row.PID)
	}
	l.budget -= s.cost()
	age := l.table.Now - row.Start
	to := process{
		pid: row.PID, start: row.Start, from: l.next, seen: int32(l.seen), cpu: uint64(row.CPU),
		denied: l.denied || denied(err), byText: l.byText,
		due: l.table.Now + max(minPause, min(age, maxPause)), descriptors: descriptors,
	}
	if l.from != 0 {
		to.seen += st.seen
	}
	if err != nil || int64(to.seen) != descriptors {
		to.descriptors = -1
	}
	if l.next != 0 || l.unread {
		to.due, to.cpu, to.descriptors = l.table.Now, 0, -1
	}
	s.processes.set(st, to)
}

// list looks at each descriptor of a process. Only its owner and who has CAP_DAC_READ_SEARCH may look into the directory of the
// links. From Linux 5.14 on, that of the texts needs the right to trace the process only (fs/proc/fd.c).
func (s *Source) list(pid int32) error {
	l := &s.look
	err := s.proc.EachOf(pid, "fd", l.each)
	if !denied(err) {
		return err
	}
	if slices.ContainsFunc(s.devices, func(d *device) bool { return d.asleep }) {
		l.unread = true // one of the texts may be its client's
		return nil
	}
	l.byText, l.began = true, s.clock()
	return s.proc.EachOf(pid, "fdinfo", l.each)
}

// cost returns what the look cost. What a text costs depends on what is open.
func (s *Source) cost() int {
	l := &s.look
	if l.byText {
		return max(lookCost+textCost*l.texts, int(s.clock().Sub(l.began).Microseconds()))
	}
	return lookCost + descriptorCost*l.seen + textCost*l.texts
}

// descriptor looks at one descriptor.
func (s *Source) descriptor(name []byte) bool {
	l := &s.look
	fd, err := strconv.ParseInt(string(name), 10, 32)
	if err != nil || int32(fd) < l.from {
		return true
	}
	if fd > lastDescriptor {
		return false
	}
	if l.seen == maxLook || l.texts == maxTexts {
		l.next = int32(fd)
		return false
	}
	l.seen++
	if l.byText {
		l.texts++
		s.open(int32(fd), nil, nil)
		if s.clock().Sub(l.began) > maxTime {
			l.next = int32(fd) + 1
		}
		return l.next == 0 && !l.denied
	}
	target, err := s.proc.LinkOf(l.row.PID, string(s.nameOf("fd/", int32(fd))), s.link)
	if err != nil {
		l.denied = l.denied || denied(err)
		return !l.denied
	}
	if node, ok := nodeOf(target); ok {
		l.texts++
		s.open(int32(fd), target, node)
	}
	return true
}

// nodeOf returns the name of the device node that a descriptor's link names, if it may be a GPU's. In a container the node may
// have another name.
func nodeOf(link []byte) ([]byte, bool) {
	i := bytes.LastIndexByte(link, '/')
	if i < 0 || len(link) == maxLink {
		return nil, false
	}
	if bytes.Contains(link, []byte("/dri/")) {
		return link[i+1:], true
	}
	name, ok := bytes.CutPrefix(link, []byte("/dev/"))
	if !ok || bytes.HasPrefix(name, []byte("pts/")) || bytes.HasPrefix(name, []byte("shm/")) {
		return nil, false
	}
	return name, !slices.ContainsFunc(otherNodes, func(other string) bool { return string(name) == other })
}

// otherNodes are nodes that many processes have open.
var otherNodes = []string{"null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "kmsg", "fuse", "kvm", "vhost-net", "net/tun", "rtc0"}

// maxLink is how much of a descriptor's link is read.
const maxLink = 128

// open notes the client of a descriptor that may be a GPU's: its link is target, and names a device node. Both are nil if the
// link may not be read.
func (s *Source) open(fd int32, target, node []byte) {
	l := &s.look
	for _, d := range s.devices {
		if d.asleep && d.name == s.nodes[string(node)] {
			l.unread = true
			return
		}
	}
	text, err := s.proc.ReadOf(l.row.PID, string(s.nameOf("fdinfo/", fd)), s.text)
	if err != nil {
		l.denied = l.denied || denied(err)
		return
	}
	s.info.parse(text)
	d := s.deviceOf(&s.info, node)
	if d == nil {
		return
	}
	if !s.info.hasClient && target == nil {
		d.silent = true
		return
	}
	if !s.info.hasClient {
		again, err := s.proc.LinkOf(l.row.PID, string(s.nameOf("fd/", fd)), s.text)
		d.silent = d.silent || err == nil && bytes.Equal(again, target) // else it is another file by now
		return
	}
	h := holder{pid: l.row.PID, parent: l.row.Parent, start: l.row.Start, fd: fd}
	s.meet(key{d, s.info.client}, h, l.claimed)
}

// mayMeet reports whether another client of the process that is looked at may be read each interval.
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
