// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
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

// reads makes the node start with a source that reads procfs.
func (n *testNode) reads(procfs **cpu.Procfs, source cpu.Source) {
	n.opens(func(o cpu.Options) cpu.Source {
		*procfs = cpu.NewProcfs(o)
		return source
	})
}

// replaceSource makes procfs replace a source that fails.
func (n *testNode) replaceSource(source *failingSource) {
	n.t.Helper()
	source.fail = errRefused
	for range 3 {
		n.run(0, nil)
	}
	require.True(n.t, n.isReplaced())
	n.run(0, nil)
}

// isReplaced reports whether procfs has replaced the CPU time source.
func (n *testNode) isReplaced() bool {
	return n.logs.FilterMessage("CPU time source replaced by procfs").Len() > 0
}

// openExact makes the node start with an exact source.
func (n *testNode) openExact() {
	n.opens(func(o cpu.Options) cpu.Source { return exactSource{cpu.NewProcfs(o)} })
}

// opens makes the node start with a source.
func (n *testNode) opens(source func(o cpu.Options) cpu.Source) {
	n.machine.OpenCPU = openAs(source)
}

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
