// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/power/model/calibrated"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// modeled is a machine of two containers that run at 1 GHz, with a meter whose energy follows its
// events: 20 W, 4 nJ for an instruction and 1 µJ for a cache miss.
type modeled struct {
	t        *testing.T
	kernels  map[Event]*kernel
	tree     *cgroup.Tree
	events   *Events
	at       time.Time
	total    units.Energy
	second   int
	shares   [2]*Share
	measured bool  // by the latest call of Weigh
	err      error // of the latest call of Weigh
}

func newModeled(t *testing.T) *modeled {
	m := &modeled{t: t, kernels: map[Event]*kernel{}, tree: cgroup.New(cgroup.Options{Root: "/nowhere"}), at: began, shares: [2]*Share{{}, {}}}
	for _, e := range modelEvents {
		m.kernels[e] = newKernel(m.tree, "/a", "/b")
	}
	m.events = &Events{open: func(_ *cgroup.Tree, e Event) (counts, error) { return m.kernels[e], nil }}
	return m
}

// run lasts a second: container a executes instructions without cache misses, and b has cache
// misses too.
func (m *modeled) run(models ...*Model) {
	a, b := 200+uint64(100*(m.second%7)), 200+uint64(100*(m.second%5)) // ms of CPU time
	count := func(e Event, ofA, ofB uint64) {
		m.kernels[e].counted["/a"] += ofA
		m.kernels[e].counted["/b"] += ofB
		m.kernels[e].counted[""] += ofA + ofB
	}
	count(Cycles, 1e6*a, 1e6*b)
	count(Instructions, 2e6*a, 5e5*b)
	count(CacheMisses, 0, 1e4*b)
	m.total += units.Energy(1e6 * (20 + 4e-9*(2e6*float64(a)+5e5*float64(b)) + 1e-6*1e4*float64(b)))
	m.at, m.second = m.at.Add(time.Second), m.second+1
	*m.shares[0] = Share{CPU: units.CPUTime(a) * ms, Cgroup: m.tree.Node("/a")}
	*m.shares[1] = Share{CPU: units.CPUTime(b) * ms, Cgroup: m.tree.Node("/b")}
	for _, model := range models {
		m.weigh(model)
	}
}

// weigh weighs the shares of the second.
func (m *modeled) weigh(model *Model) {
	model.Calibrate(m.total, m.at)
	m.measured, m.err = model.Weigh(m.at, m.shares[:])
}

func (m *modeled) open() *Model {
	model, err := NewModel(m.events, m.tree)
	require.NoError(m.t, err)
	return model
}

func TestAModelWeighsByThePowerThatEventsCause(t *testing.T) {
	m := newModeled(t)
	model := m.open()
	for i := range calibrated.History {
		m.run(model)
		require.NoError(t, m.err)
		assert.Equal(t, i >= calibrated.Fewest, m.measured, "interval %d after the baseline", i)
	}
	a, b := m.shares[0], m.shares[1]
	// 2e9 instructions a second are 8 W, and 5e8 with 1e7 cache misses are 12 W.
	assert.InEpsilon(t, 8.0/12, float64(a.Work)/float64(a.CPU)/(float64(b.Work)/float64(b.CPU)), 0.03)
	require.NoError(t, model.Close())
}

func TestModelsShareTheirCounters(t *testing.T) {
	m := newModeled(t)
	first, second := m.open(), m.open()
	for range calibrated.Fewest + 1 {
		m.run(first, second)
	}
	assert.NotNil(t, first.fit)
	assert.Equal(t, first.fit, second.fit)
	for _, k := range m.kernels {
		assert.Equal(t, 3, k.total, "of everything and of two containers")
	}
	require.NoError(t, first.Close())
	assert.NotEmpty(t, m.kernels[Cycles].opened)
	m.run(second)
	require.NoError(t, second.Close())
	for _, k := range m.kernels {
		assert.Empty(t, k.opened)
	}
	third := m.open()
	assert.NotEmpty(t, m.kernels[Cycles].opened)
	require.NoError(t, third.Close())
}

// The meter is read every third interval, when its energy is that of three seconds.
func TestASampleLastsFromOneReadingToTheNext(t *testing.T) {
	m := newModeled(t)
	model := m.open()
	for i := range 3 * calibrated.History {
		m.run()
		if i%3 == 0 {
			model.Calibrate(m.total, m.at)
		}
		_, err := model.Weigh(m.at, m.shares[:])
		require.NoError(t, err)
	}
	require.NotNil(t, model.fit)
	assert.InDelta(t, 20, model.fit.Static, 1)
}

func TestAModelIsNotFittedToOtherZonesOrIncompleteCounts(t *testing.T) {
	for name, disturb := range map[string]func(*modeled, *Model){
		"other zones":           func(m *modeled, _ *Model) { m.total /= 2 },
		"work that was dropped": func(_ *modeled, model *Model) { model.Forget() },
		"other CPUs online":     func(m *modeled, _ *Model) { m.kernels[Cycles].others = true },
		"a failed read":         func(m *modeled, _ *Model) { m.kernels[Instructions].refused[""] = errors.New("refused") },
	} {
		m := newModeled(t)
		model := m.open()
		for range calibrated.Fewest { // the baseline and one sample less than the fewest
			m.run(model)
		}
		disturb(m, model)
		m.run(model)
		assert.Nil(t, model.fit, name)
		for _, k := range m.kernels {
			clear(k.refused)
		}
		for range 12 { // a counter that failed is opened again after 10 s, and counts from then on
			m.run(model)
		}
		assert.NotNil(t, model.fit, name)
	}
}

// Interrupts alone cause cycles with next to no CPU time of processes.
func TestTheNumberOfLayersIsBounded(t *testing.T) {
	m := newModeled(t)
	model := m.open()
	for i := range 3 * calibrated.History {
		m.run()
		m.shares[0].CPU, m.shares[1].CPU = units.CPUTime(i), 0
		m.weigh(model)
		require.NoError(t, m.err)
	}
	assert.NotNil(t, model.model.At(maxLayer), "implausible rates are one layer")
	assert.Less(t, model.model.Layers(), maxLayer)
}

func TestAModelIsFittedWithoutAnEventThatNeverOccurs(t *testing.T) {
	for silent, want := range map[Event]error{Cycles: errCountless, Instructions: nil, CacheMisses: nil} {
		m := newModeled(t)
		model := m.open()
		for range calibrated.Fewest + 5 {
			before := maps.Clone(m.kernels[silent].counted)
			m.run()
			m.kernels[silent].counted = before
			m.weigh(model)
			if m.second > 5 {
				require.ErrorIs(t, m.err, want, silent)
			}
		}
		assert.True(t, m.measured, silent)
	}
}

func TestAModelNeedsAllEvents(t *testing.T) {
	m := newModeled(t)
	refused := errors.New("not counted")
	m.events.open = func(_ *cgroup.Tree, e Event) (counts, error) {
		if e == CacheMisses {
			return nil, refused
		}
		return m.kernels[e], nil
	}
	_, err := NewModel(m.events, m.tree)
	require.ErrorIs(t, err, refused)
	assert.Empty(t, m.kernels[Cycles].opened)
}
