// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"io/fs"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// source is the file that the CPU counter of a cgroup was last read from. The zero source refers to
// no file.
type source struct {
	inode     uint64 // inode of the file
	kept      kernfs.Kept
	replaced  int32 // number of times that another cgroup with the same path replaced the cgroup
	hierarchy int8  // index of the hierarchy, plus 1
}

// reading is one reading of the CPU counter of a cgroup.
type reading struct {
	ok        bool
	hierarchy int8
	replaced  int32 // see source
	counter   units.CPUTime
}

// maxKept is the maximum number of files that one tree keeps open. Each uses a descriptor and 4.4
// KiB of kernel memory. Reading a file that is open takes at most half of the time of opening and
// reading it (BenchmarkReadCPUTime).
const maxKept = 1024

// cpuFile returns the name of the file with the CPU counter, or "" if the hierarchy does not have
// one. The file of version 2 exists whether or not the cpu controller is enabled.
func (h *hierarchy) cpuFile() string {
	switch {
	case h.has(controllerCPUAcct):
		return "cpuacct.usage" // in nanoseconds (cgroup-v1/cpuacct.rst)
	case h.v2:
		return "cpu.stat" // cgroup-v2.rst
	}
	return ""
}

// readCPU reads the CPU counter of a node.
func (t *Tree) readCPU(n *Node) reading {
	text, from := t.readCounter(n)
	if from == nil {
		return reading{}
	}
	parse := parseLine
	if from.v2 {
		parse = parseCPUStat
	}
	used, err := parse(text)
	s := &n.cpuFrom
	return reading{ok: err == nil, hierarchy: s.hierarchy, replaced: s.replaced, counter: units.CPUTime(used)}
}

// readCounter reads the CPU counter of a cgroup from its source. If that fails, it reads the
// counter from the first hierarchy of the node's version that has the cgroup. It returns a nil
// hierarchy if the counter cannot be read. The text is valid until the next read.
func (t *Tree) readCounter(n *Node) (text []byte, from *hierarchy) {
	all, _ := t.mounts.hierarchies()
	s, last := &n.cpuFrom, int(n.cpuFrom.hierarchy)-1
	if last >= 0 && all[last].is(n.version) {
		text, err := t.readIn(&all[last], n, s)
		if err == nil {
			return text, &all[last]
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	for i := range all {
		if n.dir == "" || all[i].cpuFile() == "" || i == last || !all[i].is(n.version) {
			continue
		}
		found := source{hierarchy: int8(i) + 1, replaced: s.replaced}
		text, err := t.readIn(&all[i], n, &found)
		if err == nil {
			t.release(s)
			*s = found
			return text, &all[i]
		}
		if errors.Is(err, kernfs.ErrUnread) { // the hierarchy may have the counter
			break
		}
	}
	return nil, nil
}

// readIn reads the CPU counter in one hierarchy. A kept file that cannot be read is opened again:
// its cgroup may have been replaced by another cgroup with the same name.
func (t *Tree) readIn(h *hierarchy, n *Node, s *source) (text []byte, err error) {
	name := h.cpuFile()
	if s.kept.IsOpen() {
		text, err = h.dir.ReadKeptIn(&s.kept, n.dir, name, t.buf[:])
		if err == nil && len(text) > 0 {
			return text, nil
		}
		t.release(s)
	}
	inode, err := t.lookups.open(h, &s.kept, n.dir, name, s.inode != 0)
	if t.kept.Held > 0 && kernfs.NoDescriptorLeft(err) {
		t.halveCache()
		inode, err = t.lookups.open(h, &s.kept, n.dir, name, s.inode != 0)
	}
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

// release closes a file if the tree keeps it.
func (t *Tree) release(s *source) {
	if s.kept.IsOpen() {
		_ = s.kept.Close() // it was only read from
		t.kept.GiveBack(1)
	}
}

// halveCache closes half of the kept files and permanently halves the allowance. It is called when
// the process has no descriptors left.
func (t *Tree) halveCache() {
	t.kept.Most = t.kept.Held / 2
	for _, n := range t.byPath {
		if t.kept.Held > t.kept.Most {
			t.release(&n.cpuFrom)
		}
	}
}
