// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// fakeEvents are events whose rates, or whose error, a test sets.
type fakeEvents struct {
	rates  Rates
	err    error
	closed bool
}

func (e *fakeEvents) Rates(time.Time) (Rates, error) { return e.rates, e.err }

func (e *fakeEvents) Close() error {
	e.closed = true
	return nil
}

func TestPowerFollowsCPUTimeAndEvents(t *testing.T) {
	idle := 5.0
	e := &fakeEvents{rates: Rates{Cycles: 2e9}}
	c := ZoneCurve{Kind: power.Package, Needs: []Feature{CPUTime, Cycles}, Function: func(r *Rates) float64 {
		return 10 + r[CPUTime]/1000 + r[Cycles]*1e-9
	}}
	assert.InDelta(t, 10, c.IdleWatts(), 0)
	c.Idle = &idle
	assert.InDelta(t, 5, c.IdleWatts(), 0, "stated apart")
	m := New(e, c)
	readModel(t, m, load(0, 0, 0))
	assert.Equal(t, units.Energy(32e6), readModel(t, m, load(2*time.Second, 8, 16)).Total, "4 of 8 CPUs were busy")

	e.err = errors.New("no counter")
	rs, err := m.Read(t.Context(), load(3*time.Second, 10, 24))
	require.ErrorIs(t, err, e.err)
	assert.Equal(t, after(2*time.Second), rs[0].At)
	e.err = ErrRestarted
	assert.Equal(t, units.Energy(32e6), readModel(t, m, load(4*time.Second, 12, 32)).Total)
	e.err = nil
	assert.Equal(t, units.Energy(32e6+3*14e6), readModel(t, m, load(5*time.Second, 14, 40)).Total, "the energy since the last good read")

	e.rates = Rates{}
	_, err = m.Read(t.Context(), load(6*time.Second, 14.09, 48))
	require.NoError(t, err, "the node hardly ran")
	_, err = m.Read(t.Context(), load(7*time.Second, 14.2, 56))
	require.ErrorContains(t, err, "do not count")
	require.NoError(t, m.Close())
	assert.True(t, e.closed)
}

func TestAFunctionsPowerIsBounded(t *testing.T) {
	// A package is all of the node's CPU sockets.
	for rate, want := range map[float64]float64{-1: 0, 4000: 4000, 1e300: power.MaxPlatformWatts} {
		m := New(&fakeEvents{rates: Rates{Block: rate}}, ZoneCurve{Kind: power.Package, Function: func(r *Rates) float64 { return r[Block] }})
		readModel(t, m, load(0, 0, 0))
		assert.Equal(t, units.Energy(want*1e6), readModel(t, m, load(time.Second, 1, 1)).Total)
	}
}
