// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// growth is the growth of a cgroup's CPU counter between the latest two calls of ReadCPUTime.
type growth struct {
	last  reading
	grown units.CPUTime // 0 unless known is set
	known bool          // the two readings can be compared
}

// since returns the growth of the counter since an earlier reading. known is false if a reading
// failed, if another cgroup has replaced the cgroup, or if the counter has decreased.
func (r *reading) since(earlier *reading) (grown units.CPUTime, known bool) {
	if !r.ok || !earlier.ok || r.hierarchy != earlier.hierarchy || r.replaced != earlier.replaced || r.counter < earlier.counter {
		return 0, false
	}
	return r.counter - earlier.counter, true
}

// advance reads the CPU counter of a node once in a call of ReadCPUTime.
func (t *Tree) advance(n *Node) *reading {
	now, g := t.readCPU(n), &n.growth
	g.grown, g.known = now.since(&g.last)
	g.last = now
	return &g.last
}

// total reads the CPU time of all processes.
type total struct {
	// nodes are held nodes: the root of the version 1 controller that counts CPU time, or, without
	// this controller, the cgroups of version 2 directly below the root.
	nodes []*Node
	links uint64 // number of hard links of the root directory when nodes was listed; 0: list again
	isV1  bool
	known bool // nodes together contain all processes
}

// find finds the cgroups that together contain all processes.
func (c *total) find(t *Tree) (found bool) {
	all, _ := t.mounts.hierarchies() // after an error, all is empty
	v1 := slices.IndexFunc(all, func(h hierarchy) bool { return h.has(controllerCPUAcct) })
	if c.isV1 = v1 >= 0; c.isV1 {
		if len(c.nodes) == 0 {
			c.hold(t, "/", version1)
		}
		return all[v1].mountRoot == "/"
	}
	h, err := t.mounts.unified()
	if err != nil || h.mountRoot != "/" {
		return false
	}
	if links, err := h.dir.Links(); err == nil && links == c.links {
		return true
	}
	names, err := t.lookups.outermost(h)
	if err != nil {
		return false
	}
	c.links = 2 + uint64(len(names)) // a directory has two, plus one for each directory inside
	for _, name := range names {
		if n := t.byPath["/"+name]; n == nil || !n.outermost {
			c.hold(t, "/"+name, version2)
		}
	}
	return true
}

func (c *total) hold(t *Tree, path string, of version) {
	n := t.Hold(path)
	n.outermost, n.version = true, of
	c.nodes = append(c.nodes, n)
}

// freeUnread frees the nodes whose counters were not read. Other cgroups may have replaced them
// without a change of the number of links.
func (c *total) freeUnread(t *Tree) {
	c.nodes = slices.DeleteFunc(c.nodes, func(n *Node) bool {
		if n.growth.last.ok {
			return false
		}
		c.links, c.known, n.outermost = 0, false, false
		t.Free(n)
		return true
	})
}

// WatchFrom makes ReadCPUTime also read the CPU time of all processes, and the counters of nodes
// with at least this many calls of Hold or Watch. 0 disables both.
func (t *Tree) WatchFrom(least int) { t.least = least }

// Watch holds the cgroup whose counter shows whether a process has run, and returns its node. text
// is the content of /proc/<pid>/cgroup. The cgroup is the cgroup in version 2. If that is the root
// or not mounted, it is the cgroup in the hierarchy of the version 1 controller that counts CPU
// time. Watch returns nil if the process is in the root, whose counter includes other cgroups.
func (t *Tree) Watch(text []byte) *Node {
	path, of := t.watchedIn(text)
	if len(path) < 2 || dirOf(path) == "" {
		return nil
	}
	n := t.Hold(path)
	if n.version == anyVersion {
		n.version = of
	}
	if n.version != of { // the node was created for the other hierarchy
		t.Free(n)
		return nil
	}
	return n
}

func (t *Tree) watchedIn(text []byte) (path string, of version) {
	_, err := t.mounts.unified()
	for line := range bytes.Lines(text) {
		_, rest, _ := bytes.Cut(bytes.TrimSuffix(line, []byte{'\n'}), []byte{':'})
		controllers, in, found := bytes.Cut(rest, []byte{':'})
		isV2 := len(controllers) == 0
		switch {
		case !found:
		case isV2 && err == nil && len(in) > 1:
			return string(in), version2
		case isV2 && err == nil && len(in) == 1 && of == anyVersion:
			path, of = string(in), version2
		case !isV2 && isAmong(controllers, "cpuacct"):
			path, of = string(in), version1
		}
	}
	return path, of
}

func isAmong(list []byte, controller string) bool {
	for name := range bytes.SplitSeq(list, []byte{','}) {
		if string(name) == controller {
			return true
		}
	}
	return false
}

// Members returns the PIDs of the processes in the cgroup that Watch finds by text, from
// cgroup.procs. It returns an error for a threaded cgroup of version 2, whose cgroup.procs cannot
// be read. In version 1, a process is also listed if only a secondary thread is in the cgroup. The
// counter of the cgroup then does not show the CPU time of the other threads. The result is valid
// until the next call.
func (t *Tree) Members(text []byte) ([]int32, error) {
	path, of := t.watchedIn(text)
	all, err := t.mounts.hierarchies()
	i := slices.IndexFunc(all, func(h hierarchy) bool { return h.is(of) && h.cpuFile() != "" })
	if err != nil || i < 0 {
		return nil, errNoHierarchy
	}
	pids, err := t.list(&all[i], path, t.members[0][:0])
	t.members[0] = pids
	if err != nil || of == version2 || !all[0].v2 {
		return pids, err
	}
	inRoot, err := t.list(&all[0], "/", t.members[1][:0]) // all other processes are watched in version 2
	t.members[1] = inRoot
	slices.Sort(inRoot)
	return slices.DeleteFunc(pids, func(pid int32) bool {
		_, ok := slices.BinarySearch(inRoot, pid)
		return !ok
	}), err
}

// list appends the PIDs of the processes in a cgroup.
func (t *Tree) list(h *hierarchy, path string, to []int32) ([]int32, error) {
	var file kernfs.Kept
	dir := dirOf(path)
	if dir == "" {
		return to, fs.ErrNotExist
	}
	if _, err := t.lookups.open(h, &file, dir, "cgroup.procs", false); err != nil {
		return to, err
	}
	f := os.NewFile(uintptr(file.Descriptor()), path)
	defer func() { _ = f.Close() }() // it was only read from
	pid := int32(0)
	for {
		n, err := f.Read(t.buf[:])
		if err == io.EOF {
			return to, nil
		}
		if err != nil {
			return to, err
		}
		for _, c := range t.buf[:n] {
			if c != '\n' {
				pid = pid*10 + int32(c-'0')
				continue
			}
			to, pid = append(to, pid), 0
		}
	}
}

// Hold holds the node another time. The node must be held already.
func (n *Node) Hold() { n.holds++ }

// Holds returns the number of calls of Hold and Watch minus the number of calls of Free.
func (n *Node) Holds() int { return n.holds }

// Hold returns the node of the cgroup at path, which stays until Free whether or not the cgroup
// exists. Nodes lists it only if Node or Enter is called as well.
func (t *Tree) Hold(path string) *Node {
	n := t.byPath[path]
	if n == nil {
		n = &Node{path: path, dir: dirOf(path)}
		t.byPath[path] = n
	}
	n.holds++
	return n
}

// Free undoes one call of Hold or Watch.
func (t *Tree) Free(n *Node) {
	if n.holds--; n.holds == 0 {
		n.version, n.growth = anyVersion, growth{}
		t.drop(n)
	}
}

// drop removes a node that is neither held nor listed.
func (t *Tree) drop(n *Node) {
	if n.holds == 0 && !n.listed {
		t.release(&n.cpuFrom)
		delete(t.byPath, n.path)
	}
}

// StoodStill reports whether the counter of the cgroup shows that its processes did not run between
// the latest two calls of ReadCPUTime.
func (n *Node) StoodStill() bool { return n.growth.known && n.growth.grown == 0 }

// Grown returns the CPU time that all processes, including exited processes, used between the
// latest two calls of ReadCPUTime. all reports whether it includes processes in the root. If ok is
// false, a counter could not be read or compared.
func (t *Tree) Grown() (grown units.CPUTime, all, ok bool) {
	ok = t.total.known
	for _, n := range t.total.nodes {
		grown += n.growth.grown
		ok = ok && n.growth.known
	}
	return grown, t.total.isV1, ok
}

// Ahead returns the CPU time that all processes have used since the latest ReadCPUTime, or 0 if the
// counters cannot be read. It does not affect Grown.
func (t *Tree) Ahead() (used units.CPUTime) {
	for _, n := range t.total.nodes {
		now := t.readCPU(n)
		grown, _ := now.since(&n.growth.last)
		used += grown
	}
	return used
}
