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

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// deletedSuffix is what the kernel appends to the path of a file that was removed (d_path).
const deletedSuffix = " (deleted)"

// execution is how likely a process has executed a program since it was last looked at.
type execution int8

const (
	unlikely execution = iota
	possible           // the process has another name, and the source does not count executions
	certain
)

// readProgram updates the name and the path of the program and, if they matter, its arguments.
func (id *Identifier) readProgram(p *cpu.Process, e *entry, fresh bool, now time.Duration) {
	counted := p.Cgroups != 0 && e.cgroups != 0
	switch {
	case fresh, counted && p.Execs != e.execs:
		e.executed = certain
	case !counted && p.Comm != e.comm:
		e.executed = max(e.executed, possible)
	}
	target, err := id.proc.LinkOf(p.PID, "exe", id.buf)
	readable, forbidden := err == nil, errors.Is(err, fs.ErrPermission)
	switch {
	case readable && string(target) != e.exe:
		e.executed, e.exe = certain, string(target)
		program := strings.TrimSuffix(e.exe, deletedSuffix)
		e.identity.Path, e.identity.Executable = bound(program, maxText), bound(path.Base(program), maxName)
	case readable:
	case fresh, e.executed == certain && forbidden:
		e.becomeUnknown(p)
	}
	e.settled = readable || forbidden
	if e.executed != unlikely {
		id.readArguments(p, e, readable, now)
	}
}

// becomeUnknown records that only the task's name is known of the program.
func (e *entry) becomeUnknown(p *cpu.Process) {
	e.exe, e.identity.Path, e.identity.Executable = "", "", p.Comm.String()
}

// kernelThreadName returns the name of a kernel thread without the current work, which a worker appends to it. A rescuer is
// named after its queue (kernel/workqueue.c, wq_worker_comm and format_worker_id).
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

// readArguments reads the command line if it matters: if it is wanted, if the program may be a hypervisor, or if the
// executable cannot be read. In the last case a command line that changed together with the task's name means that another
// program was executed. Everybody may read a command line.
//
// A process chooses how long its command line is and how often it renames itself. So only the begin is read unless the
// program is a hypervisor, and a hypervisor that renames itself is read again after lookSoon.
func (id *Identifier) readArguments(p *cpu.Process, e *entry, readable bool, now time.Duration) {
	if readable && !id.wanted.CommandLine && hypervisorOf(strings.TrimSuffix(e.exe, deletedSuffix)) == nil {
		e.executed, e.args, e.fromArgs = unlikely, 0, units.VM{}
		return
	}
	if e.fromArgs.ID != "" && e.executed == possible && now > e.argued && now-e.argued < lookSoon {
		return
	}
	e.argued = now
	line, err := id.proc.ReadOf(p.PID, "cmdline", id.buf[:maxText+1])
	if err != nil || len(line) == 0 {
		e.settled = false // the process may be executing a program at this moment
		if !readable {
			e.executed = possible
		}
		return
	}
	args := maphash.Bytes(argsSeed, line)
	if e.executed == possible {
		if args == e.args { // it has renamed itself
			e.executed = unlikely
			return
		}
		if !readable {
			e.becomeUnknown(p)
		}
	}
	if e.settled || p.Cgroups == 0 {
		e.executed = unlikely
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
			e.executed, e.settled = certain, false
			return
		}
	}
	e.unique = boundID(fmt.Sprintf("%s-%d-%d", e.identity.Executable, p.PID, p.Start.Milliseconds()))
	e.fromArgs, _ = ParseVM(line, comm, e.exe, e.unique)
}

// joinArguments returns the arguments of a command line, joined by spaces. The line may be cut.
func joinArguments(line []byte) string {
	return bound(string(bytes.ReplaceAll(bytes.TrimRight(line, "\x00"), []byte{0}, []byte{' '})), maxText)
}
