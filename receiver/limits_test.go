// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

// Ten processes use 1 to 10 J in each collection, and three may have a series.
func TestTheThreeLargestOfTenProcessesHaveTheSeries(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Series.Processes = byPID(ProcessSeriesConfig{MinEnergy: 1, Max: 3}) })
	used := map[int]int64{}
	for i := 1; i <= 10; i++ {
		n.host.Processes[100+i] = &hostsim.Process{Parent: 1, Comm: fmt.Sprint("p", i), Exe: fmt.Sprint("/bin/p", i)}
		used[100+i] = int64(i)
	}
	n.start()
	for range 3 {
		n.run(1000*joule, used) // a joule a tick
	}
	for i := 1; i <= 10; i++ {
		name := attrs{"process.executable.name": fmt.Sprint("p", i)}
		assert.Equal(t, i >= 8, len(n.points("process.energy", name)) > 0, "p%d", i)
	}
	assert.InDelta(t, 3*28, n.sum("process.energy", attrs{"otel.metric.overflow": "true"}), 1e-3)
}

func TestAContainerThatUsesMoreTakesTheSeriesOfTheSmallest(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Series.Containers.Max = 1 })
	n.host.Processes[10] = &hostsim.Process{Parent: 1, Comm: "a", Exe: "/bin/a", Cgroup: docker(idA)}
	n.host.Processes[11] = &hostsim.Process{Parent: 1, Comm: "b", Exe: "/bin/b", Cgroup: docker(idB)}
	n.start()
	n.run(1000*joule, map[int]int64{10: 10})
	n.run(1000*joule, map[int]int64{10: 10, 11: 200})
	energy := func(id string) float64 { return n.sum("container.energy", attrs{"container.id": id}) }
	assert.InDelta(t, 20, energy(idA), 1e-3, "its final value")
	assert.InDelta(t, 200, energy(idB), 1e-3)
	n.run(1000*joule, map[int]int64{10: 10, 11: 200})
	assert.Empty(t, n.points("container.energy", attrs{"container.id": idA}))
	assert.InDelta(t, 400, energy(idB), 1e-3)
	assert.InDelta(t, 10, n.sum("container.energy", attrs{"otel.metric.overflow": "true"}), 1e-3)
}
