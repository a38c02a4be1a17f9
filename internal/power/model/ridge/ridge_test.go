// SPDX-License-Identifier: Apache-2.0

package ridge

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// law is a power in watts that is linear in the rates.
type law [events]float64

// samples returns samples of a second with random rates, which are independent of each other.
func (l law) samples(n int, seed uint64) (samples []Sample) {
	r := rand.New(rand.NewPCG(seed, 1))
	for range n {
		s := Sample{Seconds: 1, Base: 16 * r.Float64(), Instructions: 3e10 * r.Float64(), Misses: 2e8 * r.Float64()}
		s.Watts = l[0]*s.Base + l[1]*s.Instructions + l[2]*s.Misses
		samples = append(samples, s)
	}
	return samples
}

func observed(m *Model, samples []Sample) *Model {
	for _, s := range samples {
		m.Observe(s)
	}
	return m
}

func fitted(t *testing.T, m *Model) Coefficients {
	c, ok := m.Coefficients()
	require.True(t, ok)
	return c
}

var usual = law{4, 1e-9, 2e-7}

func TestAWeakRidgeFindsTheLaw(t *testing.T) {
	c := fitted(t, observed(New(1e-6), usual.samples(1000, 1)))
	assert.InEpsilon(t, usual[0], c.Base, 1e-3)
	assert.InEpsilon(t, usual[1], c.Instructions, 1e-3)
	assert.InEpsilon(t, usual[2], c.Misses, 1e-3)
}

func TestAStrongRidgeIsTheBasicWeight(t *testing.T) {
	c := fitted(t, observed(New(1e9), usual.samples(1000, 1)))
	assert.InEpsilon(t, c.Mean, c.Base, 1e-6)
	assert.InDelta(t, c.Mean*8, c.Watts(8, 3e10, 2e8), 1e-3)
}

// A node with one program has rates in proportion to each other.
func TestRatesInProportionAreTheBasicWeight(t *testing.T) {
	samples := law{5}.samples(1000, 1)
	for i := range samples {
		s := &samples[i]
		s.Instructions, s.Misses = 2e9*s.Base, 1e7*s.Base
	}
	c := fitted(t, observed(&Model{}, samples))
	assert.InEpsilon(t, 5, c.Base, 1e-6)
	assert.InDelta(t, 0, c.Instructions*2e9+c.Misses*1e7, 1e-6)
}

func TestNoCoefficientIsNegative(t *testing.T) {
	c := fitted(t, observed(&Model{}, law{8, -1e-9, 2e-7}.samples(1000, 1)))
	assert.Zero(t, c.Instructions)
	assert.Positive(t, c.Base)
	assert.Positive(t, c.Misses)
}

func TestEventsThatNeverOccurHaveNoEnergy(t *testing.T) {
	samples := usual.samples(100, 1)
	for i := range samples {
		samples[i].Misses = 0
	}
	c := fitted(t, observed(&Model{}, samples))
	assert.Zero(t, c.Misses)
	assert.Positive(t, c.Instructions)
}

func TestOldSamplesLoseTheirWeight(t *testing.T) {
	m := observed(&Model{}, law{4}.samples(3600, 1))
	c := fitted(t, observed(m, law{8}.samples(3600, 2)))
	assert.InEpsilon(t, 8, c.Mean, 0.03)
	assert.InEpsilon(t, c.Mean, c.Watts(1, 0, 0), 0.05)
}

// A sample of ten seconds has the weight of ten samples of a second.
func TestTheWeightOfASampleIsItsLength(t *testing.T) {
	short, long := &Model{}, &Model{}
	for _, s := range usual.samples(100, 1) {
		for range 10 {
			short.Observe(s)
		}
		s.Seconds = 10
		long.Observe(s)
	}
	a, b := fitted(t, short), fitted(t, long)
	assert.InEpsilon(t, a.Instructions, b.Instructions, 0.02)
	assert.InEpsilon(t, a.Mean, b.Mean, 0.02)
}

func TestNothingIsFittedBeforeAMinuteOrToImpossibleSamples(t *testing.T) {
	m := observed(&Model{}, usual.samples(fewest, 1))
	_, ok := m.Coefficients()
	assert.False(t, ok, "the first samples have lost some weight")
	c := fitted(t, observed(m, usual.samples(10, 2)))
	for _, wrong := range []func(*Sample){
		func(s *Sample) { s.Seconds = 0 },
		func(s *Sample) { s.Base = 0 },
		func(s *Sample) { s.Misses = -1 },
		func(s *Sample) { s.Instructions = math.Inf(1) },
		func(s *Sample) { s.Base = math.NaN() },
		func(s *Sample) { s.Watts = math.NaN() },
	} {
		s := usual.samples(1, 3)[0]
		wrong(&s)
		m.Observe(s)
		assert.Equal(t, c, fitted(t, m))
	}
	_, ok = observed(&Model{}, law{-1}.samples(1000, 1)).Coefficients()
	assert.False(t, ok, "power that falls with load")
}

// An event that counts something else after an update may occur 100 times as often.
func TestAnEventThatChangesItsMeaningIsBounded(t *testing.T) {
	c := fitted(t, observed(&Model{}, usual.samples(1000, 1)))
	for _, s := range usual.samples(100, 2) {
		for _, times := range []float64{0, 100, 1e6} {
			perBase := c.Watts(s.Base, s.Instructions, times*s.Misses) / (c.Mean * s.Base)
			assert.LessOrEqual(t, perBase, mostPerBase*1.000001)
			assert.GreaterOrEqual(t, perBase, 0.999999/mostPerBase)
		}
	}
	assert.Zero(t, c.Watts(0, 1e9, 1e6), "events without CPU time")
}

func TestARestoredModelGoesOn(t *testing.T) {
	m := observed(New(0.1), usual.samples(500, 1))
	r := New(0.1)
	require.True(t, r.Restore(m.State()))
	assert.Equal(t, fitted(t, m), fitted(t, r))
	more := usual.samples(10, 2)
	assert.Equal(t, fitted(t, observed(m, more)), fitted(t, observed(r, more)))
	assert.True(t, r.Restore((&Model{}).State()))
	_, ok := r.Coefficients()
	assert.False(t, ok)
}

func TestAnImpossibleStateIsNotRestored(t *testing.T) {
	m := observed(&Model{}, usual.samples(500, 1))
	before, state := fitted(t, m), m.State()
	assert.False(t, m.Restore(nil))
	assert.False(t, m.Restore(append(state, 1)))
	for i := range state {
		wrong := []float64{math.NaN(), math.Inf(-1)}
		if i != 1 && i != 5 && i != 8 { // sums of products with the power
			wrong = append(wrong, -1, 1e-9*state[i]*float64(min(i, 1))) // less than the other sums imply
		}
		if i == 3 || i == 4 || i == 7 {
			wrong[3] = 1e9 * state[i]
		}
		for _, value := range wrong {
			broken := slices.Clone(state)
			broken[i] = value
			assert.False(t, m.Restore(broken), "%g for number %d", value, i)
		}
	}
	parallel := slices.Clone(state)
	parallel[3], parallel[4], parallel[7] = math.Sqrt(state[2]*state[6]), math.Sqrt(state[2]*state[9]), 0
	assert.False(t, m.Restore(parallel), "two rates in proportion to the base, but not to each other")
	assert.Equal(t, before, fitted(t, m))
}

func TestAModelAllocatesNothing(t *testing.T) {
	m := observed(&Model{}, usual.samples(100, 1))
	s := usual.samples(1, 2)[0]
	assert.Zero(t, testing.AllocsPerRun(100, func() { m.Observe(s); _, _ = m.Coefficients() }))
}

func BenchmarkObserveAndFit(b *testing.B) {
	samples := usual.samples(1000, 1)
	m := observed(&Model{}, samples)
	for i := 0; b.Loop(); i++ {
		m.Observe(samples[i%len(samples)])
		_, _ = m.Coefficients()
	}
}
