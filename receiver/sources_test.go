// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// exactSource reports that it accounts for all CPU time.
type exactSource struct {
	*cpu.Procfs
}

func (exactSource) Exact() bool { return true }

// openAs returns a function for the scraper's open that opens the test's source.
func openAs(open func(root string) cpu.Source) func(cpu.Options) (*cpu.Reader, error, error) {
	return func(o cpu.Options) (*cpu.Reader, error, error) { return cpu.NewReader(open(o.Root), o), nil, nil }
}

// use replaces the CPU time source. The node's earlier CPU time stays counted.
func (n *testNode) use(source cpu.Source) {
	n.t.Helper()
	require.NoError(n.t, n.s.cpu.Close())
	n.s.cpu = cpu.NewReader(source, cpu.Options{
		Root: n.host.Root(), Kind: n.s.cfg.CPUTime, Window: n.window, BeforeScan: n.s.readCgroups,
		Names: n.s.cfg.Series.Processes.GroupBy != GroupByPID,
	})
}

// replaceSource makes procfs replace a source that fails.
func (n *testNode) replaceSource() {
	n.t.Helper()
	n.use(&failingSource{Procfs: cpu.NewProcfs(n.host.Root()), fail: errRefused})
	for range 3 {
		n.run(0, nil)
	}
	require.False(n.t, n.s.cpu.Source().Exact())
	n.run(0, nil)
}

// openExact makes the node start with an exact source.
func (n *testNode) openExact() {
	n.s.open = openAs(func(root string) cpu.Source { return exactSource{cpu.NewProcfs(root)} })
}

// energies runs a recorded workload whose processes use a fraction of a tick in each interval. It returns the energy of
// each process, by a source that infers and by one that does not.
func energies(t *testing.T, exact bool) (billed [3]float64) {
	n := newTestNode(t)
	for i := range billed {
		n.host.Processes[10+i] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/bin/app"}
	}
	n.start()
	if exact {
		n.use(exactSource{cpu.NewProcfs(n.host.Root())})
		n.s.ledger = nil
		n.s.sample()
	}
	// 137.7, 50.2 and 0.9 ticks in each interval of 10 s. /proc shows the sum rounded down.
	truth, shown := [3]float64{}, [3]int64{}
	for range 20 {
		used := map[int]int64{}
		for i, ticks := range []float64{137.7, 50.2, 0.9} {
			truth[i] += ticks
			used[10+i] = int64(truth[i]) - shown[i]
			shown[i] = int64(truth[i])
		}
		n.run(100*joule, used)
	}
	for i := range billed {
		billed[i] = n.sum("process.energy", nil, pid(10+i))
	}
	return billed
}

func TestBothCPUTimeSourcesAttributeAlikeWithinATick(t *testing.T) {
	byProcfs, byExact := energies(t, false), energies(t, true)
	const joulesPerTick = 0.1 // 100 J in the 1,000 ticks of ten seconds
	for i := range byProcfs {
		assert.InDelta(t, byExact[i], byProcfs[i], joulesPerTick)
		assert.Positive(t, byExact[i])
	}
}
