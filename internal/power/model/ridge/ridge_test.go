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

// law is a power in watts that is linear in the terms.
type law [terms]float64

// samples returns samples of a second with random rates, which are independent of each other.
func (l law) samples(n int, seed uint64) (samples []Sample) {
	r := rand.New(rand.NewPCG(seed, 1))
	for range n {
		s := Sample{Seconds: 1, Base: 16 * r.Float64(), Instructions: 3e10 * r.Float64(), Misses: 2e8 * r.Float64()}
		s.Watts = l[constant] + l[base]*s.Base + l[instructions]*s.Instructions + l[misses]*s.Misses
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

var usual = law{0, 4, 1e-9, 2e-7}

func TestAWeakRidgeFindsTheLawWhateverTheStaticPower(t *testing.T) {
	for _, static := range []float64{0, 20, 200} {
		is := usual
		is[constant] = static
		c := fitted(t, observed(New(1e-5), is.samples(1000, 1)))
		assert.InEpsilon(t, usual[base], c.Base, 0.02, static)
		assert.InEpsilon(t, usual[instructions], c.Instructions, 0.02, static)
		assert.InEpsilon(t, usual[misses], c.Misses, 0.02, static)
	}
}

// The mean power by base includes static power, so it would be a wrong center.
func TestStaticPowerIsNotPowerOfTheBasicWeight(t *testing.T) {
	c := fitted(t, observed(New(0.1), law{500, 0, 1e-9}.samples(1000, 1)))
	assert.Less(t, c.Base*16, 0.5*c.Instructions*3e10)
}

func TestAStrongRidgeIsTheBasicWeight(t *testing.T) {
	c := fitted(t, observed(New(1e6), usual.samples(1000, 1)))
	assert.InEpsilon(t, c.Mean, c.Base, 1e-4)
	assert.InEpsilon(t, c.Mean*8, c.Watts(8, 3e10, 2e8), 1e-4)
}

// A node with one program has rates in proportion to each other.
func TestRatesInProportionAreTheBasicWeight(t *testing.T) {
	for _, static := range []float64{0, 50} {
		samples := law{static, 5}.samples(1000, 1)
		for i := range samples {
			s := &samples[i]
			s.Instructions, s.Misses = 2e9*s.Base, 1e7*s.Base
		}
		c := fitted(t, observed(&Model{}, samples))
		assert.InEpsilon(t, c.Mean, c.Base, 1e-4)
		assert.InDelta(t, 0, c.Instructions*2e9+c.Misses*1e7, 1e-3)
	}
}

func TestNoCoefficientIsNegative(t *testing.T) {
	c := fitted(t, observed(&Model{}, law{5, 8, -1e-9, 2e-7}.samples(1000, 1)))
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
	instructionsOnly, missesOnly := law{0, 0, 2e-9, 0}, law{0, 0, 0, 4e-7}
	m := observed(&Model{}, instructionsOnly.samples(3600, 1))
	before := fitted(t, m)
	after := fitted(t, observed(m, missesOnly.samples(3600, 2)))
	assert.Less(t, after.Instructions, before.Instructions/10)
	assert.Greater(t, after.Misses, 10*before.Misses)
}

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

func TestImpossibleSamplesAndPowerThatFallsWithLoadAreNotFitted(t *testing.T) {
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
	for _, l := range []law{{0, -1}, {}} {
		_, ok = observed(&Model{}, l.samples(1000, 1)).Coefficients()
		assert.False(t, ok, l)
	}
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

func TestARestoredModelContinues(t *testing.T) {
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
	products := 0
	for i := range state {
		wrong := []float64{math.NaN(), math.Inf(1)}
		if !slices.Contains(m.cross[:], state[i]) {
			products++
			wrong = append(wrong, -1)
		}
		for _, value := range wrong {
			broken := slices.Clone(state)
			broken[i] = value
			assert.False(t, m.Restore(broken), "%g for number %d", value, i)
		}
	}
	assert.Equal(t, terms*(terms+1)/2, products)
	broken := slices.Clone(state)
	broken[2] *= 1e6
	assert.False(t, m.Restore(broken), "the product of two rates is too large")
	assert.Equal(t, before, fitted(t, m))
}

// The base is in proportion to instructions and to cache misses, which never occur together.
func TestAContradictoryStateIsNotFittedOrIsFinite(t *testing.T) {
	m := observed(&Model{}, usual.samples(500, 1))
	g := &m.gram
	for i := base; i < misses; i++ {
		g[i][i+1] = math.Sqrt(g[i][i] * g[i+1][i+1])
		g[i+1][i] = g[i][i+1]
	}
	g[base][misses], g[misses][base] = 0, 0
	require.True(t, m.Restore(m.State()))
	c, ok := m.Coefficients()
	assert.True(t, !ok || !math.IsInf(c.Watts(1, 1, 1), 0))
}

func TestAModelAllocatesNothing(t *testing.T) {
	m := observed(&Model{}, usual.samples(100, 1))
	s := usual.samples(1, 2)[0]
	assert.Zero(t, testing.AllocsPerRun(100, func() { m.Observe(s); _, _ = m.Coefficients() }))
}
