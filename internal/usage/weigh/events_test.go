// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// share returns a share of CPU time in ms whose events were counted.
func share(cpu int, counted ...uint64) *Share {
	s := &Share{CPU: units.CPUTime(cpu) * ms, Counted: len(counted) > 0}
	copy(s.Events[:], counted)
	return s
}

func works(shares []*Share) (works []uint64) {
	for _, s := range shares {
		works = append(works, s.Work)
	}
	return works
}

func TestClaimsAreWeighedByTheirEvents(t *testing.T) {
	for event, want := range map[proc.Event][]uint64{
		proc.Cycles: {3e8, 1e8, 2e8}, proc.Instructions: {1e8, 3e8, 2e8}, proc.CacheMisses: {0, 4e6, 2e6},
	} {
		m := NewEvents(event)
		shares := []*Share{share(100, 3e8, 1e8, 0), share(100, 1e8, 3e8, 4e6), share(100)}
		measured, err := m.Weigh(began, shares)
		require.NoError(t, err)
		assert.True(t, measured)
		for i, work := range works(shares) {
			assert.InDelta(t, float64(want[i]), float64(work), 1, "%v %d: a claim without counts has the mean rate", event, i)
		}
		require.NoError(t, m.Close())
	}
}

func TestWithoutCountsNoEventsAreMeasured(t *testing.T) {
	m := NewEvents(proc.Instructions)
	for _, c := range []struct {
		after    time.Duration
		shares   []*Share
		measured bool
		err      error
	}{
		{0, []*Share{share(100), share(50)}, false, nil}, // as after the start
		{uncountedFor - 1, []*Share{share(100)}, false, nil},
		{uncountedFor, []*Share{share(100)}, false, errUncounted},
		{uncountedFor, nil, true, errUncounted}, // no process ran, and the error is unchanged
		{uncountedFor, []*Share{share(100, 3, 1)}, true, nil},
		{uncountedFor + time.Second, []*Share{share(100)}, false, nil},
	} {
		measured, err := m.Weigh(began.Add(c.after), c.shares)
		assert.Equal(t, c.measured, measured, "after %v", c.after)
		require.ErrorIs(t, err, c.err, "after %v", c.after)
	}
}

// A virtual machine may have counters that stay 0.
func TestCountersThatCountNothingAreFake(t *testing.T) {
	m := NewEvents(proc.CacheMisses)
	run := func(cpu int, misses uint64) (bool, error) {
		return m.Weigh(began, []*Share{share(cpu, 1e9, 1e9, misses)})
	}
	measured, err := run(900, 0)
	assert.True(t, measured, "a short time without misses")
	require.NoError(t, err)
	measured, err = run(100, 0)
	assert.False(t, measured)
	require.ErrorIs(t, err, errCountless)
	measured, err = run(100, 1)
	assert.True(t, measured)
	require.NoError(t, err)
}

func TestMemoryReplacesMissesThatAreNotCounted(t *testing.T) {
	m := NewMisses()
	counted := []*Share{share(100, 1, 1, 6e6), share(300, 1, 1, 2e6)}
	measured, err := m.Weigh(began, counted)
	require.NoError(t, err)
	assert.True(t, measured)
	assert.InDeltaSlice(t, []float64{6e6, 2e6}, []float64{float64(counted[0].Work), float64(counted[1].Work)}, 1)

	uncounted := []*Share{share(100), share(300), share(0)}
	uncounted[0].Resident, uncounted[1].Resident = 1<<30, 3<<30
	uncounted[2].Resident, uncounted[2].Held = 1<<30, time.Second
	measured, err = m.Weigh(began, uncounted)
	require.NoError(t, err, "the default rule is not in error")
	assert.True(t, measured)
	for i, want := range []float64{0.8e6, 7.2e6, 0} {
		assert.InDelta(t, want, float64(uncounted[i].Work), 10, "the mean rate of the misses before")
	}
	for range 2 {
		measured, err = m.Weigh(began, []*Share{share(1000, 1, 1, 0)})
		require.ErrorIs(t, err, errMissless)
		assert.True(t, measured, "fake counters")
	}
}

// The weights of the intervals before have another scale, and a slow meter measures the energy of
// all of them at once.
func TestTheFirstMissesAfterOtherWeightsAreNotUsed(t *testing.T) {
	m, one := NewMisses(), share(100)
	one.Resident = 1 << 30
	for i, c := range []struct {
		shares   []*Share
		measured bool
	}{
		{[]*Share{one}, true},
		{nil, true}, // no process ran
		{[]*Share{share(100, 1, 1, 6e6)}, false},
		{[]*Share{share(100, 1, 1, 6e6)}, true},
		{[]*Share{one}, true},
		{[]*Share{share(100, 1, 1, 6e6)}, true},
	} {
		measured, err := m.Weigh(began, c.shares)
		require.NoError(t, err)
		assert.Equal(t, c.measured, measured, "interval %d", i)
	}
}
