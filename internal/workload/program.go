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

// execution is how likely a process has executed a program since it was last looked at.
type execution int8

const (
	unlikely execution = iota
	possible           // the process has another name, and the source does not count executions
	certain
)

// readProgram updates the name and the path of the program and, if they matter, its arguments.
func (id *Identifier) readProgram(p *proc.Process, e *entry, fresh bool, now time.Duration) {
	counted := p.Cgroups != 0 && e.cgroups != 0
	switch {
	case fresh, counted && p.Execs != e.execs:
		e.executed = certain
	case !counted && p.Comm != e.comm:
		e.executed = max(e.executed, possible)
	}
	target, err := id.readFound(p, e, (*files).readExecutable)
	readable, forbidden := err == nil, errors.Is(err, fs.ErrPermission)
	switch {
	case readable && string(target) != e.program.exe:
		e.executed, e.program = certain, id.programOf(programKey{exe: string(target)})
	case readable:
	case fresh, e.executed == certain && forbidden, p.Execs != e.execs && e.program.exe == "":
		id.becomeUnknown(e, p)
	}
	e.settled = readable || forbidden
	if e.executed != unlikely {
		id.readArguments(p, e, readable, now)
	}
}

// becomeUnknown records that only the task's name is known of the program.
func (id *Identifier) becomeUnknown(e *entry, p *proc.Process) {
	e.program = id.programOf(programKey{name: p.Comm.String()})
}

// programKey is by what a program is known: the target of the link exe, or a task's name.
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
			clear(id.programs) // they outgrew the processes: most of them ended
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

// argsSeed is the seed of the hashes of command lines.
var argsSeed = maphash.MakeSeed()

// readArguments reads the command line if it matters: if it is wanted, if the program may be a
// hypervisor, or if the executable cannot be read. In the last case a command line that changed
// together with the task's name means that another program was executed. Everybody may read a
// command line.
//
// A process chooses how long its command line is and how often it renames itself. So only the begin
// is read unless the program is a hypervisor, and a hypervisor that renames itself is read again
// after lookSoon.
func (id *Identifier) readArguments(p *proc.Process, e *entry, readable bool, now time.Duration) {
	if readable && !id.wanted.CommandLine && hypervisorOf(strings.TrimSuffix(e.program.exe, deletedSuffix)) == nil {
		e.executed, e.line = unlikely, nil
		e.isNoHypervisor()
		return
	}
	if g := e.guest; g != nil && g.fromArgs.ID != "" && e.executed == possible && now > g.argued && now-g.argued < lookSoon {
		return
	}
	if e.guest != nil {
		e.guest.argued = now
	}
	line, err := id.read(p, (*files).readArguments)
	if err != nil || len(line) == 0 {
		e.settled = false // the process may be executing a program at this moment
		if !readable {
			e.executed = possible
		}
		return
	}
	hash := maphash.Bytes(argsSeed, line)
	if e.executed == possible {
		if e.line != nil && hash == e.line.hash { // it has renamed itself
			e.executed = unlikely
			return
		}
		if !readable {
			id.becomeUnknown(e, p)
		}
	}
	if e.settled || p.Cgroups == 0 {
		e.executed = unlikely
	}
	e.readLine(line, hash, id.wanted.CommandLine)
	e.isNoHypervisor()
	id.readGuest(p, e, line, now)
}

// readLine records what was read of the command line.
func (e *entry) readLine(line []byte, hash uint64, wanted bool) {
	if e.line != nil && e.line.hash == hash {
		return
	}
	e.line = &commandLine{hash: hash} // the one before is yet to be compared with
	if wanted {
		e.line.text = joinArguments(line)
	}
}

// isNoHypervisor records that the arguments are not those of a virtual machine.
func (e *entry) isNoHypervisor() {
	if e.guest != nil {
		e.guest.fromArgs = identity.VM{}
	}
}

// readGuest reads the virtual machine of a hypervisor from the begin of its command line and, if
// that is long, from more of it.
func (id *Identifier) readGuest(p *proc.Process, e *entry, line []byte, now time.Duration) {
	comm := p.Comm.String()
	if _, ok := ParseVM(line, comm, e.program.exe, ""); !ok {
		return
	}
	if len(line) > maxText {
		var err error
		if line, err = id.read(p, (*files).readAllArguments); err != nil {
			e.executed, e.settled = certain, false
			return
		}
	}
	g := e.asGuest(p)
	g.argued = now
	g.unique = boundID(fmt.Sprintf("%s-%d-%d", e.program.name, p.PID, p.Start.Milliseconds()))
	g.fromArgs, _ = ParseVM(line, comm, e.program.exe, g.unique)
}

// joinArguments returns the arguments of a command line, joined by spaces. The line may be cut.
func joinArguments(line []byte) string {
	return bound(string(bytes.ReplaceAll(bytes.TrimRight(line, "\x00"), []byte{0}, []byte{' '})), maxText)
}
