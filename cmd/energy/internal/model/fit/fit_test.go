// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model/trained"
)

// The node after the left child is the right one, which XGBoost 1.7.4 expects.
func TestTheRightChildOfANodeIsNextToTheLeftOne(t *testing.T) {
	var x [][]float64
	var y []float64
	for i := range 100 {
		x, y = append(x, []float64{float64(i)}), append(y, float64(i*i))
	}
	trees, _ := boost(x, y)
	assert.Len(t, trees, boostRounds)
	for _, tree := range trees {
		for i, left := range tree.Left {
			require.True(t, left < 0 || tree.Right[i] == left+1)
		}
	}
}

func TestSamplesWithoutAFeatureAreNotFitted(t *testing.T) {
	_, err := Groups[0].Fit(Linear, []Sample{{Watts: 10}, {Watts: 11}})
	require.EqualError(t, err, "bpf_cpu_time_ms was always 0")
}

func TestTheLargestModelPredictsAsFittedOnceRead(t *testing.T) {
	samples := nx12(t, power.Package)
	fitted, err := Groups[2].Fit(Boosted, samples)
	require.NoError(t, err)
	here := machine.Machine{CPU: "Simulated CPU", Threads: 32, Sockets: 2}
	m := trained.KeplerModel{Trainer: Boosted, Machine: here, Zones: map[power.Kind]*trained.Component{}}
	for _, k := range []power.Kind{power.Platform, power.Package, power.Core, power.Uncore, power.DRAM} {
		m.Zones[k] = fitted.Component
	}
	data, err := m.Encode()
	require.NoError(t, err)
	dir := t.TempDir()
	for i := range 2 * len(Groups) { // for each output type
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.json", i)), data, 0o600))
	}
	curves, err := trained.Curves(dir, here, trained.Options{})
	require.NoError(t, err)
	require.Len(t, curves, 5)
	for _, s := range samples {
		require.InDelta(t, fitted.Watts(&s.Rates), curves[0].Function(&s.Rates), 0)
	}
}
