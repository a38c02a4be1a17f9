// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/patience"
	"github.com/energyreceiver/energyreceiver/internal/power"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// slow is a receiver whose calls are slow.
type slow struct {
	takes  time.Duration
	fails  error
	closed bool
}

func (s *slow) Start(context.Context) error { time.Sleep(s.takes); return nil }
func (s *slow) Collect(context.Context) (pmetric.Metrics, error) {
	time.Sleep(s.takes)
	return pmetric.NewMetrics(), s.fails
}
func (s *slow) Attributed() []power.Reading             { return make([]power.Reading, 1) }
func (s *slow) Trained() map[power.Class]bool           { return nil }
func (s *slow) ExpectedErrors() map[power.Class]float64 { return nil }
func (s *slow) Notes() []energyreceiver.Note            { return nil }
func (s *slow) Waits() bool                             { return true }
func (s *slow) Shutdown(context.Context) error          { s.closed = true; return nil }

func meterOf(ctx context.Context, e embedded) *meter {
	return &meter{embedded: e, ctx: ctx, guard: patience.Guard{Grace: hangsAfter}}
}

func TestACallThatHangsIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		m := meterOf(t.Context(), s)
		require.NoError(t, m.start())
		assert.Len(t, m.attributed, 1)
		assert.True(t, m.waits)

		s.takes = time.Minute
		began := time.Now()
		require.ErrorIs(t, m.measure(t.Context()), errHangs)
		assert.Equal(t, hangsAfter, time.Since(began))
		assert.Len(t, m.attributed, 1, "as before")
		require.ErrorIs(t, m.close(), errHangs)
		assert.False(t, s.closed)

		time.Sleep(time.Minute)
		assert.False(t, m.guard.Blocked())
		s.takes = 0
		require.NoError(t, m.measure(t.Context()))
		require.NoError(t, m.close())
		assert.True(t, s.closed)
	})
}

func TestASignalEndsAStartThatHangs(t *testing.T) {
	interrupted := errors.New("interrupted")
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { stop(interrupted) })
		m := meterOf(ctx, &slow{takes: time.Hour})
		began := time.Now()
		assert.Equal(t, interrupted, m.start())
		assert.Equal(t, time.Minute+hangsAfter, time.Since(began))
		require.ErrorIs(t, m.close(), errHangs)
		time.Sleep(time.Hour)
	})
}

func TestAStartOfTheAccountThatFailsLeavesItAsItIs(t *testing.T) {
	failed := errors.New("failed")
	m := meterOf(t.Context(), &slow{fails: failed})
	m.account.FromZero = true
	require.Equal(t, failed, m.restart(t.Context()))
	assert.True(t, m.account.FromZero, "energy counts from the start of the meter")
}
