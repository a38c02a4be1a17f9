// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/stall"
)

// reader reads files of processes and of KFD. A Guard runs its reads, because a process can block
// them by the locks of its directories and of its open files (dev/kernel-reads.md).
type reader struct {
	guard   *stall.Guard[*files]
	cached  *kernfs.Dir            // reads sizes of descriptor lists whose names the kernel has cached
	numbers bool                   // the kernel shows the number of descriptors of a process
	entries func(size int64) int64 // the entries of a directory on another file system than procfs, for tests
}

func newReader(root string) reader {
	return reader{guard: guardFiles(stall.Options[*files]{Root: root}), cached: kernfs.NewCached(filepath.Join(root, "proc"))}
}

// guardFiles returns a Guard of files.
func guardFiles(options stall.Options[*files]) *stall.Guard[*files] {
	options.New = func() *files { return newFiles(options.Root) }
	return stall.New(options)
}

func (r *reader) close() error { return errors.Join(r.guard.Close(), r.cached.Close()) }

// files returns the parameters and results of reads. After stall.ErrUnread, it returns new ones.
func (r *reader) files() *files { return r.guard.Job() }

// The owners of reads that concern more than one process.
const (
	manyClients int32 = -1 - iota
	kfdProcesses
)

// run runs a read whose parameters are set, except pid, and returns its error. pid and start identify
// the process, or pid is one of the owners above.
func (r *reader) run(pid int32, start time.Duration, read func(*files)) (err error) {
	f := r.files()
	if f.pid = pid; pid < 0 {
		err = r.guard.RunShared(uint64(-pid), read)
	} else {
		err = r.guard.Run(pid, start, read)
	}
	if err != nil {
		return err
	}
	return f.err
}

// count returns the number of descriptors of a process: the size of their directory since Linux 6.2
// (fs/proc/fd.c, proc_fd_getattr), which every user may read. Before, it returns 0.
func (r *reader) count(pid int32, start time.Duration) (n int64, err error) {
	err = kernfs.ErrNotCached
	if r.cached.NeverWaits() {
		n, err = r.cached.SizeOf(pid, "fd")
	}
	if errors.Is(err, kernfs.ErrNotCached) {
		if err = r.run(pid, start, (*files).readSize); err == nil {
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

// list returns the descriptors of a process, from a descriptor on, that may belong to a GPU. They are
// valid until the next list.
func (r *reader) list(pid int32, start time.Duration, from int32) (listed, error) {
	r.files().fd = from
	err := r.run(pid, start, (*files).list)
	if errors.Is(err, stall.ErrUnread) {
		return listed{}, err
	}
	return r.files().found, err
}

// text returns the text of a descriptor of a process, and the name of its device node. If the node is
// one of asleep, the error is errAsleep. The results are valid until the next read.
func (r *reader) text(pid int32, start time.Duration, fd int32, asleep []string) (text, node []byte, err error) {
	f := r.files()
	f.fd, f.asleep = fd, append(f.asleep[:0], asleep...)
	if err := r.run(pid, start, (*files).readText); err != nil {
		return nil, nil, err
	}
	return f.text, f.node, nil
}
