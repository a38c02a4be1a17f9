package workload

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/energyreceiver/energyreceiver/internal/cputime"
	"github.com/energyreceiver/energyreceiver/internal/procdir"
)

// Identity is what a process is and what it belongs to.
type Identity struct {
	// Executable is the base name of the executable, or the task's name where that cannot be read.
	Executable string
	// Path is the executable's path, empty where it cannot be read.
	Path string
	// CommandLine is the arguments, joined by spaces and cut to maxCommandLine bytes; empty unless wanted.
	CommandLine string
	Placement
}

const (
	// maxFile bounds how much of a cgroup file or command line is read: the kernel bounds neither.
	maxFile = 1 << 20
	// maxCommandLine bounds the attribute, not what is looked at for a virtual machine.
	maxCommandLine = 4096
	// deletedSuffix is what the kernel appends to the path of a file that was removed (d_path).
	deletedSuffix = " (deleted)"
)

// Identifier finds out what processes belong to. It remembers each by its slot, so that one which has not
// changed costs two reads and no allocation.
type Identifier struct {
	proc            *procdir.Dir
	wantCommandLine bool
	buf             []byte
	known           []entry
	// placements holds what a cgroup file says by its text: processes share few texts.
	placements map[string]*Placement
	vms        map[string]VM // by machine scope, what the hypervisor's arguments say
}

type entry struct {
	identity Identity
	cgroup   string // the text of the cgroup file
	exe      string // the target of the exe link
	comm     cputime.Comm
	vm       VM // from the arguments
}

// NewIdentifier returns an identifier for processes below root. It touches nothing.
func NewIdentifier(root string, wantCommandLine bool) *Identifier {
	return &Identifier{
		proc:            procdir.New(filepath.Join(root, "proc")),
		wantCommandLine: wantCommandLine,
		buf:             make([]byte, 4096),
		placements:      map[string]*Placement{},
		vms:             map[string]VM{},
	}
}

// Close closes what the identifier holds open.
func (id *Identifier) Close() error { return id.proc.Close() }

// Identify returns what a process is now, and whether that differs from what it was at the last call. What
// cannot be read stays as it was; a process of which nothing can be read is known by its task's name. The
// identity is valid until the next call.
func (id *Identifier) Identify(p *cputime.Process) (identity *Identity, changed bool) {
	for len(id.known) <= int(p.Slot) {
		id.known = append(id.known, entry{})
	}
	e := &id.known[p.Slot]
	if p.Born {
		*e = entry{}
	}
	before := e.identity
	executed := id.readExecutable(p, e)
	if executed && !p.Kernel {
		id.readArguments(p, e)
	}
	id.readCgroup(p, e)
	return &e.identity, p.Born || e.identity != before
}

// readExecutable updates the process's name and path and says whether it may have executed a program since.
func (id *Identifier) readExecutable(p *cputime.Process, e *entry) (executed bool) {
	executed = p.Born || p.Comm != e.comm
	e.comm = p.Comm
	if p.Kernel {
		e.identity.Executable = kernelThreadName(p.Comm.String())
		return executed
	}
	target, err := id.proc.LinkOf(p.PID, "exe", id.buf)
	switch {
	case err == nil && string(target) == e.exe:
		return executed
	case err == nil:
		e.exe = string(target)
		e.identity.Path = strings.ToValidUTF8(strings.TrimSuffix(e.exe, deletedSuffix), "\uFFFD")
		e.identity.Executable = path.Base(e.identity.Path)
		return true
	case p.Born:
		e.identity.Executable = p.Comm.String()
	}
	return executed
}

// kernelThreadName drops what a worker appends to its name for the work that it is at
// (kernel/workqueue.c, wq_worker_comm).
func kernelThreadName(comm string) string {
	if strings.HasPrefix(comm, "kworker/") {
		if i := strings.IndexAny(comm, "-+"); i > 0 {
			return comm[:i]
		}
	}
	return comm
}

func (id *Identifier) readArguments(p *cputime.Process, e *entry) {
	line, err := id.readFile(p.PID, "cmdline")
	if err != nil || len(line) == 0 {
		return
	}
	argv := SplitCommandLine(line)
	unique := fmt.Sprintf("%s-%d-%d", e.identity.Executable, p.PID, p.Start.Milliseconds())
	e.vm, _ = ParseVM(argv, p.Comm.String(), e.exe, unique)
	if id.wantCommandLine {
		e.identity.CommandLine = joinArguments(argv)
	}
	e.cgroup = "" // the placement holds the machine
}

func joinArguments(argv [][]byte) string {
	s := strings.ToValidUTF8(string(bytes.Join(argv, []byte{' '})), "\uFFFD")
	if len(s) > maxCommandLine {
		s = s[:maxCommandLine]
		for !utf8.ValidString(s) {
			s = s[:len(s)-1]
		}
	}
	return s
}

func (id *Identifier) readCgroup(p *cputime.Process, e *entry) {
	text, err := id.readFile(p.PID, "cgroup")
	if err != nil || (string(text) == e.cgroup && e.cgroup != "") {
		return
	}
	placement := id.placements[string(text)]
	if placement == nil {
		if len(id.placements) > len(id.known) {
			clear(id.placements) // it outgrew the processes: most of it is of some that ended
		}
		parsed := ParseCgroup(text)
		placement = &parsed
		id.placements[string(text)] = placement
	}
	e.cgroup = string(text)
	e.identity.Placement = *placement
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
		id.buf = make([]byte, 4*len(id.buf))
	}
}

var _ = errors.Is
var _ = fs.ErrNotExist
var _ = syscall.ESRCH
