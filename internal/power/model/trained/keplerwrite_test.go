// SPDX-License-Identifier: Apache-2.0

package trained

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

var (
	writtenFeatures = []model.Feature{model.CPUTime, model.Cycles}
	writtenScales   = []float64{32_000, 1e9}
)

// writtenTrees returns two trees, each of 1 W below 5e8 cycles per second and of 3 W from there on.
func writtenTrees(t *testing.T) *Component {
	t.Helper()
	tree := Tree{Left: []int{1, -1, -1}, Right: []int{2, -1, -1}, Features: []int{1, 0, 0}, Conditions: []float32{0.5, 1, 3}}
	c, err := NewTrees(writtenFeatures, writtenScales, []Tree{tree, tree}, 1./3)
	require.NoError(t, err)
	return c
}

func TestAWrittenModelPredictsAsBefore(t *testing.T) {
	linear, err := NewLinear(writtenFeatures, writtenScales, []float64{100, 10}, 20)
	require.NoError(t, err)
	idle, busy := model.Rates{}, model.Rates{model.CPUTime: 16_000, model.Cycles: 2e9}
	for trainer, c := range map[string]struct {
		component  *Component
		idle, busy float64
	}{
		"SGDRegressorTrainer": {linear, 20, 90},
		"XgboostFitTrainer":   {writtenTrees(t), 2 + 1./3, 6 + 1./3},
	} {
		for _, dynamic := range []bool{false, true} {
			c.component.Error = 0.25
			m := KeplerModel{Trainer: trainer, Dynamic: dynamic, Machine: xeon, Zones: map[power.Kind]*Component{power.DRAM: c.component}}
			data, err := m.Encode()
			require.NoError(t, err)
			again, err := parse(data, "m.json")
			require.NoError(t, err)
			assert.Equal(t, exact, again.fit(&xeon))
			assert.Equal(t, dynamic, again.dynamic)
			require.Len(t, again.zones, 1)
			z := again.zones[power.DRAM].(*keplerZone)
			assert.InDelta(t, 0.25, z.relativeError(), 0)
			assert.InDelta(t, c.idle, z.at(&idle), 1e-6)
			assert.InDelta(t, c.busy, z.at(&busy), 1e-6)
			assert.InDelta(t, c.component.Watts(&busy), z.at(&busy), 0)
		}
	}
}

// XGBoost 1.7.4 fails to load a tree with an integer as a condition, and ignores a base_score in
// double precision.
func TestXGBoostCanLoadTheTrees(t *testing.T) {
	text := string(writtenTrees(t).weights.XGBoost)
	assert.Contains(t, text, `"split_conditions":[0.5,1E0,3E0]`)
	assert.Contains(t, text, `"base_score":"3.3333334E-01"`)
}
