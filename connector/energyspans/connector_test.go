// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/energyreceiver/energyreceiver/connector/energyspans/internal/metadata"
	"github.com/energyreceiver/energyreceiver/connector/energyspans/internal/metadatatest"
	"github.com/energyreceiver/energyreceiver/feed"
)

func TestEnergyIsOfTheEntrySpanOfItsService(t *testing.T) {
	f := start(t, nil)
	f.consumeTraces(tracesOf("front", "GET /", "/", ptrace.SpanKindServer, id(1, 1), spanID{}))
	f.consumeTraces(tracesOf("shop", "GET /cart", "/cart", ptrace.SpanKindServer, id(1, 2), id(1, 1)))
	f.consumeTraces(tracesOf("shop", "SELECT", "", ptrace.SpanKindClient, id(1, 3), id(1, 2)))
	f.consumeTraces(tracesOf("jobs", "work", "", ptrace.SpanKindInternal, id(1, 4), id(1, 1)))
	f.consume(newEnergy().add(id(1, 4), "", 2).add(id(1, 3), "", 3).add(id(1, 2), "", 4).add(id(1, 1), "", 5).add(spanID{}, "", 6))
	assert.Equal(t, map[string]int64{"shop GET /cart /cart": 7, "front GET / /": 5, "svc": 6, "jobs work": 2}, f.end())
}

func TestEnergyWaitsForSpansThatEndLater(t *testing.T) {
	f := start(t, nil)
	f.consume(newEnergy().add(id(1, 3), "", 3).add(id(9, 9), "", 2))
	f.consumeTraces(tracesOf("shop", "SELECT", "", ptrace.SpanKindClient, id(1, 3), id(1, 2)))
	f.pass(30 * time.Second)
	assert.Empty(t, f.sink.AllMetrics(), "the parent may come")
	f.consumeTraces(tracesOf("shop", "GET /cart", "/cart", ptrace.SpanKindServer, id(1, 2), spanID{}))
	f.pass(31 * time.Second)
	assert.Empty(t, f.tracker.awaited)
	f.consume(newEnergy().add(id(8, 8), "", 1)) // waits until the shutdown
	assert.Equal(t, map[string]int64{"shop GET /cart /cart": 3, "svc": 2 + 1}, f.end())
}

func TestOfTwoSpansWithAnIDTheFirstCounts(t *testing.T) {
	f := start(t, nil)
	f.serve("shop", "GET", id(1, 1))
	f.serve("forger", "GET", id(1, 1))
	assert.Equal(t, 1, f.tracker.others.memory.Len())
	f.consume(newEnergy().add(id(1, 1), "", 3))
	assert.Equal(t, map[string]int64{"shop GET": 3}, f.end())
}

func TestEnergyThatWaitsKeepsItsLabels(t *testing.T) {
	f := start(t, func(c *Config) { c.Labels = []string{"tenant"} })
	f.consume(newEnergy().add(id(1, 1), "a", 1).add(id(1, 1), "b", 2).add(id(1, 1), "b", 4))
	assert.Equal(t, 2, f.tracker.others.memory.Len(), "samples with the same names wait as one")
	f.consumeTraces(tracesOf("shop", "SELECT", "", ptrace.SpanKindClient, id(1, 1), id(1, 2)))
	f.serve("shop", "GET", id(1, 2))
	assert.Equal(t, map[string]int64{"shop GET a": 1, "shop GET b": 6}, f.end())
}

func TestAChainOfParentsIsFollowedToALimit(t *testing.T) {
	f := start(t, nil)
	f.consume(newEnergy().add(id(1, 1), "", 3))
	for i := range byte(100) {
		f.consumeTraces(tracesOf("shop", fmt.Sprint(i+1), "", ptrace.SpanKindInternal, id(1, i+1), id(1, i+2)))
	}
	f.consume(newEnergy().add(id(1, 1), "", 4))
	f.consumeTraces(tracesOf("loop", "loop", "", ptrace.SpanKindInternal, id(2, 1), id(2, 1)))
	f.consume(newEnergy().add(id(2, 1), "", 5))
	assert.Equal(t, map[string]int64{"shop " + fmt.Sprint(maxDepth): 7, "loop loop": 5}, f.end())
}

func TestEnergyWithoutASpanIsSummedByTheConfiguredLabels(t *testing.T) {
	f := start(t, func(c *Config) { c.Labels = []string{"other", "tenant"} })
	f.consume(newEnergy().add(spanID{}, "a", 1).add(spanID{}, "b", 2).add(spanID{}, "a", 4).add(spanID{}, "", 8))
	assert.Equal(t, map[string]int64{"svc a": 5, "svc b": 2, "svc": 8}, f.end())
}

func TestALabelOfTheSameNameAsTheRouteMakesNoSecondSeries(t *testing.T) {
	f := start(t, func(c *Config) { c.Labels = []string{"http.route"} })
	f.consumeTraces(tracesOf("svc", "", "/a", ptrace.SpanKindServer, id(1, 1), spanID{}))
	f.serve("svc", "GET", id(2, 1))
	e := newEnergy()
	e.Dictionary().StringTable().SetAt(3, labelPrefix+"http.route")
	f.consume(e.add(id(1, 1), "/other", 1).add(spanID{}, "/a", 2).add(id(2, 1), "/b", 4))
	assert.Equal(t, map[string]int64{"svc /a": 3, "svc GET /b": 4}, f.end())
}

func TestLabelsThatWouldReplaceAnAttributeAreRefused(t *testing.T) {
	for _, labels := range [][]string{{"span.name"}, {"tenant", "tenant"}, {""}} {
		cfg := createDefaultConfig().(*Config)
		cfg.Labels = labels
		assert.ErrorContains(t, cfg.Validate(), "labels:")
	}
}

func TestPointsAreSentAtEachInterval(t *testing.T) {
	f := start(t, nil)
	for range 31 {
		f.consume(newEnergy().add(spanID{}, "", 1))
		f.time = f.time.Add(time.Second)
	}
	assert.Len(t, f.sink.AllMetrics(), 2, "after 15 and 30 seconds")
}

func TestTracesAndProfilesOfAConfigurationShareSpansUntilTheyShutDown(t *testing.T) {
	factory, sink, set := NewFactory(), new(consumertest.MetricsSink), connectortest.NewNopSettings(metadata.Type)
	cfg := factory.CreateDefaultConfig()
	for i := range 3 {
		tr, err := factory.CreateTracesToMetrics(t.Context(), set, cfg, sink)
		require.NoError(t, err)
		pr, err := factory.CreateProfilesToMetrics(t.Context(), set, cfg, sink)
		require.NoError(t, err)
		require.NoError(t, tr.Start(t.Context(), nil))
		require.NoError(t, pr.Start(t.Context(), nil))
		require.NoError(t, tr.ConsumeTraces(t.Context(), tracesOf("shop", "GET", "", ptrace.SpanKindServer, id(1, 1), spanID{})))
		require.NoError(t, pr.ConsumeProfiles(feed.WithEnergy(t.Context(), 3), newEnergy().add(id(1, 1), "", 3).Profiles))
		require.NoError(t, tr.Shutdown(t.Context()))
		require.NoError(t, pr.Shutdown(t.Context()))
		require.Len(t, sink.AllMetrics(), i+1)
		points := pointsOf(t, sink.AllMetrics()[i])
		assert.Equal(t, "shop GET", points[len(points)-1].name)
		assert.EqualValues(t, 3, points[len(points)-1].energy)
	}
}

func TestTracesAndProfilesMayArriveConcurrently(t *testing.T) {
	f := start(t, func(c *Config) { c.FlushInterval = 0 })
	f.now = time.Now
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 200 {
				f.serve("shop", "GET", numbered(200*i+j))
			}
		})
		all.Go(func() {
			for j := range 200 {
				f.consume(newEnergy().add(numbered(200*i+j), "", 1))
			}
		})
	}
	all.Wait()
	assert.Equal(t, map[string]int64{"shop GET": 800}, f.end())
	var last int64
	for _, md := range f.sink.AllMetrics() {
		points := pointsOf(t, md)
		assert.GreaterOrEqual(t, points[len(points)-1].energy, last)
		last = points[len(points)-1].energy
	}
}

// assertDropped compares the counter of dropped samples.
func (f *fixture) assertDropped(want map[string]int64) {
	f.Helper()
	var points []metricdata.DataPoint[int64]
	for reason, n := range want {
		points = append(points, metricdata.DataPoint[int64]{Value: n, Attributes: attribute.NewSet(
			attribute.String("connector", "energyspans"), attribute.String("drop.reason", reason))})
	}
	metadatatest.AssertEqualConnectorEnergyspansDroppedSamples(f.T, f.meters, points, metricdatatest.IgnoreTimestamp())
}

func TestEnergyThatEnergyprofileDidNotSendIsDropped(t *testing.T) {
	f := start(t, nil)
	f.consumeAs(t.Context(), newEnergy().add(spanID{}, "", 1<<44).add(id(1, 1), "", 5))
	assert.ErrorContains(t, f.conditions.Err("foreign"), "did not come from energyprofile in this collector")
	e := newEnergy()
	for _, µJ := range []int64{4, 7, 6, 1} {
		e.add(spanID{}, "", µJ)
	}
	f.consumeAs(feed.WithEnergy(t.Context(), 10), e)
	assert.Equal(t, map[string]int64{"svc": 10}, f.end())
	f.assertDropped(map[string]int64{dropForeign: 2, dropExcess: 2})
}

func TestASenderOfForeignEnergyDoesNotFillTheLog(t *testing.T) {
	f := start(t, nil)
	for range 20 {
		f.consumeAs(context.Background(), newEnergy().add(spanID{}, "", 5))
		f.pass(foreignFor / 2)
		assert.Error(t, f.conditions.Err("foreign"), "own energy in between is no reason to recover and degrade again")
	}
	f.pass(foreignFor)
	assert.NoError(t, f.conditions.Err("foreign"))
}

func TestBadSamplesAddNothingAndAreCounted(t *testing.T) {
	f := start(t, func(c *Config) { c.Labels = []string{"tenant"} })
	e := newEnergy().add(spanID{}, "", -5).add(spanID{}, "", 7)
	bad := e.profile.Samples().At(1)
	bad.SetLinkIndex(1 << 30)
	bad.AttributeIndices().FromRaw([]int32{-1, 1 << 30})
	e.profile.Samples().AppendEmpty().Values().FromRaw([]int64{math.MaxInt64, math.MaxInt64, math.MaxInt64})
	count := e.ResourceProfiles().At(0).ScopeProfiles().At(0).Profiles().AppendEmpty()
	count.SampleType().SetTypeStrindex(1 << 30)
	count.Samples().AppendEmpty().Values().FromRaw([]int64{9})
	f.consume(e)
	assert.Equal(t, map[string]int64{"svc": 7}, f.end())
	f.assertDropped(map[string]int64{dropValue: 1, dropExcess: 1})
}
