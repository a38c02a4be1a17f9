// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Counters reads the CPU counters of cgroups, which show whose processes may have run since the
// previous reading. It identifies a cgroup by its index.
//
// A Counters is not safe for concurrent use. Close releases its descriptors.
type Counters struct {
	tree   *Tree
	least  int     // processes from which on the counter of a cgroup is read
	shared CPUTime // nil if there is none
	byName map[cgroupName]int32
	all    []watchedCgroup // the first is not used
	free   []int32
	tops   []watchedCgroup // the outermost cgroups of version 2
	links  uint64          // hard links of the root directory when tops was listed, 0 to list again
	root   watchedCgroup   // of the version 1 controller
	isV1   bool            // root was read
	grown  units.CPUTime
	ok     bool
}

// CPUTime returns the CPU time of a cgroup that was read for another use, right before
// Counters.Read; see Tree.CPUTime.
type CPUTime func(path string, v2 bool) (used units.CPUTime, ok bool)

// cgroupName is a path in the hierarchy of version 2, or of the version 1 controller that counts
// CPU time.
type cgroupName struct {
	path string
	v2   bool
}

type watchedCgroup struct {
	name    cgroupName
	node    Node
	members int
	counter units.CPUTime
	current bool // it was read in the latest reading and in the one before
	read    bool // it was read in the latest reading
	grown   units.CPUTime
}

// NewCounters returns the counters of the cgroups of the host whose root directory is at root.
// Counters of cgroups with fewer than least processes are not read, unless shared has them. shared
// may be nil. It reads nothing yet.
func NewCounters(root string, least int, shared CPUTime) *Counters {
	return &Counters{
		tree: New(Options{Root: root}), least: least, shared: shared, byName: map[cgroupName]int32{}, all: make([]watchedCgroup, 1),
		root: watch(cgroupName{path: "/"}),
	}
}

func watch(name cgroupName) watchedCgroup {
	return watchedCgroup{name: name, node: Node{path: name.path, dir: dirOf(name.path)}}
}

// Close closes the counters. They are opened again when they are read.
func (c *Counters) Close() error {
	for i := range c.all {
		c.tree.releaseAll(&c.all[i].node)
	}
	for i := range c.tops {
		c.tree.releaseAll(&c.tops[i].node)
	}
	c.tree.releaseAll(&c.root.node)
	return c.tree.Close()
}

// Enter counts a process into its cgroup, from the content of /proc/<pid>/cgroup, and returns the
// cgroup. It returns 0 if no counter shows the process apart from others: it is in the root.
func (c *Counters) Enter(text []byte) (cgroup int32) {
	name, ok := c.nameIn(text)
	if !ok {
		return 0
	}
	i, ok := c.byName[name]
	if !ok {
		i = c.add(name)
	}
	c.all[i].members++
	return i
}

// nameIn returns which cgroup of a process is watched: that of version 2, or else of the version 1
// controller.
func (c *Counters) nameIn(text []byte) (name cgroupName, ok bool) {
	_, err := c.tree.mounts.unified()
	for line := range bytes.Lines(text) {
		_, rest, _ := bytes.Cut(bytes.TrimSuffix(line, []byte{'\n'}), []byte{':'})
		controllers, path, found := bytes.Cut(rest, []byte{':'})
		isV2 := len(controllers) == 0
		if !found || len(path) < 2 || isV2 && err != nil || !isV2 && name.v2 {
			continue
		}
		if isV2 || isAmong(controllers, "cpuacct") {
			name = cgroupName{path: string(path), v2: isV2}
		}
	}
	return name, name.path != "" && dirOf(name.path) != ""
}

func isAmong(list []byte, controller string) bool {
	for name := range bytes.SplitSeq(list, []byte{','}) {
		if string(name) == controller {
			return true
		}
	}
	return false
}

func (c *Counters) add(name cgroupName) (i int32) {
	if n := len(c.free); n > 0 {
		i, c.free = c.free[n-1], c.free[:n-1]
	} else {
		i = int32(len(c.all))
		c.all = append(c.all, watchedCgroup{})
	}
	c.all[i] = watch(name)
	c.byName[name] = i
	return i
}

// Leave counts a process out of its cgroup.
func (c *Counters) Leave(cgroup int32) {
	if cgroup == 0 {
		return
	}
	w := &c.all[cgroup]
	if w.members--; w.members > 0 {
		return
	}
	c.tree.releaseAll(&w.node)
	delete(c.byName, w.name)
	c.all[cgroup] = watchedCgroup{}
	c.free = append(c.free, cgroup)
}

// Read reads the counters. Read them before the processes: what runs in between shows in the next
// reading.
func (c *Counters) Read() {
	c.tree.mounts.retry()
	c.tree.lookups.begin()
	c.readTotal()
	for i := range c.all {
		if c.tree.kept.Held > c.tree.kept.Most { // the process had no descriptor left
			c.tree.releaseAll(&c.all[i].node)
		}
	}
	for i := range c.all {
		w := &c.all[i]
		switch {
		case w.members > 0 && c.share(w):
		case w.members > 0 && w.members >= c.least:
			c.read(w)
		default:
			w.read, w.current = false, false
		}
	}
}

// readTotal reads what all processes used. Version 1 counts the processes in the root, too. The
// outermost cgroups of version 2 come before those inside, for speed alone; see outer.
func (c *Counters) readTotal() {
	c.read(&c.root)
	if c.isV1 = c.root.read; c.isV1 {
		c.grown, c.ok = c.root.grown, c.root.current
		return
	}
	h, err := c.tree.mounts.unified()
	c.grown, c.ok = 0, err == nil && h.mountRoot == "/"
	if !c.ok {
		return
	}
	if links, err := h.dir.Links(); err != nil || links != c.links {
		c.ok = c.list(h) == nil
	}
	for i := range c.tops {
		top := &c.tops[i]
		c.read(top)
		c.grown += top.grown
		c.ok = c.ok && top.current
		if !top.read { // a new cgroup may have replaced it, without a change of the number of links
			c.links = 0
		}
	}
	c.tops = slices.DeleteFunc(c.tops, func(top watchedCgroup) bool { return !top.read })
}

// list finds the outermost cgroups. A directory has two hard links plus one for each directory
// inside.
func (c *Counters) list(h *hierarchy) error {
	names, err := c.tree.lookups.outermost(h)
	if err != nil {
		return err
	}
	c.links = 2 + uint64(len(names))
	for _, name := range names {
		name := cgroupName{path: "/" + name, v2: true}
		if !slices.ContainsFunc(c.tops, func(top watchedCgroup) bool { return top.name == name }) {
			c.tops = append(c.tops, watch(name))
		}
	}
	return nil
}

// share takes a counter from what was read for another use. It returns false if that lacks it.
func (c *Counters) share(w *watchedCgroup) bool {
	if c.shared == nil {
		return false
	}
	used, ok := c.shared(w.name.path, w.name.v2)
	if ok {
		c.tree.releaseAll(&w.node) // it may have been read here before
		w.advance(used, false)
	}
	return ok
}

// advance notes that a counter was read.
func (w *watchedCgroup) advance(counter units.CPUTime, another bool) {
	w.current = w.read && !another && counter >= w.counter
	w.grown, w.read = 0, true
	if w.current {
		w.grown = counter - w.counter
	}
	w.counter = counter
}

// read reads a counter.
func (c *Counters) read(w *watchedCgroup) {
	if counter, another, ok := c.value(w); ok {
		w.advance(counter, another)
	} else {
		w.grown, w.read, w.current = 0, false, false
	}
}

// value returns a counter. another is true if it is that of another cgroup than at the last call.
func (c *Counters) value(w *watchedCgroup) (counter units.CPUTime, another, ok bool) {
	all, _ := c.tree.mounts.hierarchies() // without them the counter cannot be read
	for i := range all {
		h := &all[i]
		if h.v2 != w.name.v2 || !h.v2 && !h.has(controllerCPUAcct) {
			continue
		}
		if value, another, err := c.tree.readIn(h, &w.node, &w.node.cpuFrom, &cpuCounter); err == nil {
			return units.CPUTime(value), another, true
		}
	}
	return 0, false, false
}

// Ahead returns how much CPU time all processes have used since the latest reading, 0 if it is
// unknown.
func (c *Counters) Ahead() (used units.CPUTime) {
	if c.isV1 {
		return c.ahead(&c.root)
	}
	for i := range c.tops {
		used += c.ahead(&c.tops[i])
	}
	return used
}

// ahead returns how much a counter has grown since it was read. It does not change what was read.
func (c *Counters) ahead(w *watchedCgroup) units.CPUTime {
	counter, another, ok := c.value(w)
	if another {
		w.read = false // the next call of value no longer shows it
	}
	if another || !ok {
		return 0
	}
	return units.Advance(w.counter, counter)
}

// StoodStill reports whether the counter of a cgroup shows that none of its processes ran between
// the latest two readings.
func (c *Counters) StoodStill(cgroup int32) bool {
	w := &c.all[cgroup]
	return w.current && w.grown == 0
}

// Grown returns how much CPU time all processes used between the latest two readings, including
// exited ones. If all is true, processes for which Enter returned 0 are included. If ok is false,
// the CPU time is unknown.
func (c *Counters) Grown() (grown units.CPUTime, all, ok bool) { return c.grown, c.isV1, c.ok }
