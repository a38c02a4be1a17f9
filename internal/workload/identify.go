// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"path/filepath"
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

// Wanted selects what of an Identity is found that not everybody needs. The rest stays empty.
type Wanted struct {
	CommandLine, ProcessCgroup, Unit bool
}

// maxFile bounds how much of a cgroup file, or of a hypervisor's command line, is read. The kernel does not bound the
// latter.
const maxFile = 64 << 10

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

// compare notes what is not as it was before.
func (e *entry) compare(before *Identity) {
	e.moved = e.moved || e.identity.ProcessCgroup != before.ProcessCgroup
	before.ProcessCgroup = e.identity.ProcessCgroup
	e.changed = e.changed || e.identity != *before
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
