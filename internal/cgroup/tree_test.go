// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
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
