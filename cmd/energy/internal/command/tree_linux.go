// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// processTree reads the parent-child relations of processes.
type processTree struct {
	proc procfs.FS
	dir  string // of proc
	buf  []byte
	// scan reports whether the kernel does not list a process's children (CONFIG_PROC_CHILDREN), so
	// that the parents of all processes are read.
	scan     bool
	children map[int][]int // by parent, as of the last refresh
}

func newProcessTree(root string) (*processTree, error) {
	dir := filepath.Join(root, "proc")
	proc, err := procfs.NewFS(dir)
	if err != nil {
		return nil, err
	}
	_, err = os.Stat(filepath.Join(dir, "thread-self/children"))
	t := &processTree{proc: proc, dir: dir, buf: make([]byte, 4096), scan: errors.Is(err, fs.ErrNotExist)}
	return t, t.refresh()
}

// refresh reads the parents of all processes, if the kernel does not list children.
func (t *processTree) refresh() error {
	if !t.scan {
		return nil
	}
	all, err := t.proc.AllProcs()
	if err != nil {
		return err
	}
	t.children = map[int][]int{}
	for _, p := range all {
		stat, err := p.Stat()
		switch {
		case err == nil:
			t.children[stat.PPID] = append(t.children[stat.PPID], p.PID)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH):
			return err
		}
	}
	return nil
}

// childrenOf returns the children of all threads of a process.
func (t *processTree) childrenOf(pid int) (children []int) {
	if t.scan {
		return t.children[pid]
	}
	threads, err := t.proc.AllThreads(pid)
	if err != nil {
		return nil // it has ended
	}
	for _, thread := range threads {
		for field := range bytes.FieldsSeq(t.read(pid, fmt.Sprintf("task/%d/children", thread.PID))) {
			if child, err := strconv.Atoi(string(field)); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// read returns a file of a process, nil if it cannot be read. It is valid until the next call.
func (t *processTree) read(pid int, name string) []byte {
	text, err := readWhole(fmt.Sprintf("%s/%d/%s", t.dir, pid, name), &t.buf)
	if err != nil {
		return nil
	}
	return text
}

// readWhole reads a file of the kernel into a buffer, which it enlarges as needed. The kernel returns
// one page of a list at a time. Files of package os would cost four times as many system calls,
// because the Go runtime polls them.
func readWhole(path string, buf *[]byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // it was only read from
	for read := 0; ; {
		n, err := unix.Read(fd, (*buf)[read:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || n == 0:
			return (*buf)[:read], err
		default:
			if read += n; read == len(*buf) {
				*buf = append(*buf, make([]byte, len(*buf))...)
			}
		}
	}
}

func (t *processTree) stat(pid int) (procfs.ProcStat, error) {
	p, err := t.proc.Proc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return p.Stat()
}

// ignoresSIGCHLD reports whether a process ignores SIGCHLD. It is false if the status cannot be read.
func (t *processTree) ignoresSIGCHLD(pid int) bool {
	return cpu.IgnoresSIGCHLD(t.read(pid, "status"))
}
