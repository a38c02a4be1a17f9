// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// fakeModel is a model whose state the test sets.
type fakeModel struct {
	trained       map[int]bool
	standardError map[int]float64
}

func (*fakeModel) Active(p attribution.Portion) units.Energy { return p.Energy + 1 }
func (m *fakeModel) Trained(domain int) bool                 { return m.trained[domain] }
func (m *fakeModel) Provisional(domain int) bool {
	return !m.trained[domain] && m.standardError[domain] < 0
}
func (m *fakeModel) StandardError(domain int) float64 { return m.standardError[domain] }

func TestAKindIsTrainedOnceItIsInAllItsDomains(t *testing.T) {
	none := map[int]float64{0: -1, 1: -1, 2: -1}
	for name, c := range map[string]struct {
		model         fakeModel
		state         attribution.ModelState
		standardError float64
	}{
		"neither":                     {fakeModel{nil, none}, attribution.Provisional, -1},
		"one of them":                 {fakeModel{map[int]bool{1: true}, map[int]float64{1: 2, 2: -1}}, attribution.Provisional, -1},
		"both":                        {fakeModel{map[int]bool{1: true, 2: true}, map[int]float64{1: 3, 2: 4}}, attribution.Trained, 5},
		"both, one unknown":           {fakeModel{map[int]bool{1: true, 2: true}, map[int]float64{1: 3, 2: -1}}, attribution.Trained, -1},
		"both, the other":             {fakeModel{map[int]bool{1: true, 2: true}, map[int]float64{1: -1, 2: 3}}, attribution.Trained, -1},
		"a domain without zone":       {fakeModel{map[int]bool{1: true, 2: true}, map[int]float64{0: 9, 1: 3, 2: 4}}, attribution.Trained, 5},
		"neither, but both estimated": {fakeModel{nil, map[int]float64{1: 3, 2: 4}}, attribution.Estimated, 5},
	} {
		e := ledger.New(ledger.Config{Rules: attribution.Rules{
			Models: [attribution.MaxKinds]attribution.StaticPowerModel{&c.model},
		}}, time.Unix(0, 0))
		iv := attribution.Interval{
			Elapsed: time.Second, Domains: make([]attribution.Usage, 3),
			Zones: []attribution.ZoneReading{{Zone: 0, Domain: 1, OK: true}, {Zone: 1, Domain: 2, OK: true}},
		}
		e.Observe(&iv)
		k := &e.Ledger().Kinds[0]
		assert.Equal(t, c.state, k.Model, name)
		assert.InDelta(t, c.standardError, k.StandardError, 1e-12, name)
		assert.False(t, k.Shared, name)
		assert.Equal(t, attribution.NoModel, e.Ledger().Kinds[1].Model)
	}
}

func TestAKindTellsWhatItsPrecisionDependsOn(t *testing.T) {
	e := ledger.New(ledger.Config{Rules: attribution.Rules{
		Models: [attribution.MaxKinds]attribution.StaticPowerModel{&fakeModel{}},
	}}, time.Unix(0, 0))
	iv := attribution.Interval{
		Resolution: units.Tick, Domains: []attribution.Usage{{Total: 1}, {Total: 1}},
		Zones: []attribution.ZoneReading{{Zone: 0, OK: true}, {Zone: 1, OK: true}, {Zone: 2, Kind: 1, OK: true}, {Zone: 3, Domain: 1, OK: true}},
	}
	e.Observe(&iv)
	kinds := &e.Ledger().Kinds
	assert.Zero(t, kinds[0].Windows, "a baseline")
	iv.Elapsed = time.Second
	iv.Zones[2].OK = false
	e.Observe(&iv)
	e.Observe(&iv)
	assert.Equal(t, units.Tick, e.Ledger().Resolution)
	assert.Equal(t, 2, kinds[0].Windows)
	assert.Zero(t, kinds[1].Windows, "its zone could not be read")
	assert.True(t, kinds[0].Shared, "two zones in one of its domains")
	assert.False(t, kinds[1].Shared)
	e.Emitted()
	assert.Zero(t, kinds[0].Windows)
	iv.Resolution = 0
	e.Observe(&iv)
	assert.Zero(t, e.Ledger().Resolution)
	assert.Equal(t, 1, kinds[0].Windows)
}

func TestNoModelMakesMoreActiveThanThereIs(t *testing.T) {
	e := ledger.New(ledger.Config{Rules: attribution.Rules{
		Models: [attribution.MaxKinds]attribution.StaticPowerModel{&fakeModel{}},
	}}, time.Unix(0, 0))
	iv := attribution.Interval{
		Elapsed: time.Second, Domains: []attribution.Usage{{Total: 1}}, Zones: []attribution.ZoneReading{{OK: true}},
	}
	e.Observe(&iv)
	iv.Zones[0].Total = units.Joule
	e.Observe(&iv)
	assert.Equal(t, units.Joule, e.Ledger().Kinds[0].Active)
	assert.Zero(t, e.Ledger().Kinds[0].Idle)
}
