// SPDX-License-Identifier: Apache-2.0

//go:build linux

package series

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// The sent data agrees with the machine's meters while the receiver runs.
func TestTheHourHasTheEnergyOfTheMachine(t *testing.T) {
	r, m := Hour{Seed: 1, Length: 2 * time.Minute}.Record(t)
	from, to := r.Collections[0].At, r.Truth.End
	sum := func(metric string) (joules float64) { return r.Truth.By(metric, "", "package", from, to)[""] }
	assert.Greater(t, m.Births, 900)
	assert.InDelta(t, r.Truth.Meter("package", from, to), sum(System), 1e-5)
	active := r.Truth.By(System, "energy.state", "package", from, to)["active"]
	assert.InDelta(t, active, sum(Process)+sum(Unattributed), 1e-5)
}

// Restarts with storage lose no energy of the node. Without storage, the energy during downtime is
// lost.
func TestRestartsWithStorageLoseNothing(t *testing.T) {
	for _, stored := range []bool{true, false} {
		r, _ := Hour{Seed: 1, Length: 4 * time.Minute, Stored: stored, Interruptions: []Interruption{
			{Stop, 63 * time.Second, 15 * time.Second}, {Crash, 118 * time.Second, 15 * time.Second}, {Change, 174 * time.Second, 15 * time.Second},
		}}.Record(t)
		joules := r.Truth.By(System, "", "package", r.Truth.Begin, r.Truth.End)[""]
		counted := r.Truth.Meter("package", r.Truth.Begin, r.Truth.End)
		if stored {
			assert.InDelta(t, counted, joules, 1e-4)
		} else {
			assert.InDelta(t, 195./240, joules/counted, 0.1, "three times 15 s, and up to a collection before two of them")
		}
	}
}

func TestAnHourIsTheSameEachTime(t *testing.T) {
	first, _ := Hour{Seed: 2, Length: time.Minute}.Record(t)
	second, _ := Hour{Seed: 2, Length: time.Minute}.Record(t)
	end := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	first.EndAt(end)
	second.EndAt(end)
	sent := NewTruth()
	for _, c := range second.Collections {
		md, err := second.Metrics(c)
		require.NoError(t, err)
		sent.Add(md)
	}
	for _, other := range []*Truth{second.Truth, sent} {
		require.Len(t, other.Series, len(first.Truth.Series))
		for key, s := range first.Truth.Series {
			require.Equal(t, s.Points, other.Series[key].Points, key)
		}
	}
	delay := energyreceiver.NewFactory().CreateDefaultConfig().(*energyreceiver.Config).InitialDelay
	assert.Equal(t, end, second.Collections[5].At.Add(Interval-delay))
}

func TestTheTruthContinuesWhenACounterRestarts(t *testing.T) {
	s, begin := &Series{Counter: true}, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	add := func(start, at time.Duration, value float64) {
		p := pmetric.NewNumberDataPoint()
		p.SetStartTimestamp(pcommon.NewTimestampFromTime(begin.Add(start)))
		p.SetTimestamp(pcommon.NewTimestampFromTime(begin.Add(at)))
		p.SetDoubleValue(value)
		s.add(p)
	}
	add(0, 0, 0)
	add(0, 10*time.Second, 5)
	add(0, 20*time.Second, 8)
	add(0, 20*time.Second, 8)              // sent again
	add(25*time.Second, 30*time.Second, 9) // more than before
	assert.Len(t, s.Points, 4)
	assert.Equal(t, 1, s.Resets)
	assert.InDelta(t, 17, s.Increase(begin, begin.Add(time.Minute)), 1e-12)
	assert.InDelta(t, 12, s.Increase(begin.Add(10*time.Second), begin.Add(30*time.Second)), 1e-12)
	assert.InDelta(t, 0, s.Increase(begin.Add(30*time.Second), begin.Add(time.Hour)), 1e-12)
}
