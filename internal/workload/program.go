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

// execution is whether a process has executed a program since it was looked at.
type execution int8

const (
	unlikely execution = iota
	possible           // it has another name, and the source does not count executions
	certain
)

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
