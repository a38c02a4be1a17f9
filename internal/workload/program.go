// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// deletedSuffix is the suffix that the kernel appends to the path of a removed file (d_path).
const deletedSuffix = " (deleted)"

// program is the executable of processes.
type program struct {
	name string // base name of the executable, or a task's name if the executable cannot be read
	path string // path of the executable
	exe  string // target of the link exe
}

// programKey identifies a program: the target of the link exe, or a task's name.
type programKey struct{ exe, name string }

func (p *program) key() programKey {
	if p.exe != "" {
		return programKey{exe: p.exe}
	}
	return programKey{name: p.name}
}

// programOf returns the program that all processes with the key share.
func (id *Identifier) programOf(key programKey) *program {
	p := id.programs[key]
	if p == nil {
		if len(id.programs) > len(id.known) {
			clear(id.programs) // most of their processes exited
		}
		p = &program{name: key.name}
		if key.exe != "" {
			file := strings.TrimSuffix(key.exe, deletedSuffix)
			p.name, p.path, p.exe = bound(path.Base(file), maxName), bound(file, maxText), key.exe
		}
		id.programs[key] = p
	}
	return p
}

// nameKernelThread updates the program of a kernel thread, whose name may change in each scan.
func (id *Identifier) nameKernelThread(e *entry, p *proc.Process) {
	if p.Comm == e.reads.comm && e.program != noProgram {
		return
	}
	if name := kernelThreadName(p.Comm.String()); name != e.program.name {
		e.program, e.changed = id.programOf(programKey{name: name}), true
	}
	e.reads.comm = p.Comm
}

// kernelThreadName returns the name of a kernel thread without the current work, which a worker
// appends to it. A rescuer is named after its queue (kernel/workqueue.c, wq_worker_comm and
// format_worker_id).
func kernelThreadName(comm string) string {
	if strings.HasPrefix(comm, "kworker/") && !strings.HasPrefix(comm, "kworker/R-") {
		if i := strings.IndexAny(comm, "-+"); i > 0 {
			return comm[:i]
		}
	}
	return comm
}

// readProgram updates the program and, if they are needed, its arguments.
func (id *Identifier) readProgram(p *proc.Process, e *entry, isNew bool, now time.Duration) {
	r := &e.reads
	r.noteExecution(p, isNew)
	target, err := id.readFound(p, e, (*files).readExecutable)
	readable, forbidden := err == nil, errors.Is(err, fs.ErrPermission)
	switch {
	case readable && string(target) != e.program.exe:
		r.executed, e.program = certain, id.programOf(programKey{exe: string(target)})
	case readable:
	case isNew, r.executed == certain && forbidden, p.Execs != r.execs && e.program.exe == "":
		id.setUnreadable(e, p)
	}
	r.settled = readable || forbidden
	if r.executed != unlikely {
		id.readArguments(p, e, readable, now)
	}
}

// setUnreadable sets the program if only the task's name is available.
func (id *Identifier) setUnreadable(e *entry, p *proc.Process) {
	e.program = id.programOf(programKey{name: p.Comm.String()})
}

// commandLine is a command line.
type commandLine struct {
	text string // the arguments, joined by spaces, empty unless wanted
	hash uint64 // of the first maxText+1 bytes
}

// argsSeed is the seed of the hashes of command lines.
var argsSeed = maphash.MakeSeed()

// readArguments reads the command line if it is needed: if it is wanted, if the program may be a
// hypervisor, or if the executable cannot be read. In the last case a command line that changed
// together with the task's name means that another program was executed. Every user may read a
// command line.
//
// A process chooses the length of its command line and the rate at which it renames itself.
// Therefore only the first maxText+1 bytes are read unless the program is a hypervisor, and a
// hypervisor that renames itself is read again only after lookSoon.
func (id *Identifier) readArguments(p *proc.Process, e *entry, readable bool, now time.Duration) {
	r := &e.reads
	if readable && !id.wanted.CommandLine && hypervisorOf(strings.TrimSuffix(e.program.exe, deletedSuffix)) == nil {
		r.executed, e.line = unlikely, noLine
		id.setVM(e, p, identity.VM{})
		return
	}
	if g := e.guest; g != nil && g.fromArgs.ID != "" && r.executed == possible && now > g.argsSeen && now-g.argsSeen < lookSoon {
		return
	}
	if e.guest != nil {
		e.guest.argsSeen = now
	}
	line, err := id.read(p, (*files).readArguments)
	if err != nil || len(line) == 0 {
		r.settled = false // the process may be executing a program at this moment
		if !readable {
			r.executed = possible
		}
		return
	}
	hash := maphash.Bytes(argsSeed, line)
	if r.executed == possible {
		if hash == e.line.hash { // the process has renamed itself
			r.executed = unlikely
			return
		}
		if !readable {
			id.setUnreadable(e, p)
		}
	}
	if r.settled || p.Cgroups == 0 {
		r.executed = unlikely
	}
	if hash != e.line.hash {
		e.line = &commandLine{hash: hash} // a new one, because compare reads the previous one
		if id.wanted.CommandLine {
			e.line.text = joinArguments(line)
		}
	}
	id.readGuest(p, e, line, now)
}

// readGuest reads the virtual machine of a hypervisor from the first bytes of its command line and,
// if the line is longer, from up to maxFile bytes.
func (id *Identifier) readGuest(p *proc.Process, e *entry, line []byte, now time.Duration) {
	comm := p.Comm.String()
	if _, ok := parseVM(line, comm, e.program.exe, ""); !ok {
		id.setVM(e, p, identity.VM{})
		return
	}
	if len(line) > maxText {
		var err error
		if line, err = id.read(p, (*files).readAllArguments); err != nil {
			e.reads.executed, e.reads.settled = certain, false
			id.setVM(e, p, identity.VM{})
			return
		}
	}
	unique := boundID(fmt.Sprintf("%s-%d-%d", e.program.name, p.PID, p.Start.Milliseconds()))
	vm, _ := parseVM(line, comm, e.program.exe, unique)
	id.setVM(e, p, vm)
	e.guest.unique, e.guest.argsSeen = unique, now
}

// setVM records the virtual machine in the arguments of a process, or the zero VM.
func (id *Identifier) setVM(e *entry, p *proc.Process, vm identity.VM) {
	if e.guest == nil && vm == (identity.VM{}) || e.guest != nil && e.guest.fromArgs == vm {
		return
	}
	id.guests.list(e, p)
	e.guest.fromArgs = vm
}

// joinArguments returns the arguments of a command line, joined by spaces. The line may be
// truncated.
func joinArguments(line []byte) string {
	return bound(string(bytes.ReplaceAll(bytes.TrimRight(line, "\x00"), []byte{0}, []byte{' '})), maxText)
}
