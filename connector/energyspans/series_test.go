// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unique"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// numbered returns the span with a number.
func numbered(n int) spanID {
	return spanID{pcommon.TraceID{1, byte(n >> 16), byte(n >> 8), byte(n)}, pcommon.SpanID{1}}
}

// work sends n spans of a service with different names, each with some µJ. first is the number of the first span.
func (f *fixture) work(service string, first, n int, µJ int64) {
	e := newEnergy()
	for i := range n {
		of := numbered(first + i)
		f.learn(tracesOf(service, fmt.Sprint("work ", first+i), "", ptrace.SpanKindServer, of, spanID{}))
		e.add(of, "", µJ)
	}
	f.consume(e)
}

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

func TestSeriesOfAServiceBeginAtALimitedRate(t *testing.T) {
	f := start(t, func(c *Config) { c.MaxSeries, c.Expiration = 40, time.Minute })
	begun := 0
	for i := range 240 { // a new name every 15 seconds for an hour
		f.learn(tracesOf("noisy", fmt.Sprint("user ", i), "", ptrace.SpanKindServer, numbered(i), spanID{}))
		f.consume(newEnergy().add(numbered(i), "", 1))
		if f.tracker.byName["noisy"].series[key{span: fmt.Sprint("user ", i)}] != nil {
			begun++
		}
		f.pass(15 * time.Second)
	}
	assert.LessOrEqual(t, begun, 2*20, "twenty at first and twenty in an hour")
	assert.GreaterOrEqual(t, begun, 39)
}

func TestASeriesWithoutEnergyEndsAndStartsAgainAtZero(t *testing.T) {
	f := start(t, func(c *Config) { c.Expiration = time.Minute })
	f.consume(newEnergy().add(spanID{}, "", 5))
	for i := range 20 {
		f.learn(tracesOf("svc", "GET", "", ptrace.SpanKindServer, numbered(i), spanID{}))
		f.pass(15 * time.Second)
	}
	var last time.Time
	for _, md := range f.sink.AllMetrics() {
		last = pointsOf(t, md)[0].at
	}
	assert.WithinRange(t, last, f.time.Add(-5*time.Minute), f.time.Add(-3*time.Minute))
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

func TestALabelOfTheSameNameAsTheRouteMakesNoSecondSeries(t *testing.T) {
	f := start(t, func(c *Config) { c.Labels = []string{"http.route"} })
	f.learn(tracesOf("svc", "", "/a", ptrace.SpanKindServer, id(1, 1), spanID{}))
	f.learn(tracesOf("svc", "GET", "", ptrace.SpanKindServer, id(2, 1), spanID{}))
	e := newEnergy()
	e.Dictionary().StringTable().SetAt(3, labelPrefix+"http.route")
	f.consume(e.add(id(1, 1), "/other", 1).add(spanID{}, "/a", 2).add(id(2, 1), "/b", 4))
	require.NoError(t, profiles{f.energySpans}.Shutdown(t.Context()))
	names := map[string]int64{}
	for _, p := range pointsOf(t, f.sink.AllMetrics()[0]) {
		assert.NotContains(t, names, p.name)
		names[p.name] = p.energy
	}
	assert.Equal(t, map[string]int64{"svc /a": 3, "svc GET /b": 4}, names)
}

func TestPointsOfASeriesStayInOrderIfTheClockIsSetBack(t *testing.T) {
	f := start(t, nil)
	last, of := f.time, unique.Make(names{service: "svc"})
	for i, hours := range []time.Duration{1, 0, 0, 2} {
		f.tracker.now = f.time.Add(hours * time.Hour)
		f.tracker.add(claim{profile: of, names: of}, 1)
		points := pointsOf(t, f.tracker.flush())
		p := points[len(points)-1]
		assert.EqualValues(t, i+1, p.energy)
		assert.Equal(t, f.time.UTC(), p.start)
		assert.True(t, p.at.After(last))
		last = p.at
	}
	assert.Equal(t, f.time.Add(2*time.Hour).UTC(), last)
}
