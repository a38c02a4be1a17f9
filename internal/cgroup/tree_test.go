// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNodesKnowTheirNearestAncestorInAnyOrderOfCreation(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	n := newNode(t)
	inside := map[string]int{}
	check := func() {
		t.Helper()
		want := map[string]string{}
		for p := range n.byPath {
			for up := path.Dir(p); up != "/" && want[p] == ""; up = path.Dir(up) {
				if n.byPath[up] != nil {
					want[p] = up
				}
			}
		}
		for _, in := range n.Nodes() {
			parent := ""
			if in.Parent() != nil {
				parent = in.Parent().Path()
				require.Greater(t, slices.Index(n.Nodes(), in.Parent()), slices.Index(n.Nodes(), in))
			}
			require.Equal(t, want[in.Path()], parent, in.Path())
		}
		require.Len(t, n.Nodes(), len(n.byPath))
	}
	for range 2000 {
		p := strings.Repeat(fmt.Sprintf("/%d", r.IntN(3)), 1+r.IntN(2)) + strings.Repeat(fmt.Sprintf("/%d", r.IntN(12)), r.IntN(3))
		switch r.IntN(5) {
		case 0, 1:
			n.Enter(p, true)
			inside[p]++
		case 2:
			if inside[p] > 0 {
				n.Node(p).Leave()
				inside[p]--
			}
		case 3:
			n.Node(p)
		default:
			n.Sweep()
			for p, processes := range inside {
				assert.Equal(t, processes > 0, n.byPath[p] != nil, p)
			}
		}
		check()
	}
}

func TestACgroupStaysAsLongAsAProcessIsInItOrItIsThere(t *testing.T) {
	n := newNode(t)
	n.set(0, "/there")
	there, used, asked := n.Enter("/there", true), n.Enter("/used", true), n.Node("/asked")
	there.Leave()
	n.Sweep()
	assert.Equal(t, []*Node{there, used}, n.Nodes())
	assert.NotSame(t, asked, n.Node("/asked"))
	n.remove(v2, "/there")
	used.Leave()
	n.Sweep()
	assert.Empty(t, n.Nodes())
	assert.Empty(t, n.byPath)
}

func TestAProcessWithoutACgroupHasNoNode(t *testing.T) {
	n := newNode(t)
	assert.Nil(t, n.Enter("", true))
	assert.NotPanics(t, func() {
		var none *Node
		none.Leave()
		none.Account(0, ms)
		AccountMove(none, none, ms)
	})
}

// closer counts how often it is closed.
type closer struct{ closed int }

var errClosed = errors.New("closed")

func (c *closer) Close() error { c.closed++; return errClosed }

func TestAttachedValuesAreClosedWithTheirNode(t *testing.T) {
	tree := New(Options{Root: t.TempDir()})
	const first, second = "first", "second"
	a, b := tree.Enter("/a", true), tree.Enter("/b", true)
	var ca, cb, other closer
	a.Attach(second, &ca)
	b.Attach(second, &cb)
	b.Attach(first, &other)
	assert.Nil(t, a.At(first))
	assert.Same(t, &ca, a.At(second))
	a.Leave()
	tree.Sweep()
	assert.Equal(t, []int{1, 0, 0}, []int{ca.closed, cb.closed, other.closed})
	require.ErrorIs(t, tree.Release(second), errClosed)
	assert.Equal(t, []int{1, 1, 0}, []int{ca.closed, cb.closed, other.closed})
	assert.Nil(t, b.At(second))
	require.ErrorIs(t, tree.Close(), errClosed)
	assert.Equal(t, []int{1, 1, 1}, []int{ca.closed, cb.closed, other.closed})
}

func TestPerfEventsAreCountedInTheirOwnHierarchyIfThereIsOne(t *testing.T) {
	const mountPerf = "33 24 0:29 / /sys/fs/cgroup/perf_event rw,nosuid shared:12 - cgroup cgroup rw,perf_event\n"
	for name, c := range map[string]struct {
		mounts, files, want string
	}{
		"v2":                      {mountV2, v2 + "/a/x", "sys/fs/cgroup/a"},
		"v1":                      {mountTmpfs + mountMemory + mountPerf, "sys/fs/cgroup/perf_event/a/x", "sys/fs/cgroup/perf_event/a"},
		"hybrid":                  {mountTmpfs + mountUnified + mountCPU, hybrid + "/a/x", "sys/fs/cgroup/unified/a"},
		"hybrid, its own":         {mountTmpfs + mountUnified + mountPerf, hybrid + "/a/x sys/fs/cgroup/perf_event/a/x", "sys/fs/cgroup/perf_event/a"},
		"another controller's":    {mountTmpfs + mountCPU, v1 + "/a/x", ""},
		"no such cgroup":          {mountV2, v2 + "/b/x", ""},
		"nothing that is mounted": {mountOther, v2 + "/a/x", ""},
	} {
		n := newNode(t)
		n.write(c.mounts, "proc/1/mountinfo")
		for _, file := range strings.Fields(c.files) {
			n.write("", file)
		}
		dir := ""
		if h := n.perfEvent(n.Node("/a")); h != nil {
			dir = h.dir.Path() + "/a"
		}
		assert.Equal(t, c.want, strings.TrimPrefix(strings.TrimPrefix(dir, n.Root()), "/"), name)
	}
}
