// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// Identity describes a process and the workload that it belongs to.
//
// Equal Identities have the same series. Names and IDs have at most 256 bytes, the path and the
// command line at most 4 KiB; longer values end in an ellipsis.
type Identity struct {
	// Executable is the base name of the executable, or the task's name if the executable cannot be
	// read.
	Executable string
	// Path is the executable's path, empty if it cannot be read.
	Path string
	// CommandLine is the arguments, joined by spaces; empty unless wanted.
	CommandLine string
	// Owner is the name of the real user, or the user ID if the user has no name. It is empty if it
	// could not be read or is not wanted.
	Owner string
	// Parent is the PID of the parent when the process was first identified. It is 0 unless wanted.
	Parent int32
	// ProcessCgroup is the path of the process's own cgroup; empty unless wanted.
	ProcessCgroup string
	Placement
}

// Wanted selects the optional parts of an Identity. Parts that are not selected stay empty.
type Wanted struct {
	CommandLine, ProcessCgroup, Unit, Parent bool
	Owner, JobUser                           bool // of processes and Slurm jobs; they require Users

	Names *Names // nil: no names of containers and pods
	Users *Users // nil: no users
	// Everything, if set, is the ID of a container that contains all processes, including
	// short-lived ones. In this case, no files are read and all other parts are empty.
	Everything string
	// CgroupPath, if set, returns the path of a version 2 cgroup by its ID, or an empty string if
	// the path is not available.
	CgroupPath func(cgroup uint64) string
	// Waits limits the time spent waiting for files that processes block. If it is nil, the
	// Identifier creates one.
	Waits *kernfs.Waits
}

// Identifier finds the identities of processes and caches them by slot: an unchanged process costs
// two reads and no allocation, or no read if the CPU time source counts executions and moves.
//
// For each scan, call Begin, Forget for each process that exited, Identify for each process that is
// new or ran, and Resolve. Identity then returns the result. An Identifier is not safe for concurrent
// use. Close releases its descriptors.
type Identifier struct {
	files     *kernfs.Guard[*files]
	wanted    Wanted
	known     []entry                // by slot
	cgroups   map[string]*cgroupText // by their text: many processes share few
	programs  map[programKey]*program
	all       *Placement // placement of all processes if Everything is set, otherwise nil
	guests    guests
	holders   holders
	namespace namespace
	identity  Identity // scratch of Identity
	mayDefer  bool     // see MayDefer
	missed    bool     // a process blocked readFound
	version1  bool     // cgroup files show hierarchies of version 1

	hostNetwork uint64 // as readNetwork returns it, 0 if it was not read
}

// entry is the process in a slot: its identity, and the state of its reads. Processes with equal
// parts share them. The zero entry is an empty slot.
type entry struct {
	program *program     // the executable
	in      *cgroupText  // the cgroup
	placed  *Placement   // without the virtual machine
	line    *commandLine // the arguments
	user    *user        // the real user
	guest   *guest       // nil unless the process is or was part of a virtual machine
	holder  *holder      // of the container's ID, nil outside of containers
	parent  int32        // when the process was first identified
	changed bool         // since the last call of Identity
	moved   bool         // since the last call of Moved
	reads   readState
}

// The parts of a process whose files could not be read.
var (
	noProgram = &program{}
	noCgroup  = &cgroupText{}
	nowhere   = &Placement{}
	noLine    = &commandLine{}
	noUser    = &user{}
)

// NewIdentifier returns an Identifier for the processes of the host whose root directory is root.
// It does not read files.
func NewIdentifier(root string, wanted Wanted) *Identifier {
	id := &Identifier{
		files:     guardFiles(kernfs.GuardOptions[*files]{Root: root, Waits: wanted.Waits}),
		wanted:    wanted,
		cgroups:   map[string]*cgroupText{},
		programs:  map[programKey]*program{},
		holders:   holders{},
		namespace: namespace{find: func() (string, error) { return cgroup.NamespaceRoot(root) }},
	}
	if wanted.Everything != "" {
		id.all = &Placement{Workload: identity.Workload{Container: identity.Container{ID: wanted.Everything}}}
	}
	return id
}

// Begin begins a scan at now, before the processes of the scan are identified. It looks again for
// names that are pending.
func (id *Identifier) Begin(now time.Time) {
	id.files.Begin(now)
	if id.wanted.Users != nil {
		id.wanted.Users.begin(now)
	}
	if id.wanted.Names != nil {
		id.wanted.Names.begin(now)
	}
}

// Close closes the descriptors that the Identifier holds.
func (id *Identifier) Close() error { return id.files.Close() }

// Unread returns an error if files of some processes are not read because processes block reads, or
// reads are slow.
func (id *Identifier) Unread() error { return id.files.Err("names and command lines") }

// Shrink moves the process in slots[i] to slot i, and frees memory that is no longer needed.
func (id *Identifier) Shrink(slots []int32) {
	known := make([]entry, len(slots))
	id.cgroups, id.programs = map[string]*cgroupText{}, map[programKey]*program{}
	id.guests.shrink()
	for slot, before := range slots {
		if int(before) >= len(id.known) || id.known[before].isEmpty() {
			continue
		}
		e := &known[slot]
		*e = id.known[before]
		id.programs[e.program.key()], id.cgroups[e.in.text] = e.program, e.in
		if e.isGuest() {
			id.guests.slots = append(id.guests.slots, int32(slot))
		}
	}
	id.known = known
}

// Grow makes room for the processes in the first slots.
func (id *Identifier) Grow(slots int) {
	if n := len(id.known); n < slots {
		id.known = slices.Grow(id.known, slots-n)[:slots]
	}
}

// Forget removes a process that exited.
func (id *Identifier) Forget(slot int32) {
	if int(slot) < len(id.known) {
		e := &id.known[slot]
		id.guests.unsettled = id.guests.unsettled || e.isGuest()
		id.holders.release(e.holder)
		*e = entry{}
	}
}

// MayDefer allows Identify to skip, while it is set, processes that were identified before: a
// process older than settledAge rarely executes another program or moves. IsDeferred then reports
// true until Identify examines the process. MayDefer has no effect on sources that count executions
// and moves.
func (id *Identifier) MayDefer(may bool) { id.mayDefer = may }

// IsDeferred reports whether Identify has skipped the process in a slot.
func (id *Identifier) IsDeferred(slot int32) bool { return id.known[slot].reads.deferred }

// Identify updates the identity of a process from a scan that began at now, since boot.
//
// If a file cannot be read, for example because another user blocks reads of it, the identity keeps
// the previous content of the file. If the file was never read, the data of the scan replace it: the
// task's name and, if the scan provides it, the cgroup. If the process then moves, the scan also
// provides its new cgroup, as soon as the path of the cgroup is available. The identity is completed
// when the files become readable. The process then keeps its container, unless containers are nested
// in version 1 only, and its program if the names are equal.
func (id *Identifier) Identify(p *proc.Process, now time.Duration) {
	id.Grow(int(p.Slot) + 1)
	e := &id.known[p.Slot]
	isNew := e.isEmpty()
	if isNew {
		*e = entry{program: noProgram, in: noCgroup, placed: nowhere, line: noLine, user: noUser, parent: p.Parent, changed: true}
	}
	if id.all != nil {
		id.placeWithAll(e, p)
		return
	}
	if p.Is(proc.Kernel) {
		id.nameKernelThread(e, p)
	}
	if id.mayDefer && e.reads.canWait(p, now) {
		e.reads.deferred = true
		return
	}
	isFresh := e.reads.isFresh(p, now) && e.user.mayBe(p)
	if isFresh && !e.reads.stray {
		return
	}
	before := *e
	var in *cgroupText
	if isFresh {
		in = id.cgroupOf(p, e) // its path may have become available
	} else {
		in = id.examine(p, e, isNew, now)
	}
	if in != noCgroup {
		id.place(e, in)
		if in.VM.ID != "" || e.isGuest() {
			id.guests.list(e, p)
		}
	}
	e.compare(&before)
}

// examine reads the files of a process. It returns the process's cgroup, or noCgroup if the cgroup
// could not be read or is the same as before.
func (id *Identifier) examine(p *proc.Process, e *entry, isNew bool, now time.Duration) *cgroupText {
	before := e.program
	e.reads.settled, id.missed = true, false
	if !p.Is(proc.Kernel) {
		id.readProgram(p, e, isNew, now)
	}
	if id.wanted.Users != nil {
		id.readUser(p, e, isNew || e.program != before, now)
	}
	in := noCgroup
	var err error
	if !p.Is(proc.Zombie) || isNew { // version 1 shows a process whose first thread has exited in the root, wherever the others run
		if in, err = id.readCgroup(p, e); err != nil {
			e.reads.settled = false
			in = id.cgroupOf(p, e)
		}
	}
	e.reads.found = e.reads.found || !id.missed
	e.reads.record(p, now)
	return in
}

// placeWithAll places a process in the container that contains all processes. The task's name
// replaces the executable.
func (id *Identifier) placeWithAll(e *entry, p *proc.Process) {
	if p.Comm != e.reads.comm {
		e.reads.comm, e.changed = p.Comm, true
		e.program = id.programOf(programKey{name: p.Comm.String()})
	}
	e.placed = id.all
}

// place sets the placement of a process, except for its virtual machine, which Resolve sets.
func (id *Identifier) place(e *entry, in *cgroupText) {
	p := in.Placement
	p.VM = identity.VM{}
	if id.wanted.JobUser && p.Job.ID != "" && e.user.uid != 0 {
		p.Job.User = e.user.name
	}
	if e.holder == nil || e.holder.cgroup != in.Cgroup {
		id.holders.release(e.holder)
		e.holder = id.hold(&p)
	}
	if e.holder != nil {
		p.Container.ID, p.Names = e.holder.id, e.holder.names
	} else {
		p.Names = id.namesOf(&p)
	}
	e.in, e.placed = in, in.place(&p)
	id.namespace.outside = id.namespace.outside || e.isOutside()
}

// isEmpty reports whether the slot has no process.
func (e *entry) isEmpty() bool { return e.program == nil }

// compare records the differences from an earlier state of the entry.
func (e *entry) compare(before *entry) {
	e.moved = e.moved || e.in.own != before.in.own
	e.changed = e.changed || e.program.name != before.program.name || e.program.path != before.program.path ||
		e.user.name != before.user.name || e.line.text != before.line.text || e.placed != before.placed && *e.placed != *before.placed
}

// HasNews reports whether Identity or Moved would report a change.
func (id *Identifier) HasNews(slot int32) bool {
	e := &id.known[slot]
	return e.changed || e.moved
}

// Identity returns the identity of the process in a slot. It is valid until the next call. changed
// reports whether the identity, except for its ProcessCgroup, differs from the result of the last
// call for the slot.
func (id *Identifier) Identity(slot int32) (found *Identity, changed bool) {
	e := &id.known[slot]
	changed, e.changed = e.changed, false
	id.identity = Identity{
		Executable: e.program.name, Path: e.program.path, CommandLine: e.line.text, ProcessCgroup: e.in.own, Placement: *e.placed,
	}
	if id.wanted.Parent {
		id.identity.Parent = e.parent
	}
	if id.wanted.Owner {
		id.identity.Owner = e.user.name
	}
	if e.guest != nil {
		id.identity.VM = e.guest.vm
	}
	return &id.identity, changed
}

// ProcessCgroup returns the ProcessCgroup of the process in a slot, or "" if it is not available.
func (id *Identifier) ProcessCgroup(slot int32) string {
	if e := &id.known[slot]; !e.isEmpty() {
		return e.in.own
	}
	return ""
}

// Moved reports whether the ProcessCgroup of the process in a slot differs from the ProcessCgroup at
// the last call for the slot.
func (id *Identifier) Moved(slot int32) (moved bool) {
	e := &id.known[slot]
	moved, e.moved = e.moved, false
	return moved
}
