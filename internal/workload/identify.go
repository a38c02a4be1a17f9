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

// Identity is the description of a process and of the workload that it belongs to.
//
// Two Identities that compare equal have the same series. Names and IDs have at most 256 bytes, the
// path and the command line at most 4 KiB; longer ones end in an ellipsis.
type Identity struct {
	// Executable is the base name of the executable, or the task's name if the executable cannot be
	// read.
	Executable string
	// Path is the executable's path, empty if it cannot be read.
	Path string
	// CommandLine is the arguments, joined by spaces; empty unless wanted.
	CommandLine string
	// Owner is the name of the real user, or the user ID if the user has no name. It is empty if it
	// is unknown or not requested.
	Owner string
	// Parent is the PID of the parent when the process was first identified. It is 0 unless
	// requested.
	Parent int32
	// ProcessCgroup is the path of the process's own cgroup; empty unless wanted.
	ProcessCgroup string
	Placement
}

// Wanted selects what of an Identity is found that not everybody needs. The rest stays empty.
type Wanted struct {
	CommandLine, ProcessCgroup, Unit, Parent bool

	Names *Names // nil: no names of containers and pods
	Users *Users // nil: no users
	// Everything, if set, is the ID of the container that all processes are in, short-lived ones
	// included. Nothing else is found then, and no file is read.
	Everything string
	// CgroupPath, if set, returns the path of a version 2 cgroup by its ID, or an empty string if
	// the path is unknown.
	CgroupPath func(cgroup uint64) string
	// Waits bounds the waits for files that processes block. nil: the Identifier has its own.
	Waits *kernfs.Waits
}

// Identifier finds the identities of processes, which it remembers by their slots: a process that
// has not changed costs two reads and no allocation, or no read if the CPU time source counts
// executions and moves.
//
// For each scan, call Begin, Forget for each process that ended, Identify for each that is new or
// ran, and Resolve. Identity then returns the result. An Identifier is not safe for concurrent use.
// Close releases its descriptors.
type Identifier struct {
	files     *kernfs.Guard[*files]
	wanted    Wanted
	known     []entry
	cgroups   map[string]*cgroupText // by their text: processes share few
	programs  map[programKey]*program
	all       *Placement // of all processes, where Everything is set
	identity  Identity   // scratch of Identity
	holders   holders
	namespace namespace
	mayDefer  bool // see MayDefer
	outside   bool // a cgroup has no path below the host's mount point
	missed    bool // readFound was blocked
	version1  bool // cgroup files show hierarchies of version 1

	hostNetwork uint64 // as readNetwork returns it, 0 if it was not read

	vms       VMs
	machines  []int32 // slots of the processes of virtual machines
	unsettled bool    // these changed since they were resolved
	processes []VMProcess
}

// entry is the process in a slot. What several processes may have in common they share. The zero
// entry is none.
type entry struct {
	program *program     // what it executes
	in      *cgroupText  // nil if its cgroup file was not read
	placed  *Placement   // except for its virtual machine
	line    *commandLine // nil if it was not read
	guest   *guestMember // nil unless it is of a virtual machine, or was
	holder  *holder      // of the container's ID
	// seen is when the process was last examined; execs, cgroups, group and comm are the values of
	// the scan at that time.
	seen     time.Duration
	execs    uint64
	cgroups  uint64
	group    uint64
	comm     proc.Comm
	user     *user     // the real user, nil if it is not known
	parent   int32     // when it was first identified
	asked    int32     // when the user was last read, in seconds, if the source does not provide it
	changed  bool      // since the last call of Identity
	moved    bool      // since the last call of Moved
	deferred bool      // Identify did not look at the process
	settled  bool      // all files were read, or may not be read
	stray    bool      // the cgroup file cannot be read and the path of group is unknown, so in is outdated or nil
	found    bool      // the names of the files that readFound reads were looked up
	attempts uint8     // failures to read them in a row, at most maxAttempts
	executed execution // since the command line was last read
}

// program describes the executable of processes.
type program struct {
	name string // base name of the executable, or a task's name if the executable cannot be read
	path string // of the executable
	exe  string // target of the link exe
}

// commandLine holds a command line as it was read.
type commandLine struct {
	text string // the arguments, joined by spaces, empty unless wanted
	hash uint64 // of the begin
}

// guestMember is a process of a virtual machine.
type guestMember struct {
	pid      int32
	start    time.Duration
	vm       identity.VM   // what Resolve found
	fromArgs identity.VM   // of its command line
	unique   string        // ID of a virtual machine without a better one
	argued   time.Duration // when the command line was last read
	listed   bool          // in machines
}

// What an entry refers to of which nothing could be read.
var (
	noProgram = &program{}
	nowhere   = &Placement{}
)

// NewIdentifier returns an Identifier for the processes of the host whose root directory is at
// root. It reads nothing yet.
func NewIdentifier(root string, wanted Wanted) *Identifier {
	return &Identifier{
		files:     guardFiles(kernfs.GuardOptions[*files]{Root: root, Waits: wanted.Waits}),
		wanted:    wanted,
		cgroups:   map[string]*cgroupText{},
		programs:  map[programKey]*program{},
		holders:   holders{},
		namespace: namespace{find: func() (string, error) { return cgroup.NamespaceRoot(root) }},
	}
}

// Begin begins a scan at now, before the processes of the scan are identified. It looks again for
// names that are pending.
func (id *Identifier) Begin(now time.Time) {
	id.files.Begin(now)
	id.wanted.Users.begin(now)
	id.wanted.Names.begin(now, func(container string) bool { return id.holders[container] != nil })
}

// Close closes the descriptors that the Identifier holds.
func (id *Identifier) Close() error { return id.files.Close() }

// Unread returns an error if files of some processes are not read because processes block reads, or reads are slow.
func (id *Identifier) Unread() error { return id.files.Err("names and command lines") }

// Shrink moves the process in slots[i] to slot i, and frees the memory that was needed for more
// processes.
func (id *Identifier) Shrink(slots []int32) {
	known := make([]entry, len(slots))
	id.machines = nil
	for slot, before := range slots {
		if int(before) < len(id.known) {
			known[slot] = id.known[before]
		}
		if known[slot].isListed() {
			id.machines = append(id.machines, int32(slot))
		}
	}
	id.known, id.cgroups, id.programs, id.processes = known, map[string]*cgroupText{}, map[programKey]*program{}, nil
	for i := range known {
		if e := &known[i]; e.program != nil {
			id.programs[e.program.key()] = e.program
		}
		if in := known[i].in; in != nil {
			id.cgroups[in.text] = in
		}
	}
	id.unsettled = true
}

// Grow makes room for the processes in the first slots.
func (id *Identifier) Grow(slots int) {
	if n := len(id.known); n < slots {
		id.known = slices.Grow(id.known, slots-n)[:slots]
	}
}

// Forget removes a process that has ended.
func (id *Identifier) Forget(slot int32) {
	if int(slot) < len(id.known) {
		id.unsettled = id.unsettled || id.known[slot].isListed()
		id.holders.release(id.known[slot].holder)
		id.known[slot] = entry{}
	}
}

// If the source counts executions and moves, a process that shows neither is looked at again all
// the same: its executable may be renamed, or its cgroup (v1).
const (
	// lookAgain is the longest time until then.
	lookAgain = time.Hour
	// lookSoon is the shortest time for a process that has another name, or that could not be read
	// maxAttempts times.
	lookSoon    = time.Minute
	maxAttempts = 3
)

// isSame reports whether the process need not be looked at: the scan shows that it has not changed,
// or it was looked at a moment ago. A process may rename itself as often as it likes, which must
// cost nothing.
func (e *entry) isSame(p *proc.Process, now time.Duration) bool {
	switch {
	case p.Cgroups == 0 || p.Cgroups != e.cgroups || p.Cgroup != e.group || p.Execs != e.execs || now < e.seen:
		return false
	case p.Is(proc.HasUID) && e.user != nil && p.UID != e.user.uid:
		return false
	case !e.settled && e.attempts < maxAttempts:
		return false
	case !e.settled, p.Comm != e.comm:
		return now-e.seen < lookSoon
	}
	return now < nextLook(p.Slot, e.seen)
}

// nextLook returns when the process in a slot is due, at most lookAgain after seen. It differs
// between slots: processes that were first seen together are not looked at again together.
func nextLook(slot int32, seen time.Duration) time.Duration {
	phase := lookAgain * time.Duration(uint32(slot)*2654435761>>16) >> 16
	return seen + lookAgain - (seen+lookAgain-phase)%lookAgain
}

// MayDefer allows Identify not to look at processes that were identified before, while it is set: a
// process older than settledAge rarely executes another program or moves. IsDeferred then reports
// true until Identify looks at the process. It has no effect on sources that count executions and
// moves.
func (id *Identifier) MayDefer(may bool) { id.mayDefer = may }

// IsDeferred reports whether Identify has not looked at the process in a slot.
func (id *Identifier) IsDeferred(slot int32) bool { return id.known[slot].deferred }

// settledAge is the age from which on Identify may defer a process.
const settledAge = 5 * time.Second

// canWait reports whether Identify may defer a process.
func (e *entry) canWait(p *proc.Process, now time.Duration) bool {
	return p.Cgroups == 0 && e.settled && p.Comm == e.comm && e.seen-p.Start >= settledAge && now >= e.seen
}

// Identify updates the identity of a process from a scan that began at now, since boot. If a file
// cannot be read, for example because another user blocks reads of it, the identity keeps the
// previous content of the file. If the file was never read, the data of the scan replace it: the
// task's name and, if the scan provides it, the cgroup. If the process then moves, the scan also
// provides its new cgroup, as soon as the path of the cgroup is known. The identity is completed
// when the files become readable. The process then keeps its container, unless containers are
// nested in version 1 only, and its program if the names are equal.
func (id *Identifier) Identify(p *proc.Process, now time.Duration) {
	id.Grow(int(p.Slot) + 1)
	e := &id.known[p.Slot]
	fresh := e.program == nil
	if fresh {
		e.program, e.placed, e.changed, e.parent = noProgram, nowhere, true, p.Parent
	}
	if id.wanted.Everything != "" {
		id.placeWithAll(e, p)
		return
	}
	if p.Is(proc.Kernel) && (fresh || p.Comm != e.comm) {
		if name := kernelThreadName(p.Comm.String()); name != e.program.name {
			e.program, e.changed = id.programOf(programKey{name: name}), true
		}
		e.comm = p.Comm
	}
	if id.mayDefer && e.canWait(p, now) {
		e.deferred = true
		return
	}
	same := e.isSame(p, now)
	if same && !e.stray {
		return
	}
	before, argsBefore := *e, e.fromArgs()
	var in *cgroupText
	if same {
		in = id.cgroupOf(p, e) // its path may be known meanwhile
	} else {
		in = id.look(p, e, &before, fresh, now)
	}
	if in != nil {
		id.place(e, in)
	}
	e.compare(&before)
	if e.fromArgs() != argsBefore || in != nil && (in.VM != identity.VM{} || e.isListed()) {
		id.noteMachine(e, p)
	}
}

// look reads the files of a process. It returns the process's cgroup, or nil if the cgroup is
// unknown or the same as before.
func (id *Identifier) look(p *proc.Process, e, before *entry, fresh bool, now time.Duration) *cgroupText {
	e.settled, id.missed = true, false
	if !p.Is(proc.Kernel) {
		id.readProgram(p, e, fresh, now)
	}
	id.findUser(p, e, before, fresh, now)
	var in *cgroupText
	var err error
	if !p.Is(proc.Zombie) || fresh { // version 1 shows a process whose first thread has ended in the root, wherever the others run
		if in, err = id.readCgroup(p, e); err != nil {
			in = id.cgroupOf(p, e)
		}
	}
	e.found = e.found || !id.missed
	e.note(p, now, err)
	return in
}

// placeWithAll places a process in the container that all processes are in. Its executable is known
// by the task's name.
func (id *Identifier) placeWithAll(e *entry, p *proc.Process) {
	if p.Comm != e.comm {
		e.comm, e.changed = p.Comm, true
		e.program = id.programOf(programKey{name: p.Comm.String()})
	}
	if id.all == nil {
		all := id.PlaceShortLived("")
		id.all = &all
	}
	e.placed = id.all
}

// note records that the process was looked at. err is why its cgroup could not be read.
func (e *entry) note(p *proc.Process, now time.Duration, err error) {
	if e.settled = e.settled && err == nil; e.settled || p.Cgroups != e.cgroups || p.Execs != e.execs {
		e.attempts = 0
	}
	if !e.settled {
		e.attempts = min(e.attempts+1, maxAttempts)
	}
	// The scan showed these before the files were read: a change in between shows in the next scan.
	e.seen, e.comm, e.deferred = now, p.Comm, false
	e.execs, e.cgroups, e.group = p.Execs, p.Cgroups, p.Cgroup
}

// noteMachine lists a process of a virtual machine, whose machine may have changed.
func (id *Identifier) noteMachine(e *entry, p *proc.Process) {
	id.unsettled = true
	g := e.asGuest(p)
	if !g.listed {
		g.listed = true
		id.machines = append(id.machines, p.Slot)
	}
}

// asGuest returns what is kept of a process because it is of a virtual machine.
func (e *entry) asGuest(p *proc.Process) *guestMember {
	if e.guest == nil {
		e.guest = &guestMember{pid: p.PID, start: p.Start}
	}
	return e.guest
}

func (e *entry) isListed() bool { return e.guest != nil && e.guest.listed }

func (e *entry) fromArgs() identity.VM {
	if e.guest == nil {
		return identity.VM{}
	}
	return e.guest.fromArgs
}

func (e *entry) vm() identity.VM {
	if e.guest == nil {
		return identity.VM{}
	}
	return e.guest.vm
}

func (e *entry) commandLine() string {
	if e.line == nil {
		return ""
	}
	return e.line.text
}

// own returns the path of the process's own cgroup.
func (e *entry) own() string {
	if e.in == nil {
		return ""
	}
	return e.in.own
}

// place sets the placement of a process, except for its virtual machine, which Resolve sets.
func (id *Identifier) place(e *entry, in *cgroupText) {
	p := in.Placement
	p.VM = identity.VM{}
	if e.holder == nil || e.holder.cgroup != in.Cgroup {
		id.holders.release(e.holder)
		e.holder = id.holders.hold(&p)
	} else {
		p.Container.ID = e.holder.id
	}
	p.Names = e.holder.nameBy(id.wanted.Names, &p)
	e.in, e.placed = in, in.place(&p)
	id.outside = id.outside || e.isOutside()
}

// compare records what is not as it was before.
func (e *entry) compare(before *entry) {
	e.moved = e.moved || e.own() != before.own()
	e.changed = e.changed || e.program != before.program && (e.program.name != before.program.name || e.program.path != before.program.path) ||
		e.user.String() != before.user.String() || e.placed != before.placed && *e.placed != *before.placed || e.commandLine() != before.commandLine()
}

// HasNews reports whether Identity or Moved would report a change.
func (id *Identifier) HasNews(slot int32) bool {
	e := &id.known[slot]
	return e.changed || e.moved
}

// Identity returns the identity of the process in a slot. It is valid until the next call. changed
// reports whether it is another one than at the last call for the slot, except for its
// ProcessCgroup.
func (id *Identifier) Identity(slot int32) (found *Identity, changed bool) {
	e := &id.known[slot]
	changed, e.changed = e.changed, false
	id.identity = Identity{
		Executable: e.program.name, Path: e.program.path, CommandLine: e.commandLine(), ProcessCgroup: e.own(), Placement: *e.placed, Owner: e.user.String(),
	}
	if id.wanted.Parent {
		id.identity.Parent = e.parent
	}
	id.identity.VM = e.vm()
	return &id.identity, changed
}

// UserName returns the name of a user, or the user ID if the user has no name. It returns an empty
// string if users are not requested.
func (id *Identifier) UserName(uid uint32) string { return id.wanted.Users.of(uid).String() }

// findUser updates the real user of a process. If the source does not provide the user, it is read
// when the process may have executed a program, and some time after the previous read: only a
// privileged process changes its user without executing a program.
func (id *Identifier) findUser(p *proc.Process, e, before *entry, fresh bool, now time.Duration) {
	if id.wanted.Users == nil {
		return
	}
	uid := p.UID
	if !p.Is(proc.HasUID) {
		seconds := int32(now / time.Second)
		if !fresh && e.program == before.program && seconds >= e.asked && seconds-e.asked < int32(lookSoon/time.Second) {
			return
		}
		status, err := id.readFound(p, e, (*files).readStatus)
		var ok bool
		if uid, ok = parseUID(status); err != nil || !ok {
			return
		}
		e.asked = seconds
	}
	e.user = id.wanted.Users.of(uid)
}

// ProcessCgroup returns the ProcessCgroup of the process in a slot, empty if it is not known.
func (id *Identifier) ProcessCgroup(slot int32) string { return id.known[slot].own() }

// Moved reports whether the ProcessCgroup of the process in a slot is another one than at the last
// call for the slot.
func (id *Identifier) Moved(slot int32) (moved bool) {
	e := &id.known[slot]
	moved, e.moved = e.moved, false
	return moved
}
