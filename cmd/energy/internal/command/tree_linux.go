// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// processTree tells who is whose child.
type processTree struct {
	proc procfs.FS
	dir  string // of proc
	// scan reports whether the kernel does not list a process's children (CONFIG_PROC_CHILDREN), so that the parents of all
	// processes are read.
	scan     bool
	children map[int][]int // by parent, as of the last refresh
}

func newProcessTree(root string) (*processTree, error) {
	dir := filepath.Join(root, "proc")
	proc, err := procfs.NewFS(dir)
	if err != nil {
		return nil, err
	}
	t := &processTree{proc: proc, dir: dir}
	_, err = os.Stat(filepath.Join(dir, "thread-self", "children"))
	t.scan = err != nil
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
	tasks := filepath.Join(t.dir, strconv.Itoa(pid), "task")
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil
	}
	for _, thread := range threads {
		list, err := os.ReadFile(filepath.Join(tasks, thread.Name(), "children"))
		if err != nil {
			continue
		}
		for field := range bytes.FieldsSeq(list) {
			if child, err := strconv.Atoi(string(field)); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
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
	status, err := os.ReadFile(filepath.Join(t.dir, strconv.Itoa(pid), "status"))
	return err == nil && cpu.IgnoresSIGCHLD(status)
}
