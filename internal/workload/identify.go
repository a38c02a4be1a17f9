// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// Identity is what a process is and what it belongs to. Names and ids have at most maxName bytes, the path and the
// command line at most maxText; what is cut ends in an ellipsis.
type Identity struct {
	// Executable is the base name of the executable, or the task's name where that cannot be read.
	Executable string
	// Path is the executable's path, empty where it cannot be read.
	Path string
	// CommandLine is the arguments, joined by spaces; empty unless wanted.
	CommandLine string
	// ProcessCgroup is the path of the process's own cgroup; empty unless wanted.
	ProcessCgroup string
	Placement
}

// Wanted says what of an Identity is to be found that not everybody needs.
type Wanted struct {
	CommandLine, ProcessCgroup bool
}

const (
	// maxFile bounds how much of a cgroup file, or of a hypervisor's command line, is read. The kernel does not bound
	// the latter.
	maxFile = 64 << 10
	// deletedSuffix is what the kernel appends to the path of a file that was removed (d_path).
	deletedSuffix = " (deleted)"
)

// Identifier finds out what processes are and belong to. It remembers each by its slot, so that one which
// has not changed costs two reads and no allocation, or no read where the source of CPU times counts executions and
// moves. A round is Forget for each process that ended, Identify for each that is new or ran, then Resolve, and then
// Identity tells.
type Identifier struct {
	proc   *kernfs.Dir
	wanted Wanted
	buf    []byte
	known  []entry
	// placements holds what a cgroup file says, by its text: processes share few texts.
	placements map[string]*placement
	holders    holders
	namespace  namespace
	outside    bool // a container's cgroup has no path below the host's mount point

	vms       VMs
	machines  []int32 // slots of the processes of virtual machines
	unsettled bool    // they changed since they were resolved
	processes []VMProcess
}

type entry struct {
	identity Identity
	changed  bool // since Identity told it
	moved    bool // since Moved told it
	// seen is when it was looked at last; execs, cgroups, group and comm are what the process had then.
	seen     time.Duration
	execs    uint64
	cgroups  uint64
	group    uint64
	comm     cpu.Comm
	due      time.Duration // when it is looked at again though nothing tells that it changed
	settled  bool          // all of it could be read, or may not be read
	attempts int           // how often in a row that failed
	cgroup   string
	exe      string
	start    time.Duration
	pid      int32
	pending  execution // whose command line could not be read yet
	args     uint64    // hash of the begin of the command line, 0 where it was not read
	unique   string    // of a virtual machine without a better id
	fromArgs units.VM
	argued   time.Duration // when the command line was read last
	machine  bool          // listed in machines
	holder   *holder       // of the container's ID
}

// execution is whether a process has executed a program since it was looked at.
type execution int8

const (
	unlikely execution = iota
	possible           // it has another name, and the source does not count executions
	certain
)

// placement is all that a cgroup file says.
type placement struct {
	Placement
	text     string
	own      string   // path of the process's own cgroup
	delegate delegate // of the virtual machine, else of the process
}

// NewIdentifier returns an identifier for processes below root. It touches nothing.
func NewIdentifier(root string, wanted Wanted) *Identifier {
	return &Identifier{
		proc:       kernfs.New(filepath.Join(root, "proc")),
		wanted:     wanted,
		buf:        make([]byte, 2*maxText),
		placements: map[string]*placement{},
		holders:    holders{},
		namespace:  namespace{find: func() (string, error) { return cgroup.NamespaceRoot(root) }},
	}
}

// Close closes what the identifier holds open.
func (id *Identifier) Close() error { return id.proc.Close() }

// Outside tells why cgroups cannot be looked at, nil while they can or there are none: of those that are outside of the
// reader's cgroup namespace only the end of the path is known. Where the namespace could not be found it is looked for
// again.
func (id *Identifier) Outside(now time.Time) error {
	if id.outside && id.namespace.findAgain(now) {
		clear(id.placements)
		clear(id.holders) // by cgroups that have other paths now
		for i := range id.known {
			id.known[i].holder = nil
		}
		for i := range id.known {
			if e := &id.known[i]; e.cgroup != "" {
				before := e.identity
				id.place(e, id.placementOf(e.cgroup))
				e.compare(&before)
			}
		}
		id.unsettled = true // those that sleep are looked at, too
	}
	id.outside = id.outside && slices.ContainsFunc(id.known, func(e entry) bool { return e.isOutside() })
	if !id.outside {
		return nil
	}
	return fmt.Errorf("what containers' cgroups count and request cannot be read from the receiver's cgroup namespace: %w",
		cmp.Or(id.namespace.failed, errElsewhere))
}

var errElsewhere = errors.New("their paths lead out of the mounted hierarchy")

// Compact tells that the processes have the slots from 0 on, and had those in slots, and gives back the memory that was
// needed for more of them.
func (id *Identifier) Compact(slots []int32) {
	known := make([]entry, len(slots))
	id.machines = nil
	for slot, before := range slots {
		if int(before) < len(id.known) {
			known[slot] = id.known[before]
		}
		if known[slot].machine {
			id.machines = append(id.machines, int32(slot))
		}
	}
	id.known, id.placements, id.processes = known, map[string]*placement{}, nil
	id.unsettled = true
}

// Forget says that the process in a slot has ended.
func (id *Identifier) Forget(slot int32) {
	if int(slot) < len(id.known) {
		id.unsettled = id.unsettled || id.known[slot].machine
		id.holders.release(id.known[slot].holder)
		id.known[slot] = entry{}
	}
}

// Where the source counts executions and moves, a process that shows neither is looked at again all the same, for its
// executable may be renamed, or its cgroup (v1).
const (
	// lookAgain is how often at least.
	lookAgain = 5 * time.Minute
	// lookSoon is how often at most, of a process that has another name or that could not be read maxAttempts times.
	lookSoon    = time.Minute
	maxAttempts = 3
)

// isSame reports whether the process need not be looked at: the source tells that it is what it was, or what it would
// cost is not worth it yet. A process can rename itself as often as it likes.
func (e *entry) isSame(p *cpu.Process, now time.Duration) bool {
	switch {
	case p.Cgroups == 0 || p.Cgroups != e.cgroups || p.Cgroup != e.group || p.Execs != e.execs || now < e.seen:
		return false
	case !e.settled && e.attempts < maxAttempts:
		return false
	case !e.settled, p.Comm != e.comm:
		return now-e.seen < lookSoon
	}
	return now < e.due
}

// nextLook returns a time after seen, lookAgain at most, that depends on the slot: processes that were first seen together
// are not looked at again together.
func nextLook(slot int32, seen time.Duration) time.Duration {
	phase := lookAgain * time.Duration(uint32(slot)*2654435761>>16) >> 16
	return seen + lookAgain - (seen+lookAgain-phase)%lookAgain
}

// Identify reads what a process is, in a pass that began at now since boot. What cannot be read stays as it was; a
// process of which nothing can be read is known by its task's name.
func (id *Identifier) Identify(p *cpu.Process, now time.Duration) {
	for len(id.known) <= int(p.Slot) {
		id.known = append(id.known, entry{})
	}
	e := &id.known[p.Slot]
	fresh := e.pid == 0
	if fresh {
		e.pid, e.start, e.changed = p.PID, p.Start, true
	}
	if p.Kernel && (fresh || p.Comm != e.comm) {
		name := kernelThreadName(p.Comm.String())
		e.changed = e.changed || name != e.identity.Executable
		e.identity.Executable, e.comm = name, p.Comm
	}
	if e.isSame(p, now) {
		return
	}
	before, argsBefore := e.identity, e.fromArgs
	e.settled = true
	if !p.Kernel {
		id.readProgram(p, e, fresh, now)
	}
	var in *placement
	var read bool
	var err error
	if !p.Zombie || fresh { // version 1 shows a process whose first thread has ended in the root, wherever the others run
		in, read, err = id.readCgroup(p, e)
	}
	if e.settled = e.settled && err == nil; e.settled || p.Cgroups != e.cgroups || p.Execs != e.execs {
		e.attempts = 0
	}
	if !e.settled {
		e.attempts++
	}
	// What the pass has told was so before the files were read: a change in between shows in the next one.
	e.seen, e.due, e.comm = now, nextLook(p.Slot, now), p.Comm
	e.execs, e.cgroups, e.group = p.Execs, p.Cgroups, p.Cgroup
	if read {
		id.place(e, in)
	}
	e.compare(&before)
	if e.fromArgs != argsBefore || (read && (in.VM != units.VM{} || e.machine)) {
		id.unsettled = true
		if !e.machine {
			e.machine = true
			id.machines = append(id.machines, p.Slot)
		}
	}
}

// place says where the process is, which tells its virtual machine only together with others.
func (id *Identifier) place(e *entry, in *placement) {
	vm := e.identity.VM
	e.identity.Placement, e.identity.ProcessCgroup = in.Placement, in.own
	e.identity.VM = vm
	if e.holder == nil || e.holder.cgroup != in.Cgroup {
		id.holders.release(e.holder)
		e.holder = id.holders.hold(&e.identity.Placement)
	} else {
		e.identity.Container.ID = e.holder.id
	}
	id.outside = id.outside || e.isOutside()
}

func (e *entry) isOutside() bool {
	return strings.HasPrefix(e.identity.Cgroup, "/..") || strings.HasPrefix(e.identity.ProcessCgroup, "/..")
}

// compare notes what is not as it was before.
func (e *entry) compare(before *Identity) {
	e.moved = e.moved || e.identity.ProcessCgroup != before.ProcessCgroup
	before.ProcessCgroup = e.identity.ProcessCgroup
	e.changed = e.changed || e.identity != *before
}

// PlaceUnseen returns where processes were that ran in the cgroup at path, in version 2, and were not identified.
func (id *Identifier) PlaceUnseen(path string) Placement {
	p := ParseCgroup([]byte("0::" + path))
	p.Container.ID, _ = id.holders.idOf(&p)
	return p
}

// Resolve settles which virtual machines the processes are, which takes all of them at once. It says whether
// that may have changed what any process is, those that were not identified in this round too.
func (id *Identifier) Resolve() (changed bool) {
	if !id.unsettled {
		return false
	}
	id.unsettled = false
	id.machines = slices.DeleteFunc(id.machines, func(slot int32) bool { return !id.known[slot].machine })
	slices.SortFunc(id.machines, func(a, b int32) int {
		x, y := &id.known[a], &id.known[b]
		return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(x.pid, y.pid))
	})
	id.processes = id.processes[:0]
	for _, slot := range id.machines {
		e := &id.known[slot]
		in, fromArgs := id.placementOf(e.cgroup), e.fromArgs
		if isUUID(fromArgs.ID) {
			fromArgs.ID = in.delegate.qualify(fromArgs.ID)
		}
		id.processes = append(id.processes, VMProcess{Unique: e.unique, FromCgroup: in.VM, FromArgs: fromArgs})
	}
	id.vms.Resolve(id.processes)
	for i, slot := range id.machines {
		e := &id.known[slot]
		if vm := id.processes[i].VM; e.identity.VM != vm {
			e.identity.VM, e.changed = vm, true
		}
	}
	return true
}

// Identity returns what the process in a slot is, and whether that is something else than at the last call
// for it, but for its ProcessCgroup. It is valid until the next call of Identify.
func (id *Identifier) Identity(slot int32) (identity *Identity, changed bool) {
	e := &id.known[slot]
	changed, e.changed = e.changed, false
	return &e.identity, changed
}

// Moved says whether the process's ProcessCgroup is another than at the last call for it.
func (id *Identifier) Moved(slot int32) (moved bool) {
	e := &id.known[slot]
	moved, e.moved = e.moved, false
	return moved
}

// readProgram updates the process's name and path and, where they matter, its arguments.
func (id *Identifier) readProgram(p *cpu.Process, e *entry, fresh bool, now time.Duration) {
	counted := p.Cgroups != 0 && e.cgroups != 0
	switch {
	case fresh, counted && p.Execs != e.execs:
		e.pending = certain
	case !counted && p.Comm != e.comm:
		e.pending = max(e.pending, possible)
	}
	target, err := id.proc.LinkOf(p.PID, "exe", id.buf)
	readable, forbidden := err == nil, errors.Is(err, fs.ErrPermission)
	switch {
	case readable && string(target) != e.exe:
		e.pending, e.exe = certain, string(target)
		program := strings.TrimSuffix(e.exe, deletedSuffix)
		e.identity.Path, e.identity.Executable = bound(program, maxText), bound(path.Base(program), maxName)
	case readable:
	case fresh, e.pending == certain && forbidden:
		e.becomeUnknown(p)
	}
	e.settled = readable || forbidden
	if e.pending != unlikely {
		id.readArguments(p, e, readable, now)
	}
}

// becomeUnknown notes that the process executes a program of which only the task's name is known.
func (e *entry) becomeUnknown(p *cpu.Process) {
	e.exe, e.identity.Path, e.identity.Executable = "", "", p.Comm.String()
}

// kernelThreadName drops what a worker appends to its name for the work that it is at. A rescuer is named
// for its queue (kernel/workqueue.c, wq_worker_comm and format_worker_id).
func kernelThreadName(comm string) string {
	if strings.HasPrefix(comm, "kworker/") && !strings.HasPrefix(comm, "kworker/R-") {
		if i := strings.IndexAny(comm, "-+"); i > 0 {
			return comm[:i]
		}
	}
	return comm
}

// argsSeed is that of the hashes of command lines.
var argsSeed = maphash.MakeSeed()

// readArguments looks at the command line, which everybody may read, where it matters: if it is wanted, if the program
// may be a hypervisor, and if the executable cannot be read. Then a command line that changed together with the task's
// name tells of an executed program. A process chooses how long its command line is and how often it renames itself, so
// only the begin of it is read unless the program is a hypervisor, whose name is no reason to read it sooner than lookSoon.
func (id *Identifier) readArguments(p *cpu.Process, e *entry, readable bool, now time.Duration) {
	if readable && !id.wanted.CommandLine && hypervisorOf(strings.TrimSuffix(e.exe, deletedSuffix)) == nil {
		e.pending, e.args, e.fromArgs = unlikely, 0, units.VM{}
		return
	}
	if e.fromArgs.ID != "" && e.pending == possible && now > e.argued && now-e.argued < lookSoon {
		return
	}
	e.argued = now
	line, err := id.proc.ReadOf(p.PID, "cmdline", id.buf[:maxText+1])
	if err != nil || len(line) == 0 {
		e.settled = false // as in the midst of executing
		if !readable {
			e.pending = possible
		}
		return
	}
	args := maphash.Bytes(argsSeed, line)
	if e.pending == possible {
		if args == e.args { // it has renamed itself
			e.pending = unlikely
			return
		}
		if !readable {
			e.becomeUnknown(p)
		}
	}
	if e.settled || p.Cgroups == 0 {
		e.pending = unlikely
	}
	e.args, e.fromArgs = args, units.VM{}
	if id.wanted.CommandLine {
		e.identity.CommandLine = joinArguments(line)
	}
	comm := p.Comm.String()
	if _, ok := ParseVM(line, comm, e.exe, ""); !ok {
		return
	}
	if len(line) > maxText {
		if line, err = id.readFile(p.PID, "cmdline"); err != nil {
			e.pending, e.settled = certain, false
			return
		}
	}
	e.unique = boundID(fmt.Sprintf("%s-%d-%d", e.identity.Executable, p.PID, p.Start.Milliseconds()))
	e.fromArgs, _ = ParseVM(line, comm, e.exe, e.unique)
}

// joinArguments returns the arguments of a command line, or of the begin of one that is too long, joined by spaces.
func joinArguments(line []byte) string {
	return bound(string(bytes.ReplaceAll(bytes.TrimRight(line, "\x00"), []byte{0}, []byte{' '})), maxText)
}

// readCgroup returns what the process's cgroup file says, if that could be read and is something new.
func (id *Identifier) readCgroup(p *cpu.Process, e *entry) (in *placement, isNew bool, err error) {
	text, err := id.readFile(p.PID, "cgroup")
	if err != nil || len(text) == 0 || string(text) == e.cgroup {
		return nil, false, err
	}
	known := id.placements[string(text)]
	if known == nil {
		known = id.placementOf(string(text))
	}
	e.cgroup = known.text // processes in the same cgroup share it
	return known, true, nil
}

// placementOf parses the text of a cgroup file, or knows it already.
func (id *Identifier) placementOf(text string) *placement {
	p := id.placements[text]
	if p == nil {
		if len(id.placements) > len(id.known) {
			clear(id.placements) // it outgrew the processes: most of it is of some that ended
		}
		absolute := id.namespace.absolute([]byte(text))
		p = &placement{text: text}
		p.Placement, p.delegate = parseCgroup(absolute)
		if id.wanted.ProcessCgroup {
			p.own = ProcessCgroup(absolute)
		}
		id.placements[text] = p
	}
	return p
}

// readFile reads a file of a process whole, up to maxFile.
func (id *Identifier) readFile(pid int32, name string) ([]byte, error) {
	for {
		b, err := id.proc.ReadOf(pid, name, id.buf)
		if err != nil {
			return nil, err
		}
		if len(b) < len(id.buf) || len(id.buf) >= maxFile {
			return b, nil
		}
		id.buf = make([]byte, min(4*len(id.buf), maxFile))
	}
}
