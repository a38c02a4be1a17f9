// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"iter"
	"path/filepath"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// maxFile is the maximum number of bytes read of a cgroup file or of a hypervisor's command line,
// whose sizes the kernel does not limit.
const maxFile = 64 << 10

// files reads one file of a process at a time.
type files struct {
	cached   *kernfs.Dir // never waits for the lock of a directory
	killable *kernfs.Dir // may wait for it, in the Guard's goroutine
	proc     *kernfs.Dir // cached or killable
	buf      []byte
	pid      int32

	// Results of a read.
	got   []byte
	inode uint64
	err   error
}

// guardFiles returns a Guard of files.
func guardFiles(options kernfs.GuardOptions[*files]) *kernfs.Guard[*files] {
	options.New = func() *files {
		proc := filepath.Join(options.Root, "proc")
		return &files{
			cached: kernfs.NewCached(proc), killable: kernfs.NewKillable(proc, "exe", "cgroup"), buf: make([]byte, 2*maxText),
		}
	}
	return kernfs.NewGuard(options)
}

// Close implements kernfs.Job.
func (f *files) Close() error { return errors.Join(f.cached.Close(), f.killable.Close()) }

// readArguments reads the first bytes of the command line, and readAllArguments up to maxFile bytes.
func (f *files) readExecutable()   { f.got, f.err = f.proc.LinkOf(f.pid, "exe", f.buf) }
func (f *files) readArguments()    { f.got, f.err = f.proc.ReadOf(f.pid, "cmdline", f.buf[:maxText+1]) }
func (f *files) readAllArguments() { f.readWhole("cmdline") }
func (f *files) readCgroup()       { f.readWhole("cgroup") }
func (f *files) readStatus()       { f.got, f.err = f.proc.ReadOf(f.pid, "status", f.buf) }

func (f *files) readNetwork() {
	if f.inode, f.err = f.proc.InodeOf(f.pid, "net/dev"); f.err == nil {
		f.readWhole("net/dev")
	}
}

// readWhole reads a file, up to maxFile.
func (f *files) readWhole(name string) {
	for {
		f.got, f.err = f.proc.ReadOf(f.pid, name, f.buf)
		if f.err != nil || len(f.got) < len(f.buf) || len(f.buf) >= maxFile {
			return
		}
		f.buf = make([]byte, min(4*len(f.buf), maxFile))
	}
}

// lookUp makes the kernel cache the names of the files of processes.
func (f *files) lookUp(pids []int32) {
	for _, pid := range pids {
		f.killable.LookUpOf(pid, "exe")
	}
}

// LookUp looks up the names of the files of new processes that Identify will read. If a user blocks
// the lookups, Identify looks up the names one by one, and LookUp has no effect for a minute.
func (id *Identifier) LookUp(processes iter.Seq[*proc.Process]) {
	if id.all != nil || !id.files.Job().cached.NeverWaits() {
		return
	}
	id.files.DoForAll(func(yield func(int32) bool) {
		for p := range processes {
			isNew := int(p.Slot) >= len(id.known) || id.known[p.Slot].isEmpty()
			if !isNew || p.Is(proc.Kernel) || p.Cgroups == 0 { // without a cgroup ID, the source has read procfs, which has cached the names
				continue
			}
			if !yield(p.PID) {
				return
			}
		}
	}, (*files).lookUp)
}

// read reads a file of a process. The process may block the read. The result is valid until the
// next read.
func (id *Identifier) read(p *proc.Process, read func(*files)) ([]byte, error) {
	f := id.files.Job()
	f.pid, f.proc = p.PID, f.killable
	of := kernfs.Subject{PID: p.PID, Start: p.Start, UID: p.UID, HasUID: p.Is(proc.HasUID)}
	if err := id.files.Do(of, read); err != nil {
		return nil, err
	}
	return f.got, f.err
}

// readFound is like read for a file that cannot be blocked after its name has been looked up
// (dev/kernel-reads.md).
func (id *Identifier) readFound(p *proc.Process, e *entry, read func(*files)) ([]byte, error) {
	f := id.files.Job()
	if e.reads.found || f.cached.NeverWaits() {
		f.pid, f.proc = p.PID, f.cached
		if read(f); !errors.Is(f.err, kernfs.ErrNotCached) {
			return f.got, f.err
		}
	}
	got, err := id.read(p, read)
	id.missed = id.missed || errors.Is(err, kernfs.ErrUnread)
	return got, err
}
