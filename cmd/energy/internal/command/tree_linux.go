// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// processTree reads the parent-child relations of processes.
type processTree struct {
	proc procfs.FS
	dir  *kernfs.Dir // of proc
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
	t := &processTree{proc: proc, dir: kernfs.New(dir), buf: make([]byte, 4096)}
	t.scan = !t.dir.Has("thread-self/children")
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

// childrenOf returns the children of a process, those of all its threads.
func (t *processTree) childrenOf(pid int) (children []int) {
	if t.scan {
		return t.children[pid]
	}
	var lists []string
	_ = t.dir.EachOf(int32(pid), "task", func(thread []byte) bool {
		lists = append(lists, "task/"+string(thread)+"/children")
		return true
	}) // it may have ended
	for _, name := range lists {
		for field := range bytes.FieldsSeq(t.read(pid, name)) {
			if child, err := strconv.Atoi(string(field)); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// read returns a file of a process, nil if it cannot be read. It is valid until the next call.
func (t *processTree) read(pid int, name string) []byte {
	for {
		b, err := t.dir.ReadOf(int32(pid), name, t.buf)
		if err != nil || len(b) < len(t.buf) {
			return b
		}
		t.buf = make([]byte, 2*len(t.buf))
	}
}

func (t *processTree) stat(pid int) (procfs.ProcStat, error) {
	p, err := t.proc.Proc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return p.Stat()
}

// ignoresSIGCHLD reports whether a process is known to ignore SIGCHLD.
func (t *processTree) ignoresSIGCHLD(pid int) bool {
	return cpu.IgnoresSIGCHLD(t.read(pid, "status"))
}
