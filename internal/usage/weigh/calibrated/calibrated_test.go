// SPDX-License-Identifier: Apache-2.0

package calibrated

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// law is a power in watts that is linear in the rates of events.
type law struct {
	static float64
	joules Rates
}

// samples returns n samples of a law, at random rates of up to 1e9 cycles, 1e9 instructions and 1e7 cache misses per
// second.
func (l law) samples(n int, seed uint64) (samples []Sample) {
	r := rand.New(rand.NewPCG(seed, 1))
	for range n {
		rates := Rates{1e9 * r.Float64(), 1e9 * r.Float64(), 1e7 * r.Float64()}
		fit := Fit{l.static, l.joules}
		samples = append(samples, Sample{Rates: rates, Watts: fit.Watts(&rates)})
	}
	return samples
}

func observed(m *Model, samples []Sample) *Model {
	for _, s := range samples {
		m.Observe(s)
	}
	return m
}

var usual = law{static: 20, joules: Rates{10e-9, 5e-9, 2e-6}}

func TestAModelFindsTheEnergyOfEachEvent(t *testing.T) {
	f := observed(&Model{}, usual.samples(History, 1)).At(0)
	require.NotNil(t, f)
	assert.InEpsilon(t, usual.static, f.Static, 0.05)
	for k, joules := range usual.joules {
		assert.InEpsilon(t, joules, f.Joules[k], 0.05, k)
	}
}

func TestNothingIsEstimatedBeforeTheFewestSamples(t *testing.T) {
	m := observed(&Model{}, usual.samples(Fewest-1, 1))
	assert.Nil(t, m.At(0))
	assert.NotNil(t, observed(m, usual.samples(1, 2)).At(0))
}

func TestPowerThatNoEventExplainsHasNoModel(t *testing.T) {
	falling := law{100, Rates{-50e-9, 0, 0}}.samples(History, 1)
	for i := range falling {
		falling[i].Rates[1], falling[i].Rates[2] = 0, 0
	}
	for name, samples := range map[string][]Sample{
		"constant power": law{static: 50}.samples(History, 1), "no events": make([]Sample, History), "power that falls with load": falling,
	} {
		assert.Nil(t, observed(&Model{}, samples).At(0), name)
	}
}

func TestNoEventHasNegativeEnergyAndNoMachineNegativeStaticPower(t *testing.T) {
	f := observed(&Model{}, law{static: -5, joules: Rates{30e-9, -1e-9, 2e-6}}.samples(History, 1)).At(0)
	require.NotNil(t, f)
	assert.Zero(t, f.Static)
	assert.Zero(t, f.Joules[1])
	assert.Positive(t, f.Joules[0])
}

// The first law has a quarter of the active power of the second.
func TestAModelIsFittedAgainWhenItsEstimateIsOff(t *testing.T) {
	before, after := law{20, Rates{10e-9, 0, 0}}, law{20, Rates{40e-9, 0, 0}}
	m := observed(&Model{}, before.samples(History, 1))
	fits := m.Fits()
	observed(m, before.samples(History, 2))
	assert.Equal(t, fits, m.Fits(), "the estimates were right")
	observed(m, after.samples(History, 3))
	assert.Greater(t, m.Fits(), fits)
	assert.InEpsilon(t, after.joules[0], m.At(0).Joules[0], 0.05)
}

func TestEachClockRateHasItsOwnFitAndOthersTheNearest(t *testing.T) {
	m := &Model{}
	for clock, joules := range map[int]float64{10: 10e-9, 30: 40e-9} {
		samples := law{20, Rates{joules, 0, 0}}.samples(History, 1)
		for i := range samples {
			samples[i].Layer = clock
		}
		observed(m, samples)
	}
	for clock, joules := range map[int]float64{0: 10e-9, 10: 10e-9, 19: 10e-9, 20: 10e-9, 21: 40e-9, 30: 40e-9, 50: 40e-9} {
		assert.InEpsilon(t, joules, m.At(clock).Joules[0], 0.05, clock)
	}
}

func TestAModelAllocatesNothingOnceItHasItsLayers(t *testing.T) {
	m := observed(&Model{}, usual.samples(History, 1))
	i, samples := 0, law{30, usual.joules}.samples(1000, 2)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		m.Observe(samples[i])
		samples[i].Watts += float64(i)
		i++
		_ = m.At(3)
	}))
}
