// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power/model/ridge"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// modeled is a machine of two programs that run at 1 GHz, with a meter whose energy follows its
// events: 20 W of static power, 4 nJ for an instruction and 1 µJ for a cache miss.
type modeled struct {
	total     units.Energy
	at        time.Time
	trainable bool

	second   int
	shares   [2]*Share
	measured bool  // by the latest call of Weigh
	err      error // of the latest call of Weigh
}

func newModeled() *modeled {
	return &modeled{at: began, trainable: true, shares: [2]*Share{{}, {}}}
}

// run lasts a second: the first program executes instructions without cache misses, and the second
// has cache misses too.
func (m *modeled) run() {
	a, b := 200+uint64(100*(m.second%7)), 200+uint64(100*(m.second%5)) // ms of CPU time
	m.total += units.Energy(1e6 * (20 + 4e-9*(2e6*float64(a)+5e5*float64(b)) + 1e-6*1e4*float64(b)))
	m.at, m.second = m.at.Add(time.Second), m.second+1
	*m.shares[0] = *share(int(a), 1e6*a, 2e6*a, 0)
	*m.shares[1] = *share(int(b), 1e6*b, 5e5*b, 1e4*b)
}

// weigh weighs the shares of the second.
func (m *modeled) weigh(by *ByRate) {
	by.Calibrate(m.total, 1, m.at, m.trainable)
	m.measured, m.err = by.Weigh(m.at, m.shares[:])
}

// ratio returns the weight of CPU time of the first program, relative to the second program.
func (m *modeled) ratio() float64 {
	a, b := m.shares[0], m.shares[1]
	return float64(a.Work) / float64(a.CPU) / (float64(b.Work) / float64(b.CPU))
}

func TestAModelWeighsByThePowerThatEventsCause(t *testing.T) {
	m, fitted := newModeled(), ridge.New(1e-6)
	model := NewModel(fitted)
	var works []float64
	for range 200 {
		m.run()
		m.weigh(model)
		require.NoError(t, m.err)
		require.True(t, m.measured)
		works = append(works, float64(m.shares[0].Work+m.shares[1].Work)/float64(m.shares[0].CPU+m.shares[1].CPU))
		if m.second == 10 {
			assert.InDelta(t, 1, m.ratio(), 1e-6, "CPU time by clock rate before the first fit")
		}
	}
	// 2e9 instructions a second are 8 W, and 5e8 with 1e7 cache misses are 12 W.
	assert.InEpsilon(t, 8.0/12, m.ratio(), 0.01)
	assert.InDelta(t, works[0], works[199], 0.2, "weights before and after a fit have one scale")
	c, ok := fitted.Coefficients()
	require.True(t, ok)
	assert.InDelta(t, 10, c.Mean, 1, "static power is not caused by CPU time")
	require.NoError(t, model.Close())
}

func TestSmartWattsWeighsByThePowerThatEventsCause(t *testing.T) {
	m, model := newModeled(), NewSmartWatts(SmartWattsOptions{})
	for i := range 60 {
		m.run()
		m.weigh(model)
		require.NoError(t, m.err)
		assert.Equal(t, i >= 10, m.measured, "interval %d after the baseline", i)
	}
	assert.InEpsilon(t, 8.0/12, m.ratio(), 0.03)
	t.Attr("event-energy", fmt.Sprintf("%.2f", m.ratio()))
	assert.InDelta(t, 20, model.source.(*layers).fit.Static, 1)
	require.NoError(t, model.Close())
}

// The meter is read every third interval, when its energy is that of three seconds.
func TestASampleLastsFromOneReadingToTheNext(t *testing.T) {
	m, model := newModeled(), NewSmartWatts(SmartWattsOptions{})
	for i := range 180 {
		m.run()
		if i%3 == 0 {
			model.Calibrate(m.total, 1, m.at, m.trainable)
		}
		_, err := model.Weigh(m.at, m.shares[:])
		require.NoError(t, err)
	}
	require.NotNil(t, model.source.(*layers).fit)
	assert.InDelta(t, 20, model.source.(*layers).fit.Static, 1)
}

// The state of a ridge model shows whether a sample was used.
func TestModelsAreNotFittedToOtherZonesOrIncompleteCounts(t *testing.T) {
	for name, disturb := range map[string]func(*modeled, *ByRate, *ByRate){
		"other zones":                func(m *modeled, _, _ *ByRate) { m.total /= 2 },
		"work that was dropped":      func(_ *modeled, a, b *ByRate) { a.Forget(); b.Forget() },
		"no counts":                  func(m *modeled, _, _ *ByRate) { m.shares[0].Counted = false },
		"rates of an earlier window": func(m *modeled, _, _ *ByRate) { m.trainable = false },
	} {
		m, of, smart := newModeled(), &ridge.Model{}, NewSmartWatts(SmartWattsOptions{})
		model := NewModel(of)
		weigh := func() { m.weigh(model); m.weigh(smart) }
		for range 10 { // the baseline, and one sample less than the minimum
			m.run()
			weigh()
		}
		before := of.State()
		m.run()
		disturb(m, model, smart)
		weigh()
		assert.Equal(t, before, of.State(), name)
		assert.Nil(t, smart.source.(*layers).fit, name)
		m.trainable = true
		m.run()
		weigh()
		assert.NotEqual(t, before, of.State(), name)
		assert.NotNil(t, smart.source.(*layers).fit, name)
	}
}

// Interrupts alone cause cycles with next to no CPU time of processes.
func TestTheNumberOfLayersIsBounded(t *testing.T) {
	m, model := newModeled(), NewSmartWatts(SmartWattsOptions{})
	for i := range 180 {
		m.run()
		m.shares[0].CPU, m.shares[1].CPU = units.CPUTime(i), 0
		m.weigh(model)
		require.NoError(t, m.err)
	}
	assert.NotNil(t, model.source.(*layers).model.At(100), "implausible rates are one layer")
	assert.Less(t, model.source.(*layers).model.Layers(), 100)
}

func TestModelsAreFittedWithoutAnEventThatNeverOccurs(t *testing.T) {
	for silent, want := range map[proc.Event]error{proc.Cycles: errCountless, proc.Instructions: nil, proc.CacheMisses: nil} {
		m, model, smart := newModeled(), NewModel(&ridge.Model{}), NewSmartWatts(SmartWattsOptions{})
		for range 100 {
			m.run()
			m.shares[0].Events[silent], m.shares[1].Events[silent] = 0, 0
			for _, by := range []*ByRate{model, smart} {
				m.weigh(by)
				if m.second > 10 {
					require.ErrorIs(t, m.err, want, silent)
					assert.Equal(t, want == nil, m.measured)
				}
			}
		}
	}
}

// A scan may find cycles before the CPU time in which they were counted.
func TestAnImpossibleClockRateIsBounded(t *testing.T) {
	assert.InDelta(t, 0.1, baseOf(share(100, 1e8)), 1e-9)
	assert.InDelta(t, 0.001*maxClock*maxClock, baseOf(share(1, 1e9)), 1e-9)
	discounted := share(100, 2e8)
	discounted.Discount = 40 * ms
	assert.InDelta(t, 0.24, baseOf(discounted), 1e-9)
	assert.Zero(t, baseOf(share(100)))
}

// The static power is at most 15 W for each of two zones: 20 W are below the limit.
func TestTheStaticPowerIsBoundedForEachZone(t *testing.T) {
	for zones, want := range map[int]float64{1: 15, 2: 20} {
		o := SmartWattsOptions{}
		o.MaxStatic = 15
		m, model := newModeled(), NewSmartWatts(o)
		for range 60 {
			m.run()
			model.Calibrate(m.total, zones, m.at, true)
			_, err := model.Weigh(m.at, m.shares[:])
			require.NoError(t, err)
		}
		assert.InDelta(t, want, model.source.(*layers).fit.Static, 1, zones)
	}
}

// The programs run at 1 and at 1.04 GHz: both in layer 10 of 100 MHz, in layers 20 and 21 of 50 MHz.
func TestALayerIsAMultipleOfTheBaseClock(t *testing.T) {
	for clock, layers := range map[float64]int{0: 1, 100: 1, 50: 2} {
		m, model := newModeled(), NewSmartWatts(SmartWattsOptions{BaseClock: clock})
		for range 60 {
			m.run()
			for _, s := range m.shares {
				s.Events[proc.Cycles] += uint64(m.second%2) * s.Events[proc.Cycles] / 25
			}
			m.weigh(model)
		}
		assert.Equal(t, layers, layersOf(model).model.Layers(), clock)
	}
}

func layersOf(by *ByRate) *layers { return by.source.(*layers) }
