// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Any user can make such processes. If each of 20,000 were followed on its own, a scan would take
// ten seconds.
func TestTheCostOfTracingChildrenIsInProportionToTheProcesses(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
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
		"a line does not wait for children that end": {func(pid int32) int32 { return pid - 1 }, func(h *host, n int32) {
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
			began := cpuTime(t)
			s.End(h.node)
			return cpuTime(t) - began
		}
		few, many := cost(1000), cost(8000)
		for range 3 { // other programs use the caches
			if many < 30*few {
				break
			}
			few, many = max(few, cost(1000)), min(many, cost(8000))
		}
		t.Logf("%s: %v for 1,000 and %v for 8,000 processes", name, few, many)
		require.Less(t, many, 30*few, "%s: eight times as many processes, not 64 times as much", name)
	}
}

// cpuTime returns the CPU time of the thread.
func cpuTime(t *testing.T) time.Duration {
	var now unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now))
	return time.Duration(now.Nano())
}
