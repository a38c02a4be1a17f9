// SPDX-License-Identifier: Apache-2.0

package training

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/pack"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

func TestAStateSaysWhetherAStaticPowerIsProvisional(t *testing.T) {
	for _, provisional := range []bool{false, true} {
		zone := trainedZone{Rule: "trained", State: static.State{Zones: 1, Static: 142, InUse: true, Provisional: provisional, Estimator: []float64{1}}}
		before := Models{Hardware: []string{"a"}, Zones: map[string]trainedZone{"package": zone}}
		after := restored(t, before)
		assert.Equal(t, before.Zones["package"].State, after.Zones["package"].State)
	}
}

// Versions before State.Provisional wrote InUse alone.
func TestAnEarlierStateHasNoProvisionalStaticPower(t *testing.T) {
	for _, inUse := range []bool{false, true} {
		want := trainedZone{Rule: "trained", State: static.State{Zones: 1, Static: 142, InUse: inUse, Estimator: []float64{1, 2}}}
		w := pack.NewWriter(nil)
		pack.String(w, &want.Rule)
		pack.Slice(w, &want.Hardware, pack.String)
		pack.Int(w, &want.Zones)
		w.Bools(&want.InUse)
		w.Float(&want.Static)
		pack.Slice(w, &want.Estimator, (*pack.Packer).Float)
		var got trainedZone
		r := pack.NewReader(w.Bytes())
		packTrained(r, &got)
		require.NoError(t, r.End())
		assert.Equal(t, want.State, got.State)
	}
}

// curveOfPackages returns a model that restore prepared for zones of packages, and restore for other zones.
func curveOfPackages(t *testing.T) (model *static.Model, restore func(...power.Zone)) {
	cfg := simpleConfig()
	cfg.RootPath, cfg.Attribution.StaticPower = t.TempDir(), allStatic(config.StaticTrained)
	kinds, domains := cfg.LedgerKinds(), []units.Domain{units.NodeCPUs}
	rules := cfg.Attribution.Rules(kinds, cfg.Zones)
	l := &Training{cfg: cfg, logger: zap.NewNop()}
	i := slices.Index(kinds, claims.Kind{Zone: power.Package, Source: power.Measured})
	return rules.Models[i].(*static.Model), func(zones ...power.Zone) {
		var readings []power.Reading
		for i := range zones {
			readings = append(readings, power.Reading{Zone: &zones[i]})
		}
		l.Note(Zones{&rules, kinds, domains})
		l.Restore(Zones{&rules, kinds, domains}, readings)
	}
}

func TestASensorThatReplacesACounterHasSamplesOfASecond(t *testing.T) {
	model, restore := curveOfPackages(t)
	observe := func() (weight float64) {
		model.Active(attribution.Portion{
			Energy: 10 * units.Joule, Total: units.Second, Elapsed: 100 * time.Millisecond, Zones: 1, Of: 1, OfAll: 1,
		})
		state, _ := model.State(0)
		for i := 0; i < len(state.Estimator); i += 6 {
			weight += state.Estimator[i]
		}
		return weight
	}
	counter := power.Zone{ID: "intel-rapl:0", Kind: power.Package, Source: power.Measured, Prompt: true}
	restore(counter)
	assert.InDelta(t, 0.1, observe(), 1e-9)
	restore(power.Zone{ID: "hwmon:0", Kind: power.Package, Source: power.Measured})
	assert.Zero(t, model.StaticPower(0), "the counter's estimate")
	for range 9 {
		assert.Zero(t, observe())
	}
	assert.InDelta(t, 1, observe(), 1e-9)
	restore(counter)
	assert.InDelta(t, 0.1, observe(), 1e-9)
}
