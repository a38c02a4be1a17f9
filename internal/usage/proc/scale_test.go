// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Any user can make such processes. If each of 20,000 were followed on its own, a scan would take ten seconds.
func TestTheCostOfTracingChildrenIsInProportionToTheProcesses(t *testing.T) {
	// Each shape changes a host of processes 1 to n. Process n+i is a child of process i.
	for name, shape := range map[string]struct {
		parent func(pid int32) int32
		change func(h *host, n int32)
	}{
		"a line of processes ends": {func(pid int32) int32 { return pid - 1 }, func(h *host, n int32) {
			for pid := int32(2); pid <= n; pid++ {
				delete(h.all, pid)
				delete(h.all, n+pid)
			}
		}},
		"no process of a line waits for its child that ends": {func(pid int32) int32 { return pid - 1 }, func(h *host, n int32) {
			for pid := int32(2); pid <= n; pid++ {
				delete(h.all, n+pid)
			}
		}},
		"many processes wait for a child": {func(int32) int32 { return 1 }, func(h *host, n int32) {
			for pid := int32(2); pid <= n; pid++ {
				h.run(n+pid, tick, 0)
				h.end(n + pid)
			}
		}},
	} {
		cost := func(n int32) time.Duration {
			least := time.Duration(math.MaxInt64)
			for range 5 {
				h := watch(t, tickTraits)
				for pid := int32(2); pid <= n; pid++ {
					h.add(pid, shape.parent(pid))
					h.add(n+pid, pid)
					h.run(n+pid, 10*tick, 0)
				}
				h.scan()
				shape.change(h, n)
				s := h.see()
				s.MissRemaining()
				began := time.Now()
				s.End(h.node)
				least = min(least, time.Since(began))
			}
			return least
		}
		few := cost(1000)
		many := cost(8000)
		assert.Less(t, many, 30*few, "%s: eight times as many processes, not 64 times as much", name)
		t.Log(name, few, many)
	}
}
