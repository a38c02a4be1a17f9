// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
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
	// before 1.3.2 and crun before 1.23 did, instead of as they do since.
	LinearWeights bool
	// Waits bounds the waits for directories that users lock. nil: the Tree has its own.
	Waits *kernfs.Waits
}

// fileRoom is the size of buffers for files: more than any file that is read takes.
const fileRoom = 4096

// Tree holds the cgroups of a host that are of interest.
//
// Enter and Node make a node. It stays until a Sweep finds no process in it and no hierarchy that
// has its cgroup. Other readers hold nodes with Hold and Watch, which do not change the results of
// Account and ShortLived.
//
// An interval is ReadCPUTime, the scan of the processes, Account for all that the scan shows,
// ShortLived, and Sweep. A Tree is not safe for concurrent use.
type Tree struct {
	options Options
	mounts  mounts
	lookups lookups
	byPath  map[string]*Node // listed or held nodes
	nodes   []*Node          // listed nodes, longest paths first: each comes before its ancestors
	buf     [fileRoom]byte
	kept    kernfs.Allowance // of the files that stay open
	least   int              // see WatchFrom
	members [2][]int32       // scratch of Members
	total   total
}

// Node is one cgroup. A nil *Node stands for the cgroup of processes that are in none of interest.
type Node struct {
	path    string
	dir     string  // path relative to the mount point, "" if no mounted hierarchy can have it
	holds   int     // calls of Hold without Free
	version version // whose hierarchies have the CPU counter
	cpuFrom source
	growth  growth

	outermost bool // it is one of total
	listed    bool // it is one of Tree.nodes, which use the fields below
	removed   bool
	parent    *Node // the nearest ancestor that is listed
	members   int   // processes that entered and did not leave
	cpu       cpuTime
	request   request
	attached  []attachment
}

// attachment is an object that a reader outside of this package has attached to a node.
type attachment struct {
	owner any
	io.Closer
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

// Close closes the mount points, the counters and all that is attached to nodes. A later read opens
// files again.
func (t *Tree) Close() error {
	errs := []error{t.mounts.close(), t.lookups.close()}
	for _, n := range t.byPath {
		t.release(&n.cpuFrom)
		errs = append(errs, n.close())
	}
	return errors.Join(errs...)
}

// Path returns the path of the cgroup, which is below each hierarchy's mount point.
func (n *Node) Path() string { return n.path }

// Parent returns the nearest ancestor of the cgroup that has a node, nil without one.
func (n *Node) Parent() *Node { return n.parent }

// Nodes returns the nodes that Node and Enter made, each before its ancestors. The slice is valid
// until a node is made or removed.
func (t *Tree) Nodes() []*Node { return t.nodes }

// Node returns the node of the cgroup at path, which it makes if necessary. It returns nil if
// path is empty.
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

// dirOf returns where a cgroup is, relative to a mount point. Paths that begin or go on with "/.."
// are outside of the reader's cgroup namespace, and no mount point has them.
func dirOf(path string) string {
	if strings.Contains("/"+path+"/", "/../") {
		return ""
	}
	return cmp.Or(strings.Trim(path, "/"), ".")
}

func innermostFirst(a, b *Node) int {
	return cmp.Or(cmp.Compare(len(b.path), len(a.path)), cmp.Compare(a.path, b.path))
}

// link finds the node around a new node, and makes the new node the one around those inside it.
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

// around returns the paths of all cgroups around one, the innermost first, without the root.
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

// Enter counts a process into the cgroup at path, and returns its node, nil if path is empty.
// newborn reports whether the process was created since the last interval: a cgroup with older
// processes has used CPU time before it was watched.
func (t *Tree) Enter(path string, newborn bool) *Node {
	n := t.Node(path)
	if n != nil {
		n.members++
		n.cpu.older = n.cpu.older || !newborn
	}
	return n
}

// Leave counts a process out. The node itself stays until the next Sweep.
func (n *Node) Leave() {
	if n != nil {
		n.members--
	}
}

// Sweep ends an interval. It removes the nodes without processes whose cgroup is gone, and closes
// their attachments. The next interval looks again for hierarchies that were not found.
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
		_ = n.close() // it was only read from
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

// Restart forgets all processes and CPU times, as before the first interval. Nodes stay.
func (t *Tree) Restart() {
	for _, n := range t.nodes {
		n.members, n.cpu = 0, cpuTime{}
	}
}

// Shrink frees memory that was needed for more nodes.
func (t *Tree) Shrink() {
	t.byPath = units.Shrunk(t.byPath)
	t.nodes = slices.Clone(t.nodes)
}

// Release closes all that owner has attached to nodes.
func (t *Tree) Release(owner any) error {
	var errs []error
	for _, n := range t.nodes {
		n.attached = slices.DeleteFunc(n.attached, func(a attachment) bool {
			if a.owner == owner {
				errs = append(errs, a.Close())
			}
			return a.owner == owner
		})
	}
	return errors.Join(errs...)
}

// At returns what owner has attached to the node, or nil.
func (n *Node) At(owner any) io.Closer {
	for i := range n.attached {
		if a := &n.attached[i]; a.owner == owner {
			return a.Closer
		}
	}
	return nil
}

// Attach attaches c to the node, once for each owner. It is closed when the node is removed.
func (n *Node) Attach(owner any, c io.Closer) {
	n.attached = append(n.attached, attachment{owner, c})
}

func (n *Node) close() error {
	var errs []error
	for _, a := range n.attached {
		errs = append(errs, a.Close())
	}
	n.attached = nil
	return errors.Join(errs...)
}

// Unread returns an error if files of some cgroups are not read because users block lookups, or
// lookups are slow.
func (t *Tree) Unread() error { return t.lookups.err() }

// OpenPerfEventDir opens the directory of the cgroup for counting perf events: in the hierarchy of
// the version 1 controller perf_event, or else in version 2 (perf_event_open(2),
// PERF_FLAG_PID_CGROUP). inode is the inode number of the directory.
func (t *Tree) OpenPerfEventDir(n *Node, into *kernfs.Kept) (inode uint64, err error) {
	h := t.perfEvent(n)
	if h == nil {
		return 0, &fs.PathError{Op: "open", Path: n.path, Err: fs.ErrNotExist}
	}
	return t.lookups.open(h, into, n.dir, ".", false)
}

// perfEvent returns the hierarchy of OpenPerfEventDir, or nil if no hierarchy counts perf events.
func (t *Tree) perfEvent(n *Node) *hierarchy {
	all, _ := t.mounts.hierarchies()
	for i := len(all) - 1; i >= 0; i-- { // version 2 comes first
		h := &all[i]
		if n.dir != "" && (h.v2 || h.has(controllerPerfEvent)) && t.lookups.has(h, n.dir) {
			return h
		}
	}
	return nil
}
