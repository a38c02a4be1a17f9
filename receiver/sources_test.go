// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// exactSource reports that it accounts for all CPU time.
type exactSource struct {
	*cpu.Procfs
}

func (exactSource) Traits() cpu.Traits {
	return cpu.Traits{Name: "exact", Traits: proc.Traits{Exact: true, ChildTimes: true}}
}

// openAs returns a function for the scraper's open that opens the test's source.
func openAs(open func(o cpu.Options) cpu.Source) func(cpu.Options) (*cpu.Reader, error, error) {
	return func(o cpu.Options) (*cpu.Reader, error, error) { return cpu.NewReader(open(o), o), nil, nil }
}

// use replaces the CPU time source. The node's earlier CPU time stays counted.
func (n *testNode) use(source cpu.Source) {
	n.t.Helper()
	require.NoError(n.t, n.s.node.CPU.Close())
	n.s.node.CPU = cpu.NewReader(source, cpu.Options{
		Root: n.host.Root(), Kind: n.s.cfg.CPUTime, Window: n.window, Cgroups: n.s.node.Cgroups,
		Names: n.s.cfg.Series.Processes.GroupBy != config.GroupByPID,
	})
}

// replaceSource makes procfs replace a source that fails.
func (n *testNode) replaceSource() {
	n.t.Helper()
	n.use(&failingSource{Procfs: cpu.NewProcfs(cpu.Options{Root: n.host.Root()}), fail: errRefused})
	for range 3 {
		n.run(0, nil)
	}
	require.False(n.t, n.s.node.CPU.Exact())
	n.run(0, nil)
}

// openExact makes the node start with an exact source.
func (n *testNode) openExact() {
	n.s.node.Probes.Open = openAs(func(o cpu.Options) cpu.Source { return exactSource{cpu.NewProcfs(o)} })
}
