// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// An interval of nodes that are entered, inside each other, gone, watched and held.
func TestAnIntervalAllocatesNothing(t *testing.T) {
	for name, n := range map[string]*node{"files stay open": newNode(t), "opened each time": newNode(t), "guarded": newGuarded(t)} {
		if name != "files stay open" {
			n.kept.Most = 0
		}
		n.WatchFrom(1)
		n.set(units.Second, "/a", "/a/b", "/c", "/empty", "/a/watched")
		n.write("anon N0=1\nfile_mapped N0=1\n", v2, "c/memory.numa_stat")
		in := []*Node{n.Enter("/a", true), n.Enter("/a/b", true), n.Enter("/c", false), n.Enter("/gone", true)}
		n.Node("/empty")
		watched, past := n.Watch([]byte("0::/a/watched\n")), make([]Past, 0, 8)
		var memory uint64
		place := func(_, amount uint64) { memory += amount }
		assert.Zero(t, testing.AllocsPerRun(20, func() {
			n.ReadCPUTime()
			n.Ahead()
			for i, a := range in {
				n.Enter(a.path, true).Leave()
				a.Account(int32(i), ms)
				_ = n.Request(a, time.Time{}.Add(1))
			}
			n.ShortLived(2*units.Tick, 0, func(*Node, int32, units.CPUTime, bool) {})
			assert.NoError(t, n.NUMAStat("/c", place))
			past = n.AppendPast(past[:0])
			n.Sweep()
		}), name)
		assert.True(t, watched.StoodStill(), name)
		assert.NotEmpty(t, past, name)
		assert.NotZero(t, memory, name)
	}
}
