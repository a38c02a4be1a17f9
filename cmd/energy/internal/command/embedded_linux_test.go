// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

const container = "measured"

// modeled returns a configuration with a linear curve, so that each second of CPU time has the same energy.
func modeled(idle, full float64) *energyreceiver.Config {
	cfg := energyreceiver.DefaultConfig()
	cfg.Meters.Use = nil
	cfg.Model = configoptional.Some(energyreceiver.ModelConfig{
		Points: []energyreceiver.ModelPoint{{Utilization: 0, Power: idle}, {Utilization: 1, Power: full}},
	})
	return cfg
}

// energies are a ledger's energies of the node and of the container, in microjoules.
type energies struct {
	active, idle, unattributed, container units.Energy
	containers                            int
}

func energiesOf(md pmetric.Metrics) (e energies) {
	for _, rm := range md.ResourceMetrics().All() {
		id, _ := rm.Resource().Attributes().Get("container.id")
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if m.Type() != pmetric.MetricTypeSum {
					continue
				}
				for _, p := range m.Sum().DataPoints().All() {
					uj := units.Energy(math.Round(p.DoubleValue() * 1e6))
					state, _ := p.Attributes().Get("energy.state")
					switch {
					case m.Name() == "system.energy" && state.Str() == "active":
						e.active += uj
					case m.Name() == "system.energy":
						e.idle += uj
					case m.Name() == "system.unattributed.energy":
						e.unattributed += uj
					case m.Name() == "container.energy" && id.Str() == container:
						e.container += uj
						e.containers++
					}
				}
			}
		}
	}
	return e
}

// embed starts the receiver with a group's CPU time source.
func embed(t testing.TB, g *Group, cfg *energyreceiver.Config) *energyreceiver.Embedded {
	t.Helper()
	require.NoError(t, cfg.Validate())
	e, err := energyreceiver.Embed(cfg, energyreceiver.EmbeddedOptions{
		Logger: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)), CPU: g.Source(), Container: container,
		StaticPower: map[power.Class]float64{{Zone: power.Package, Method: power.Modeled}: cfg.Model.Get().Points[0].Power},
	})
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { assert.NoError(t, e.Shutdown(context.Background())) })
	return e
}

func collect(t testing.TB, e *energyreceiver.Embedded) energies {
	t.Helper()
	md, err := e.Collect(t.Context())
	require.NoError(t, err)
	return energiesOf(md)
}

var methods = []Method{CgroupV2, CgroupV1, ChildTimes}

// open makes a group that counts by a method, if this machine has it.
func open(t *testing.T, method Method) *Group {
	t.Helper()
	g, err := newGroup(Options{}, method)
	if err != nil {
		t.Skipf("%s: %v", method, err)
	}
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	return g
}

// eachMethod runs a test with each method.
func eachMethod(t *testing.T, test func(t *testing.T, g *Group)) {
	for _, method := range methods {
		t.Run(string(method), func(t *testing.T) { test(t, open(t, method)) })
	}
}

func run(t testing.TB, g *Group, args ...string) Status {
	t.Helper()
	p, err := g.Start(Command{Args: args})
	require.NoError(t, err)
	status, err := p.Wait()
	require.NoError(t, err)
	return status
}

func TestActiveEnergyIsTheCommandsOrUnattributedToTheMicrojoule(t *testing.T) {
	eachMethod(t, func(t *testing.T, g *Group) {
		e := embed(t, g, modeled(10, 50))
		before := collect(t, e)
		assert.Equal(t, 1, before.containers, "it has a series before it used anything")
		run(t, g, "sh", "-c", `i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; for i in 1 2 3; do true & done; wait`)
		after := collect(t, e)
		assert.Positive(t, after.container)
		assert.Equal(t, after.active, after.container+after.unattributed)
		again := collect(t, e)
		assert.Equal(t, after.container, again.container, "nothing is added after the end")
		assert.Equal(t, again.active, again.container+again.unattributed)
	})
}
