// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/energyreceiver/energyreceiver/connector/energyspans/internal/metadatatest"
	"github.com/energyreceiver/energyreceiver/feed"
)

// assertDropped compares the counter of dropped samples.
func assertDropped(f *fixture, want map[string]int64) {
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
	f.consumeAs(context.Background(), newEnergy().add(spanID{}, "", 1<<44).add(id(1, 1), "", 5))
	assert.ErrorContains(t, f.conditions.Err("foreign"), "did not come from energyprofile in this collector")
	f.consume(newEnergy().add(spanID{}, "", 7))
	assert.Equal(t, map[string]int64{"svc": 7}, f.end())
	assertDropped(f, map[string]int64{dropForeign: 2})
}

func TestABatchHasNoMoreEnergyThanEnergyprofileSent(t *testing.T) {
	f := start(t, nil)
	e := newEnergy()
	for _, µJ := range []int64{4, 7, 6, 1} {
		e.add(spanID{}, "", µJ)
	}
	f.consumeAs(feed.WithEnergy(context.Background(), 10), e)
	assert.ErrorContains(t, f.conditions.Err("foreign"), "add energy")
	assert.Equal(t, map[string]int64{"svc": 10}, f.end())
	assertDropped(f, map[string]int64{dropExcess: 2})
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
	assertDropped(f, map[string]int64{dropValue: 1, dropExcess: 1})
}

func TestSumsStopAtTheMaximum(t *testing.T) {
	f := start(t, nil)
	for range 4 {
		f.consume(newEnergy().add(spanID{}, "", 3<<61))
		f.pass(15 * time.Second)
	}
	var last float64
	for _, md := range f.sink.AllMetrics() {
		p := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints()
		assert.GreaterOrEqual(t, p.At(p.Len()-1).DoubleValue(), last)
		last = p.At(p.Len() - 1).DoubleValue()
	}
	assert.InDelta(t, math.MaxUint64/1e6, last, 1)
}
