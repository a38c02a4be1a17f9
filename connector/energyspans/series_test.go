// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unique"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
)

func TestAServiceWithTooManyNamesTakesNoSeriesFromOthers(t *testing.T) {
	f := start(t, func(c *Config) { c.MaxSeries, c.Expiration = 40, 24*time.Hour })
	for i := range 10 {
		f.work("noisy", 100*i, 100, 1)
		f.pass(time.Hour)
	}
	f.work("shop", 1000, 10, 2)
	got := f.end()
	assert.EqualValues(t, 2, got["shop work 1000"])
	assert.EqualValues(t, 2, got["shop work 1009"])
	noisy := 0
	for name := range got {
		if strings.HasPrefix(name, "noisy work") {
			noisy++
		}
	}
	assert.Contains(t, []int{19, 20}, noisy, "half of max_series")
	assert.EqualValues(t, 1000-noisy, got["noisy true"], "its own overflow series")
}

func TestServicesBeyondTheMaximumShareAnOverflowSeries(t *testing.T) {
	f := start(t, func(c *Config) { c.MaxSeries = 40 })
	for i := range 100 {
		f.work(fmt.Sprint("invented ", i), i, 1, 3)
	}
	got := f.end()
	assert.Len(t, got, 11)
	assert.EqualValues(t, 3, got["invented 9 work 9"])
	assert.EqualValues(t, 90*3, got["true"])
}

// Names that are no longer used make room for others, hour after hour.
func TestSeriesOfAServiceBeginAtALimitedRate(t *testing.T) {
	f := start(t, func(c *Config) { c.MaxSeries, c.Expiration = 40, time.Minute })
	for hour := range 10 {
		begun := 0
		for i := range 240 { // a new name every 15 seconds
			f.work("noisy", 240*hour+i, 1, 1)
			if f.tracker.byName["noisy"].series[key{span: fmt.Sprint("work ", 240*hour+i)}] != nil {
				begun++
			}
			f.pass(15 * time.Second)
		}
		assert.InDelta(t, 20, begun-20*max(0, 1-hour), 1, "twenty at first and twenty in an hour")
	}
}

func TestASeriesWithoutEnergyEndsAndStartsAgainAtZero(t *testing.T) {
	f := start(t, func(c *Config) { c.Expiration = time.Minute })
	f.consume(newEnergy().add(spanID{}, "", 5))
	for i := range 20 {
		f.serve("svc", "GET", numbered(i))
		f.pass(15 * time.Second)
	}
	assert.InDelta(t, 4, len(f.sink.AllMetrics()), 1, "points in a minute")
	assert.Len(t, f.tracker.all, 1, "a service without energy is forgotten, whatever spans it sends")
	assert.Zero(t, f.tracker.bytes)

	f.sink.Reset()
	began := f.time
	f.consume(newEnergy().add(spanID{}, "", 3))
	f.pass(15 * time.Second)
	require.Len(t, f.sink.AllMetrics(), 1)
	assert.Equal(t, []point{
		{"svc", began.UTC(), began.Add(time.Millisecond).UTC(), 0},
		{"svc", began.UTC(), f.time.UTC(), 3},
	}, pointsOf(t, f.sink.AllMetrics()[0]))
	f.pass(15 * time.Second)
	assert.Len(t, pointsOf(t, f.sink.AllMetrics()[1]), 1, "the zero-value point is sent once")
}

func TestASeriesDoesNotEndBeforeItsEnergyHasBeenDelivered(t *testing.T) {
	f := start(t, func(c *Config) { c.Expiration = time.Minute })
	refused := errors.New("refused")
	f.next = consumertest.NewErr(refused)
	f.consume(newEnergy().add(spanID{}, "", 5))
	for range 20 {
		f.pass(15 * time.Second)
	}
	assert.ErrorIs(t, f.conditions.Err("metrics"), refused)
	f.next = f.sink
	f.pass(15 * time.Second)
	assert.NoError(t, f.conditions.Err("metrics"))
	require.Len(t, f.sink.AllMetrics(), 1)
	points := pointsOf(t, f.sink.AllMetrics()[0])
	require.Len(t, points, 2, "the zero-value point has not been delivered either")
	assert.EqualValues(t, 5, points[1].energy)
}

func TestSumsStopAtTheMaximum(t *testing.T) {
	f := start(t, nil)
	for range 4 {
		f.consume(newEnergy().add(spanID{}, "", 3<<61))
	}
	assert.Equal(t, uint64(math.MaxUint64), f.tracker.byName["svc"].series[key{}].energy)
}

func TestPointsOfASeriesStayInOrderIfTheClockIsSetBack(t *testing.T) {
	f := start(t, nil)
	last, of := f.time, unique.Make(names{service: "svc"})
	for i, hours := range []time.Duration{1, 0, 0, 2} {
		f.tracker.now = f.time.Add(hours * time.Hour)
		f.tracker.add(claim{profile: of, names: of}, 1)
		points := pointsOf(t, f.tracker.flush())
		p := points[len(points)-1]
		assert.Equal(t, point{"svc", f.time.UTC(), p.at, int64(i + 1)}, p)
		assert.True(t, p.at.After(last))
		last = p.at
	}
}
