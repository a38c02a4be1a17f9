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
	// ProcessCgroup is the path of the process's own cgroup; empty unless wanted.
	ProcessCgroup string
	Placement
}

// Wanted says what of an Identity is to be found that not everybody needs.
type Wanted struct {
	CommandLine, ProcessCgroup bool
}

const (
	// maxFile bounds how much of a cgroup file or command line is read: the kernel bounds neither.
	maxFile = 1 << 20
	// maxCommandLine bounds the attribute, not what is looked at for a virtual machine.
	maxCommandLine = 4096
	// deletedSuffix is what the kernel appends to the path of a file that was removed (d_path).
	deletedSuffix = " (deleted)"
)

// Identifier finds out what processes are and belong to. It remembers each by its slot, so that one which
// has not changed costs two reads and no allocation, or not even a read where the source of CPU times tells. A round is Forget for each process that ended, Identify
// for each that is new or ran, then Resolve, and then Identity tells.
type Identifier struct {
	proc   *procdir.Dir
	wanted Wanted
	buf    []byte
	known  []entry
	// placements holds what a cgroup file says, by its text: processes share few texts.
	placements map[string]*placement
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
	// seen is when all of it could be read, and execs and cgroups what the process had then.
	seen     time.Duration
	settled  bool
	execs    uint64
	cgroups  uint64
	cgroup   string
	exe      string
	comm     cputime.Comm
	start    time.Duration
	pid      int32
	renamed  bool   // and nothing has told yet whether by executing a program
	args     uint64 // hash of the command line, 0 where none was read
	unique   string // of a virtual machine without a better id
	fromArgs VM
	machine  bool // listed in machines
}

// placement is all that a cgroup file says.
type placement struct {
	Placement
	own string // path of the process's own cgroup
}

// NewIdentifier returns an identifier for processes below root. It touches nothing.
func NewIdentifier(root string, wanted Wanted) *Identifier {
	return &Identifier{
		proc:       procdir.New(filepath.Join(root, "proc")),
		wanted:     wanted,
		buf:        make([]byte, 4096),
		placements: map[string]*placement{},
		namespace:  namespace{find: func() (string, error) { return cputime.NamespaceRoot(root) }},
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

// Forget says that the process in a slot has ended.
func (id *Identifier) Forget(slot int32) {
	if int(slot) < len(id.known) {
		id.unsettled = id.unsettled || id.known[slot].machine
		id.known[slot] = entry{}
	}
}

// lookAgain is how often a process that ran is looked at though it has neither executed a program nor moved: its
// executable may have been renamed.
const lookAgain = time.Second

// isSame says whether the source tells that the process is what it was when it was last looked at.
func (e *entry) isSame(p *cputime.Process, now time.Duration) bool {
	return p.Cgroups != 0 && e.settled && p.Cgroups == e.cgroups && p.Execs == e.execs && p.Comm == e.comm &&
		!e.renamed && now >= e.seen && now-e.seen < lookAgain
}

// Identify reads what a process is, in a pass that began at now since boot. What cannot be read stays as it was; a
// process of which nothing can be read is known by its task's name.
func (id *Identifier) Identify(p *cputime.Process, now time.Duration) {
	for len(id.known) <= int(p.Slot) {
		id.known = append(id.known, entry{})
	}
	e := &id.known[p.Slot]
	fresh := e.pid == 0
	if fresh {
		e.pid, e.start, e.changed = p.PID, p.Start, true
	}
	if e.isSame(p, now) {
		return
	}
	before, argsBefore := e.identity, e.fromArgs
	executed := id.readExecutable(p, e, fresh)
	if executed && !p.Kernel {
		id.readArguments(p, e)
	}
	in, read, err := id.readCgroup(p, e)
	// What the pass has told was so before the files were read: a change in between shows in the next one.
	e.settled, e.seen, e.execs, e.cgroups = e.settled && err == nil, now, p.Execs, p.Cgroups
	if read {
		id.place(e, in)
	}
	e.compare(&before)
	if e.fromArgs != argsBefore || (read && (in.VM != VM{} || e.machine)) {
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
		id.processes = append(id.processes, VMProcess{Unique: e.unique, FromCgroup: id.placementOf(e.cgroup).VM, FromArgs: e.fromArgs})
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

// readExecutable updates the process's name and path and says whether it may have executed a program since.
// Where the executable cannot be read, that is left to the arguments.
func (id *Identifier) readExecutable(p *cputime.Process, e *entry, fresh bool) (executed bool) {
	renamed := e.renamed || p.Comm != e.comm
	executed = fresh || renamed || p.Execs != e.execs
	e.comm, e.renamed, e.settled = p.Comm, false, true
	if p.Kernel {
		if executed {
			e.identity.Executable = kernelThreadName(p.Comm.String())
		}
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
	case fresh:
		e.identity.Executable = p.Comm.String()
	default:
		e.renamed = renamed
	}
	e.settled = errors.Is(err, fs.ErrPermission)
	return executed
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

// readArguments looks at the command line, which everybody may read. One that changed together with the
// task's name tells of an executed program where the executable itself cannot be read, as another user's.
func (id *Identifier) readArguments(p *cputime.Process, e *entry) {
	line, err := id.readFile(p.PID, "cmdline")
	if err != nil || len(line) == 0 {
		return // as in the midst of executing: looked at again if it was renamed
	}
	args := maphash.Bytes(argsSeed, line)
	if e.renamed && args != e.args {
		e.exe, e.identity.Path = "", ""
		e.identity.Executable = p.Comm.String()
	}
	e.args, e.renamed = args, false
	argv := SplitCommandLine(line)
	e.unique = fmt.Sprintf("%s-%d-%d", e.identity.Executable, p.PID, p.Start.Milliseconds())
	e.fromArgs, _ = ParseVM(argv, p.Comm.String(), e.exe, e.unique)
	if id.wanted.CommandLine {
		e.identity.CommandLine = joinArguments(argv)
	}
}

func joinArguments(argv [][]byte) string {
	s := strings.ToValidUTF8(string(bytes.Join(argv, []byte{' '})), "\uFFFD")
	if len(s) > maxCommandLine {
		s = s[:maxCommandLine]
		for !utf8.ValidString(s) {
			s = s[:len(s)-1]
		}
		s = strings.Clone(s) // lest it keep the rest of a long one
	}
	return s
}

// readCgroup returns what the process's cgroup file says, if that could be read and is something new.
func (id *Identifier) readCgroup(p *cputime.Process, e *entry) (in *placement, isNew bool, err error) {
	text, err := id.readFile(p.PID, "cgroup")
	if err != nil || len(text) == 0 || string(text) == e.cgroup {
		return nil, false, err
	}
	e.cgroup = string(text)
	return id.placementOf(e.cgroup), true, nil
}

// placementOf parses the text of a cgroup file, or knows it already.
func (id *Identifier) placementOf(text string) *placement {
	p := id.placements[text]
	if p == nil {
		if len(id.placements) > len(id.known) {
			clear(id.placements) // it outgrew the processes: most of it is of some that ended
		}
		absolute := id.namespace.absolute([]byte(text))
		p = &placement{Placement: ParseCgroup(absolute)}
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
		id.buf = make([]byte, 4*len(id.buf))
	}
}
