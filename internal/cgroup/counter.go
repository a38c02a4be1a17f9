// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"io/fs"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// counter is what the kernel counts for each cgroup, and the file that shows it.
type counter struct {
	// controller is the version 1 controller that has the file v1. All files of version 2 are in
	// one hierarchy.
	controller controllers
	v1, v2     string
	missing    error // no mounted hierarchy has the counter
}

// in returns the name of the file in a hierarchy, empty if the hierarchy does not have the counter.
func (c *counter) in(h *hierarchy) (name string) {
	switch {
	case h.has(c.controller):
		return c.v1
	case h.v2:
		return c.v2
	}
	return ""
}

// source is where a counter of a cgroup was last found. The zero source is nowhere.
type source struct {
	inode     uint64 // of the file
	kept      kernfs.Kept
	replaced  int32 // how often another cgroup of the same path has replaced the one before
	hierarchy int8  // by its index, plus 1
}

// maxKept is the maximum number of files that one tree keeps open. Each takes a descriptor and 4.4
// KiB of kernel memory. Reading an open file takes half of the time of opening the file first
// (BenchmarkReadCPUTime).
const maxKept = 1024

// read reads the text of a counter of a cgroup from where it was last found, or else from the first
// hierarchy of a version that has the cgroup. The text is valid until the next read.
func (t *Tree) read(n *Node, s *source, c *counter, of version) (text []byte, from *hierarchy, failed error) {
	all, failed := t.mounts.hierarchies()
	if n.dir == "" {
		return nil, nil, errOutside
	}
	last := int(s.hierarchy) - 1
	if last >= 0 && all[last].is(of) {
		if text, failed = t.readIn(&all[last], n, s, c); !errors.Is(failed, fs.ErrNotExist) {
			return text, &all[last], failed
		}
	}
	for i := range all {
		if c.in(&all[i]) == "" || i == last || !all[i].is(of) {
			continue
		}
		found := source{hierarchy: int8(i) + 1, replaced: s.replaced}
		text, err := t.readIn(&all[i], n, &found, c)
		if err == nil {
			t.release(s)
			*s = found
			return text, &all[i], nil
		}
		if failed == nil || !errors.Is(err, fs.ErrNotExist) {
			failed = err
		}
		if errors.Is(err, kernfs.ErrUnread) { // it may have the counter
			break
		}
	}
	if failed == nil {
		failed = c.missing
	}
	return nil, nil, failed
}

// readIn reads a counter in one hierarchy. A kept file that cannot be read is opened again: its
// cgroup may have been removed, and there may be another one of the same name.
func (t *Tree) readIn(h *hierarchy, n *Node, s *source, c *counter) (text []byte, err error) {
	name := c.in(h)
	if s.kept.IsOpen() {
		text, err = h.dir.ReadKeptIn(&s.kept, n.dir, name, t.buf[:])
		if err == nil && len(text) > 0 {
			return text, nil
		}
		t.release(s)
	}
	inode, err := t.open(h, n, s, name)
	if err != nil {
		return nil, err
	}
	if text, err = h.dir.ReadKeptIn(&s.kept, n.dir, name, t.buf[:]); err == nil {
		if s.inode != 0 && s.inode != inode {
			s.replaced++
		}
		s.inode = inode
	}
	if err != nil || !t.kept.Take() {
		_ = s.kept.Close() // it was only read from
	}
	return text, err
}

// open opens a file, which the tree does not keep yet.
func (t *Tree) open(h *hierarchy, n *Node, s *source, name string) (inode uint64, err error) {
	inode, err = t.lookups.open(h, &s.kept, n.dir, name, s.inode != 0)
	if t.kept.Held > 0 && kernfs.NoDescriptorLeft(err) {
		t.halveCache()
		inode, err = t.lookups.open(h, &s.kept, n.dir, name, s.inode != 0)
	}
	return inode, err
}

// release closes a file if the tree keeps it.
func (t *Tree) release(s *source) {
	if s.kept.IsOpen() {
		_ = s.kept.Close() // it was only read from
		t.kept.GiveBack(1)
	}
}

func (t *Tree) releaseAll(n *Node) {
	t.release(&n.cpuFrom)
	t.release(&n.numaFrom)
}

// halveCache closes half of the kept files and halves the allowance, permanently: the process has
// no descriptor left.
func (t *Tree) halveCache() {
	t.kept.Most = t.kept.Held / 2
	for _, n := range t.byPath {
		if t.kept.Held > t.kept.Most {
			t.releaseAll(n)
		}
	}
}

var errOutside = errors.New("outside of the cgroup namespace")
