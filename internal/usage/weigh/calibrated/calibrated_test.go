// SPDX-License-Identifier: Apache-2.0

package calibrated

import (
	"fmt"
	"math"
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
	f := observed(&Model{}, usual.samples(60, 1)).At(0)
	require.NotNil(t, f)
	assert.InEpsilon(t, usual.static, f.Static, 0.05)
	for k, joules := range usual.joules {
		assert.InEpsilon(t, joules, f.Joules[k], 0.05, k)
	}
}

func TestTheFirstFitNeedsTenSamples(t *testing.T) {
	m, samples := &Model{}, usual.samples(60, 1)
	n := 0
	for m.At(0) == nil {
		m.Observe(samples[n])
		n++
	}
	assert.Equal(t, 10, n)
	assert.NotNil(t, observed(&Model{Options: Options{Fewest: 3}}, samples[:3]).At(0))
	t.Attr("smartwatts-start", fmt.Sprint(n, " samples"))
}

// The last sample is 50 W higher, so that the layer is fitted again.
func TestAFitUsesTheLastSixtySamples(t *testing.T) {
	samples := usual.samples(200, 1)
	samples[199].Watts += 50
	for history, o := range map[int]Options{60: {}, 30: {History: 30}} {
		m := observed(&Model{Options: o}, samples)
		used := 0
		for n := range 200 {
			if fit, _ := newFit(samples[len(samples)-n:], math.Inf(1)); fit == *m.At(0) {
				used = n
			}
		}
		assert.Equal(t, history, used)
		if history == 60 {
			t.Attr("smartwatts-window", fmt.Sprint(used, " samples"))
		}
	}
}

func TestALayerIsFittedAgainAboveTwoWatts(t *testing.T) {
	isRefined := func(o Options, off float64) bool { // off in W
		m := observed(&Model{Options: o}, usual.samples(60, 1))
		fits, s := m.Fits(), usual.samples(1, 2)[0]
		s.Watts = m.At(0).Watts(&s.Rates) + off
		m.Observe(s)
		return m.Fits() > fits
	}
	last, first := 0., 0.01
	for ; first < 10 && !isRefined(Options{}, first); first += 0.02 {
		last = first
	}
	assert.InDelta(t, 2, first, 0.011)
	assert.False(t, isRefined(Options{}, -last))
	assert.True(t, isRefined(Options{}, -first))
	assert.True(t, isRefined(Options{Threshold: 1}, 1.01))
	t.Attr("smartwatts-threshold", fmt.Sprintf("not at %.2f W, at %.2f W", last, first))
}

// The power without events is 150 W. The slope is the slope of a line through 125 W.
func TestTheStaticPowerIsAtMostTheTDP(t *testing.T) {
	samples := law{150, Rates{40e-9, 0, 0}}.samples(60, 1)
	low, high := observed(&Model{Options: Options{MaxStatic: 125}}, samples).At(0), observed(&Model{Options: Options{MaxStatic: 200}}, samples).At(0)
	assert.InDelta(t, 125, low.Static, 0)
	assert.Greater(t, low.Joules[0], high.Joules[0])
	assert.InEpsilon(t, 150, high.Static, 0.01)
	t.Attr("smartwatts-tdp", fmt.Sprint(low.Static, " W"))
}

// A package of a current server draws up to 320 W, 300 W of them at rest.
func TestAPackageAboveTheTDPOfOthersIsFittedOnce(t *testing.T) {
	m := observed(&Model{}, law{300, Rates{20e-9, 0, 0}}.samples(600, 1))
	assert.Equal(t, 1, m.Fits())
	assert.InEpsilon(t, 300, m.At(0).Static, 0.01)
}

func TestPowerThatNoEventExplainsHasNoModel(t *testing.T) {
	falling := law{100, Rates{-50e-9, 0, 0}}.samples(60, 1)
	for i := range falling {
		falling[i].Rates[1], falling[i].Rates[2] = 0, 0
	}
	for name, samples := range map[string][]Sample{
		"constant power": law{static: 50}.samples(60, 1), "no events": make([]Sample, 60), "power that falls with load": falling,
	} {
		assert.Nil(t, observed(&Model{}, samples).At(0), name)
	}
}

func TestNoEventHasNegativeEnergyAndNoMachineNegativeStaticPower(t *testing.T) {
	f := observed(&Model{}, law{static: -5, joules: Rates{30e-9, -1e-9, 2e-6}}.samples(60, 1)).At(0)
	require.NotNil(t, f)
	assert.Zero(t, f.Static)
	assert.Zero(t, f.Joules[1])
	assert.Positive(t, f.Joules[0])
}

// The first law has a quarter of the active power of the second.
func TestAModelIsFittedAgainWhenItsEstimateIsOff(t *testing.T) {
	before, after := law{20, Rates{10e-9, 0, 0}}, law{20, Rates{40e-9, 0, 0}}
	m := observed(&Model{}, before.samples(60, 1))
	fits := m.Fits()
	observed(m, before.samples(60, 2))
	assert.Equal(t, fits, m.Fits(), "the estimates were right")
	observed(m, after.samples(60, 3))
	assert.Greater(t, m.Fits(), fits)
	assert.InEpsilon(t, after.joules[0], m.At(0).Joules[0], 0.05)
}

func TestEachClockRateHasItsOwnFitAndOthersTheNearest(t *testing.T) {
	m := &Model{}
	for clock, joules := range map[int]float64{10: 10e-9, 30: 40e-9} {
		samples := law{20, Rates{joules, 0, 0}}.samples(60, 1)
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
	m := observed(&Model{}, usual.samples(60, 1))
	i, samples := 0, law{30, usual.joules}.samples(1000, 2)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		m.Observe(samples[i])
		samples[i].Watts += float64(i)
		i++
		_ = m.At(3)
	}))
}
