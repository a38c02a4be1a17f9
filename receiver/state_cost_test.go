// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/internal/test/allocs"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/state"
)

// fullNode returns a node whose totals are kept, with 500 processes in 100 containers, all of which have series.
func fullNode(t *testing.T) *testNode {
	n := newTestNode(t, func(c *Config) { c.Storage = storageID.String() })
	n.host.Files = map[string]string{bootIDFile: "0d6f8e5e-0b4e-4d0c-9d0e-6f1f6f2b7d11\n"}
	used := map[int]int64{}
	for i := range 500 {
		id := fmt.Sprintf("%064x", i%100)
		n.host.Processes[1000+i] = &hostsim.Process{Parent: 1, Comm: "server", Exe: "/usr/local/bin/server", Cgroup: docker(id)}
		used[1000+i] = 2
	}
	n.extensions = map[component.ID]component.Component{storageID: &memoryStorage{stored: map[string][]byte{}}}
	n.start()
	n.host.CPUs = 2
	n.run(300*joule, used)
	n.run(300*joule, used)
	return n
}

func TestTheStateOf500ProcessesIsSmallAndTakesHardlyAnAllocation(t *testing.T) {
	n := fullNode(t)
	require.Len(t, n.points("process.energy", nil), 502)
	stored := n.extensions[storageID].(*memoryStorage).stored
	save := func() { n.s.state.Save(t.Context(), n.s.now, n.s.ledger.Models(), n.s.noteTotals, false) }
	save()
	require.NoError(t, n.s.state.Err())
	assert.Less(t, len(stored[state.Key]), 160_000)
	assert.LessOrEqual(t, allocs.Count(20, save), uint64(20*60), "none for each process")
}
