// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// heap returns the size of Go's heap after a garbage collection, in bytes.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// allocated returns the sum of all allocations up to now, in bytes.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// crowded is a node whose processes come and go in the directories of /proc only. The simulated host does not count
// them.
type crowded struct {
	*testNode
	proc   string
	now    map[int]bool
	cgroup func(pid int) string // what the cgroup file has
}

func newCrowded(t *testing.T, edit ...func(*Config)) *crowded {
	n := newTestNode(t, edit...)
	n.host.CPUs, n.host.Cached = 64, true
	require.NoError(t, n.host.Render())
	return &crowded{n, filepath.Join(n.host.Root(), "proc"), map[int]bool{}, func(int) string { return "0::/user.slice\n" }}
}

// crowd makes these processes run, and no others of the crowd.
func (c *crowded) crowd(first, n int) {
	c.t.Helper()
	for pid := range c.now {
		if pid < first || pid >= first+n {
			require.NoError(c.t, os.RemoveAll(filepath.Join(c.proc, fmt.Sprint(pid))))
			delete(c.now, pid)
		}
	}
	for pid := first; pid < first+n; pid++ {
		if c.now[pid] {
			continue
		}
		dir := filepath.Join(c.proc, fmt.Sprint(pid))
		require.NoError(c.t, os.Mkdir(dir, 0o755))
		stat := fmt.Sprintf("%d (app) S 1 1 1 0 -1 4194560 0 0 0 0 %d 0 0 0 20 0 1 0 %d 0 0\n", pid, 1+pid%50, c.host.Uptime/(10*time.Millisecond))
		require.NoError(c.t, os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600))
		require.NoError(c.t, os.WriteFile(filepath.Join(dir, "cgroup"), []byte(c.cgroup(pid)), 0o600))
		require.NoError(c.t, os.Symlink(fmt.Sprintf("/usr/lib/postgresql/%d/bin/postgres", pid%20), filepath.Join(dir, "exe")))
		c.now[pid] = true
	}
}

// collect advances by ten seconds, in which init uses one second of CPU time, and collects. With refuse, the
// next consumer refuses the collection. collect returns the last collection.
func (c *crowded) collect(times int) (last pmetric.Metrics) {
	c.t.Helper()
	for range times {
		c.host.Run(10*time.Second, map[int]int64{1: 100})
		c.host.Zones["intel-rapl:0"].Energy += 100 * joule
		init := c.host.Processes[1]
		for name, content := range map[string]string{
			"uptime":  fmt.Sprintf("%.2f 1.00\n", c.host.Uptime.Seconds()),
			"loadavg": fmt.Sprintf("0.00 0.00 0.00 1/%d 1\n", 1+len(c.now)),
			"stat":    fmt.Sprintf("cpu  %d 0 0 %d 0 0 0 0 0 0\nbtime %d\n", c.host.CPU.User, c.host.CPU.Idle, c.host.Booted.Unix()),
			"1/stat":  fmt.Sprintf("1 (init) S 0 1 1 0 -1 4194560 0 0 0 0 %d 0 0 0 20 0 1 0 0 0 0\n", init.User),
		} {
			require.NoError(c.t, os.WriteFile(filepath.Join(c.proc, name), []byte(content), 0o600))
		}
		require.NoError(c.t, os.WriteFile(c.counter("intel-rapl:0"), fmt.Appendln(nil, c.host.Zones["intel-rapl:0"].Energy), 0o600))
		var err error
		last, err = c.s.scrape(c.t.Context())
		require.NoError(c.t, err)
		c.s.delivered(delivery{all: c.refuse == nil, some: c.refuse == nil})
		require.Equal(c.t, 1+len(c.now), c.s.node.CPU.Table().Len())
	}
	return last
}

func TestTenThousandEndedSeriesAreHeldUntilTheyAreAcknowledged(t *testing.T) {
	const processes, held = 10_000, 2300 // held: bytes of a series
	c := newCrowded(t)
	c.startAsIs()
	before := heap()
	c.crowd(1000, processes)
	c.collect(1)
	c.crowd(0, 0)
	c.refuse = errRefused
	c.md = c.collect(3)
	assert.Len(t, c.points("process.energy", nil), processes+2, "init and the overflow series too")
	parts := 0
	_, err := consume(t, c.md, func(_ context.Context, md pmetric.Metrics) error {
		parts++
		assert.LessOrEqual(t, new(pmetric.ProtoMarshaler).MetricsSize(md), maxPart)
		return nil
	})
	require.NoError(t, err)
	assert.Greater(t, parts, 1)
	c.md = pmetric.NewMetrics()
	each := float64(heap()-before) / processes
	t.Logf("%.0f B", each)
	assert.Less(t, each, float64(held))

	c.refuse = nil
	c.md = c.collect(2)
	assert.Len(t, c.points("process.energy", nil), 2, "final values are delivered once")
}
