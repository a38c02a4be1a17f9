// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"cmp"
	"errors"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Options configures a Tree.
type Options struct {
	// Root is the root of the host's file system.
	Root string
	// LinearWeights reports whether the container runtime converts CPU shares to weights as runc
	// before 1.3.2 and crun before 1.23 did. Later versions use another formula.
	LinearWeights bool
	// Waits limits the time spent waiting for directories that users lock. If it is nil, the Tree
	// creates one.
	Waits *kernfs.Waits
}

// fileRoom is the size of buffers for files.
const fileRoom = 4096

// Tree has nodes for some cgroups of a host.
//
// Enter and Node create a node. Sweep removes it if it has no processes and no hierarchy has its
// cgroup. Other readers hold nodes with Hold and Watch, which do not change the results of Account
// and ShortLived.
//
// In each interval the caller calls ReadCPUTime, scans the processes, and calls Account for each
// scanned process, ShortLived, and Sweep. A Tree is not safe for concurrent use.
type Tree struct {
	options Options
	mounts  mounts
	lookups lookups
	byPath  map[string]*Node // listed or held nodes
	nodes   []*Node          // listed nodes, longest paths first: each comes before its ancestors
	buf     [fileRoom]byte
	kept    kernfs.Allowance // limits the files that stay open
	least   int              // see WatchFrom
	members [2][]int32       // scratch of Members
	total   total
}

// Node is a cgroup. A nil *Node is the cgroup of processes that are in no cgroup with a node.
type Node struct {
	path    string
	dir     string  // path relative to the mount point, "" if no mounted hierarchy can have it
	holds   int     // calls of Hold without Free
	version version // whose hierarchies have the CPU counter
	cpuFrom source
	growth  growth

	outermost bool // the node is in Tree.total
	listed    bool // the node is in Tree.nodes; only listed nodes use the fields below
	removed   bool
	parent    *Node // the nearest ancestor that is listed
	members   int   // number of processes that entered and did not leave
	cpu       cpuTime
	request   request
}

// New returns the tree of the host. It does not access the machine.
func New(options Options) *Tree {
	return &Tree{
		options: options, mounts: mounts{root: options.Root},
		lookups: newLookups(kernfs.GuardOptions[*finder]{Root: options.Root, Waits: options.Waits}),
		byPath:  map[string]*Node{}, kept: kernfs.Allowance{Most: maxKept},
	}
}

// Root returns the root of the host's file system.
func (t *Tree) Root() string { return t.options.Root }

// Close closes the mount points and the counters. A later read opens files again.
func (t *Tree) Close() error {
	for _, n := range t.byPath {
		t.release(&n.cpuFrom)
	}
	return errors.Join(t.mounts.close(), t.lookups.close())
}

// Path returns the path of the cgroup, as in /proc/<pid>/cgroup.
func (n *Node) Path() string { return n.path }

// Parent returns the nearest ancestor of the cgroup that has a node, or nil.
func (n *Node) Parent() *Node { return n.parent }

// Nodes returns the nodes that Node and Enter created, each before its ancestors. The slice is
// valid until a node is created or removed.
func (t *Tree) Nodes() []*Node { return t.nodes }

// Node returns the node of the cgroup at path, and creates it if necessary. It returns nil if path
// is empty.
func (t *Tree) Node(path string) *Node {
	n := t.byPath[path]
	switch {
	case path == "" || n != nil && n.listed:
		return n
	case n == nil:
		n = &Node{path: path, dir: dirOf(path)}
		t.byPath[path] = n
	}
	i, _ := slices.BinarySearchFunc(t.nodes, n, innermostFirst)
	t.link(n, t.nodes[:i])
	n.listed = true
	t.nodes = slices.Insert(t.nodes, i, n)
	return n
}

// dirOf returns the path of a cgroup relative to a mount point, or "". A path with "/.." is outside
// of the reader's cgroup namespace, so it is not below any mount point.
func dirOf(path string) string {
	if strings.Contains("/"+path+"/", "/../") {
		return ""
	}
	return cmp.Or(strings.Trim(path, "/"), ".")
}

func innermostFirst(a, b *Node) int {
	return cmp.Or(cmp.Compare(len(b.path), len(a.path)), cmp.Compare(a.path, b.path))
}

// link sets the parent of a new node, and makes the new node the parent of the nodes inside it.
// longer has all nodes with longer paths.
func (t *Tree) link(n *Node, longer []*Node) {
	for up := range around(n.path) {
		if outer := t.byPath[up]; outer != nil && outer.listed {
			n.parent = outer
			break
		}
	}
	for _, in := range longer {
		if in.parent == n.parent && isInside(in.path, n.path) {
			in.parent = n
		}
	}
}

// around returns the paths of the ancestors of a cgroup, innermost first, without the root.
func around(cgroup string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for up := path.Dir(cgroup); len(up) > 1 && yield(up); up = path.Dir(up) {
		}
	}
}

// isInside reports whether a path is below another.
func isInside(path, outer string) bool {
	return len(path) > len(outer) && path[len(outer)] == '/' && path[:len(outer)] == outer
}

// Enter adds a process to the cgroup at path, and returns the node, or nil if path is empty.
// newborn reports whether the process was created since the last interval. A cgroup with older
// processes may have used CPU time before its counter was read.
func (t *Tree) Enter(path string, newborn bool) *Node {
	n := t.Node(path)
	if n != nil {
		n.members++
		n.cpu.older = n.cpu.older || !newborn
	}
	return n
}

// Leave removes a process from the cgroup. The node stays until the next Sweep.
func (n *Node) Leave() {
	if n != nil {
		n.members--
	}
}

// Sweep ends an interval. It removes nodes without processes whose cgroup no longer exists. If no
// hierarchies were found, the next interval reads the mounts again.
func (t *Tree) Sweep() {
	defer t.mounts.retry()
	defer t.lookups.begin()
	swept := false
	for _, n := range t.nodes {
		if n.members > 0 {
			continue
		}
		n.cpu.rebase()
		n.removed = !t.exists(n)
		swept = swept || n.removed
	}
	if !swept {
		return
	}
	for _, n := range t.nodes {
		for n.parent != nil && n.parent.removed {
			n.parent = n.parent.parent
		}
	}
	t.nodes = slices.DeleteFunc(t.nodes, func(n *Node) bool {
		if !n.removed {
			return false
		}
		n.listed, n.removed, n.parent, n.cpu, n.request = false, false, nil, cpuTime{}, request{}
		t.drop(n)
		return true
	})
}

// exists reports whether any hierarchy has the cgroup.
func (t *Tree) exists(n *Node) bool {
	all, _ := t.mounts.hierarchies()
	if n.dir == "" {
		return false
	}
	for i := range all {
		if t.lookups.has(&all[i], n.dir) {
			return true
		}
	}
	return false
}

// Restart discards all processes and CPU times, as before the first interval. It keeps the nodes.
func (t *Tree) Restart() {
	for _, n := range t.nodes {
		n.members, n.cpu = 0, cpuTime{}
	}
}

// Shrink frees memory that is no longer needed after nodes were removed.
func (t *Tree) Shrink() {
	t.byPath = units.Shrunk(t.byPath)
	t.nodes = slices.Clone(t.nodes)
}

// Unread returns an error if files of some cgroups are not read because users block lookups, or
// lookups are slow.
func (t *Tree) Unread() error { return t.lookups.err() }
