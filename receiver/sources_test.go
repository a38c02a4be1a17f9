// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/internal/power"
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
		Root: n.host.Root(), Kind: n.cfg.CPUTime, Window: n.window, Cgroups: n.s.node.Cgroups,
		Names: n.cfg.Series.Processes.GroupBy != config.GroupByPID,
	})
}

// replaceSource makes procfs replace a source that fails.
func (n *testNode) replaceSource() {
	n.t.Helper()
	n.use(&failingSource{Procfs: cpu.NewProcfs(cpu.Options{Root: n.host.Root()}), fail: errRefused})
	for range 3 {
		n.run(0, nil)
	}
	require.False(n.t, n.isExact())
	n.run(0, nil)
}

// openExact makes the node start with an exact source.
func (n *testNode) openExact() {
	n.opens(func(o cpu.Options) cpu.Source { return exactSource{cpu.NewProcfs(o)} })
}

// opens makes the node start with a source.
func (n *testNode) opens(source func(o cpu.Options) cpu.Source) {
	n.machine.OpenCPU = openAs(source)
}

// isExact reports whether the CPU time source in use is exact.
func (n *testNode) isExact() bool { return n.s.node.CPU.Exact() }

// openOnly returns a function that opens these meters only.
func openOnly(members ...power.Member) func(context.Context, *Config, component.Host, component.TelemetrySettings) (*power.Set, error) {
	return func(context.Context, *Config, component.Host, component.TelemetrySettings) (*power.Set, error) {
		return power.NewSet(members...), nil
	}
}

// useMeters makes the node start with these meters only.
func (n *testNode) useMeters(members ...power.Member) {
	n.machine.OpenMeters = openOnly(members...)
}

// take replaces the CPU time source, and starts over with it.
func (n *testNode) take(source cpu.Source) {
	n.t.Helper()
	n.use(source)
	n.s.ledger.Claims = nil
	n.s.node.Cgroups.Restart()
	n.s.sample()
}
