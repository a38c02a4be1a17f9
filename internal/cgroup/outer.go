// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"slices"
	"strings"
)

// outer are the cgroups below the root of the version 2 hierarchy that have several nodes inside.
//
// Their counters are read before those of the nodes, for speed alone. What a cgroup used is added
// up when its counter is read, after the kernel has found the cgroup in the list of its siblings
// that ran; reading a cgroup around them adds up all of them in one walk (kernel/cgroup/rstat.c,
// css_rstat_flush). The root itself is not added up when it is read.
type outer struct {
	nodes  []*Node // not those of the tree
	stale  bool    // nodes were made or removed
	needed bool    // a counter was last found in the version 2 hierarchy
}

// readOuter reads the counters of the outer cgroups.
func (t *Tree) readOuter() {
	h, err := t.mounts.unified()
	if err != nil || !t.outer.needed {
		return
	}
	if t.outer.stale {
		t.findOuter()
	}
	for _, n := range t.outer.nodes {
		_, _, _ = t.readIn(h, n, &n.cpuFrom, &cpuCounter) // it may be in another hierarchy
	}
}

func (t *Tree) findOuter() {
	t.outer.stale = false
	inside := func(n *Node) bool { return t.inside[n.path] > 1 }
	t.outer.nodes = slices.DeleteFunc(t.outer.nodes, func(n *Node) bool {
		if !inside(n) {
			t.release(&n.cpuFrom)
		}
		return !inside(n)
	})
	for path, nodes := range t.inside {
		isOuter := nodes > 1 && strings.LastIndexByte(path, '/') == 0
		if isOuter && !slices.ContainsFunc(t.outer.nodes, func(n *Node) bool { return n.path == path }) {
			t.outer.nodes = append(t.outer.nodes, &Node{path: path, dir: dirOf(path)})
		}
	}
}
