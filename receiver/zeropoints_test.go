// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"

	"github.com/energyreceiver/energyreceiver/receiver/internal/emit/emittest"
)

// zeroPoints returns when the zero points of a metric are, and how many there are.
func (n *testNode) zeroPoints(metric string, resource ...string) (at []time.Time) {
	for _, rm := range n.md.ResourceMetrics().All() {
		matches := true
		for i := 0; i < len(resource); i += 2 {
			v, ok := rm.Resource().Attributes().Get(resource[i])
			matches = matches && ok && v.AsString() == resource[i+1]
		}
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			for i, p := range dataPoints(m).All() {
				if matches && m.Name() == metric && emittest.IsZeroPoint(dataPoints(m), i) {
					at = append(at, p.Timestamp().AsTime())
				}
			}
		}
	}
	return at
}

func nodeWithJob(t *testing.T, edit ...func(*testNode)) *testNode {
	n := newTestNode(t, func(c *Config) { c.Metrics.ProcessCPUTime.Enabled = true })
	for _, f := range edit {
		f(n)
	}
	n.process(20, "app")
	n.start()
	n.run(100*joule, map[int]int64{20: 100})
	n.newborn(10, docker(idA))
	return n
}

func TestNewSeriesBeginsWithAZeroPointOnce(t *testing.T) {
	n := nodeWithJob(t)
	for _, metric := range []string{"hw.energy", "system.energy", "system.unattributed.energy", "process.energy", "process.cpu.time"} {
		assert.NotEmpty(t, n.zeroPoints(metric), "%s in the first collection", metric)
	}
	n.run(100*joule, map[int]int64{10: 300})
	for _, metric := range []string{"process.energy", "process.cpu.time", "container.energy"} {
		value := n.one(metric, "container.id="+idA)
		assert.Equal(t, []time.Time{value.start.Add(time.Millisecond)}, n.zeroPoints(metric, "container.id", idA), metric)
	}
	assert.Empty(t, n.zeroPoints("system.energy"))
	assert.Empty(t, n.zeroPoints("process.energy", "process.pid", "20"))
	assert.Empty(t, n.zeroPoints("process.power"), "a gauge has none")
	n.run(100*joule, map[int]int64{10: 300})
	assert.Empty(t, n.zeroPoints("process.energy"))
	assert.Empty(t, n.zeroPoints("container.energy"))
}

func TestZeroPointThatWasRefusedForGoodIsNotRepeated(t *testing.T) {
	n := nodeWithJob(t)
	n.refuse = consumererror.NewPermanent(errRefused)
	n.run(100*joule, map[int]int64{10: 300})
	require.Len(t, n.zeroPoints("container.energy"), 1)
	n.run(100*joule, map[int]int64{10: 300})
	assert.Empty(t, n.zeroPoints("container.energy"), "a store that refuses old points must not refuse for ever")
}

func TestZeroPointThatWasTakenInPartIsNotRepeated(t *testing.T) {
	n := nodeWithJob(t)
	n.host.Run(10*time.Second, map[int]int64{10: 300})
	n.host.Zones["intel-rapl:0"].Energy += 100 * joule
	require.NoError(t, n.host.Render())
	md, err := n.s.scrape(t.Context())
	require.NoError(t, err)
	n.md = md
	require.Len(t, n.zeroPoints("container.energy"), 1)
	n.s.delivered(delivery{some: true})
	n.run(100*joule, map[int]int64{10: 300})
	assert.Empty(t, n.zeroPoints("container.energy"), "the next consumer may have the part with the series")
}

func TestOtherContainersHaveTheirZeroPointAfterTheLastCollectionThatWasTaken(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Series.Containers.Max = 1 })
	n.process(20, "b", docker(idB))
	n.start()
	n.run(100*joule, map[int]int64{20: 900})
	taken := n.stamp()
	n.newborn(10, docker(idA))
	n.run(100*joule, map[int]int64{10: 300})
	zero := n.zeroPoints("container.energy")
	require.Len(t, zero, 1)
	assert.Equal(t, taken.Add(time.Millisecond), zero[0])
}
