// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"errors"
	"path/filepath"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// reader reads files of processes and of KFD. A Guard runs its reads, because a process can block
// them by the locks of its directories and of its open files (dev/kernel-reads.md).
type reader struct {
	guard   *kernfs.Guard[*files]
	cached  *kernfs.Dir            // reads sizes of descriptor lists whose names the kernel has cached
	numbers bool                   // the kernel shows the number of descriptors of a process
	entries func(size int64) int64 // the entries of a directory on another file system than procfs, for tests
}

func newReader(o Options) reader {
	return reader{
		guard: kernfs.NewGuard(kernfs.GuardOptions[*files]{
			Root: o.Root, Waits: o.Waits, New: func() *files { return newFiles(o.Root) },
		}),
		cached: kernfs.NewCached(filepath.Join(o.Root, "proc")),
	}
}

func (r *reader) close() error { return errors.Join(r.guard.Close(), r.cached.Close()) }

// files returns the parameters and results of reads. After kernfs.ErrUnread, it returns new ones.
func (r *reader) files() *files { return r.guard.Job() }

// The subjects of reads that concern more than one process.
var (
	manyClients  = kernfs.Subject{ID: 1}
	kfdProcesses = kernfs.Subject{ID: 2}
)

// run runs a read whose parameters are set, except pid, and returns its error.
func (r *reader) run(of kernfs.Subject, read func(*files)) error {
	f := r.files()
	f.pid = of.PID
	if err := r.guard.Do(of, read); err != nil {
		return err
	}
	return f.err
}

// count returns the number of descriptors of a process: the size of their directory since Linux 6.2
// (fs/proc/fd.c, proc_fd_getattr), which every user may read. Before, it returns 0.
func (r *reader) count(of kernfs.Subject) (n int64, err error) {
	err = kernfs.ErrNotCached
	if r.cached.NeverWaits() {
		n, err = r.cached.SizeOf(of.PID, "fd")
	}
	if errors.Is(err, kernfs.ErrNotCached) {
		if err = r.run(of, (*files).readSize); err == nil {
			n = r.files().found.size
		}
	}
	if err != nil {
		return 0, err
	}
	if r.entries != nil {
		n = r.entries(n)
	}
	r.numbers = r.numbers || n > 0
	return n, nil
}

// list returns the descriptors of a process, from a descriptor on, that may belong to a GPU. They
// are valid until the next list.
func (r *reader) list(of kernfs.Subject, from int32) (listed, error) {
	r.files().fd = from
	err := r.run(of, (*files).list)
	if errors.Is(err, kernfs.ErrUnread) {
		return listed{}, err
	}
	return r.files().found, err
}

// text returns the text of a descriptor of a process, and the name of its device node. If the node
// is one of asleep, the error is errAsleep. The results are valid until the next read.
func (r *reader) text(of kernfs.Subject, fd int32, asleep []string) (text, node []byte, err error) {
	f := r.files()
	f.fd, f.asleep = fd, append(f.asleep[:0], asleep...)
	if err := r.run(of, (*files).readText); err != nil {
		return nil, nil, err
	}
	return f.text, f.node, nil
}
