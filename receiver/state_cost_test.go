// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/internal/test/allocs"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
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
	require.NoError(t, n.s.state.noteTotals(n.s.now(), n.s.noteTotals))
	state := encodeState(nil, &n.s.state.Training.trained, &n.s.state.saved)
	assert.Less(t, len(state), 160_000)
	buffer := state
	encode := func() {
		require.NoError(t, n.s.state.noteTotals(n.s.now(), n.s.noteTotals))
		buffer = encodeState(buffer[:0], &n.s.state.Training.trained, &n.s.state.saved)
	}
	assert.LessOrEqual(t, allocs.Count(20, encode), uint64(20*30), "none for each process")
	if !testing.Verbose() {
		return
	}
	t.Logf("%d bytes; taking and encoding them: %v", len(state), testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			encode()
		}
	}))
	t.Logf("decoding them: %v", testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var trained trainedModels
			var totals savedTotals
			require.NoError(b, decodeState(state, &trained, &totals, n.s.state.boot, time.Now(), n.s.state.saved.clocks))
		}
	}))
}
