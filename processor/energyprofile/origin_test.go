// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"context"
	"net"
	"net/http"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/processor/processortest"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/energyreceiver/energyreceiver/processor/energyprofile/internal/metadata"
	"github.com/energyreceiver/energyreceiver/processor/energyprofile/internal/metadatatest"
)

// clientAt returns the context of a client with an address.
func clientAt(addr net.Addr) context.Context {
	return client.NewContext(context.Background(), client.Info{Addr: addr})
}

// energyProfiles returns 1 J of a process.
func energyProfiles(unit string) *samples {
	b := newSamples()
	b.add(1)
	of := b.ResourceProfiles().At(0).ScopeProfiles().At(0).Profiles().At(0)
	newEnergyType(b.Dictionary(), "measured").set(of)
	of.SampleType().SetUnitStrindex(text(b.Dictionary(), unit))
	b.last().Values().FromRaw([]int64{1_000_000})
	return b
}

// countDrops makes a processor count dropped samples, and returns a check of the counts.
func countDrops(t *testing.T, p *energyProfile) (check func(want map[string]int64)) {
	meters := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, meters.Shutdown(context.Background())) })
	set := processortest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = meters.NewTelemetrySettings()
	var err error
	p.telemetry, err = newTelemetry(set)
	require.NoError(t, err)
	return func(want map[string]int64) {
		t.Helper()
		var points []metricdata.DataPoint[int64]
		for reason, n := range want {
			points = append(points, metricdata.DataPoint[int64]{
				Value: n, Attributes: attribute.NewSet(p.telemetry.id, attribute.String("drop.reason", reason)),
			})
		}
		metadatatest.AssertEqualProcessorEnergyprofileDroppedSamples(t, meters, points, metricdatatest.IgnoreTimestamp())
	}
}

func TestEnergyProfilesThatArriveAreDroppedWhateverTheSettings(t *testing.T) {
	for _, unit := range []string{"microjoules", "joules"} {
		for _, ctx := range []context.Context{context.Background(), clientAt(&net.TCPAddr{})} {
			sink := new(consumertest.ProfilesSink)
			p, f := start(t, &Config{ForeignSamples: true}, sink)
			check := countDrops(t, p)
			publish(f, windowOf(0, 1000, 7))
			require.NoError(t, p.ConsumeProfiles(ctx, energyProfiles(unit).Profiles))
			assert.Empty(t, sink.AllProfiles())
			require.NoError(t, p.Shutdown(context.Background()))
			assert.EqualValues(t, 7, sumsOf(t, sink).all)
			check(map[string]int64{dropForeignEnergy: 1})
		}
	}
}

func TestSamplesOfClientsCountOnlyIfTheyAreAccepted(t *testing.T) {
	for name, ctx := range map[string]context.Context{
		"OTLP over gRPC":          clientAt(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}),
		"gRPC over a Unix socket": clientAt(&net.UnixAddr{Name: "@"}),
		"OTLP over HTTP":          clientAt(&net.IPAddr{IP: net.IPv4(127, 0, 0, 1)}),
		"HTTP over a Unix socket": context.WithValue(clientAt(nil), http.ServerContextKey, &http.Server{}),
	} {
		for _, accepted := range []bool{false, true} {
			sink := new(consumertest.ProfilesSink)
			p, f := start(t, &Config{ForeignSamples: accepted}, sink)
			check := countDrops(t, p)
			ended := 0
			f.Serve(func(context.Context) { ended++ })
			publish(f, windowOf(0, 1000, 10))
			b, foreign := newSamples(), newSamples()
			b.add(1, ns(200))
			foreign.add(1) // it has another stack
			stack := foreign.add(1, ns(400))
			offCPU := foreign.ResourceProfiles().At(0).ScopeProfiles().At(0).Profiles().At(0)
			offCPU.SampleType().SetTypeStrindex(text(foreign.Dictionary(), "off_cpu"))
			require.NoError(t, p.ConsumeProfiles(ctx, foreign.Profiles))
			assert.Len(t, sink.AllProfiles(), 1, "%s: other profiles pass", name)
			sink.Reset()
			if !accepted {
				check(map[string]int64{dropForeign: 1})
				assert.Zero(t, ended, "%s: the batch ended a window", name)
			}
			require.NoError(t, p.ConsumeProfiles(context.Background(), b.Profiles))
			require.NoError(t, p.Shutdown(context.Background()))
			want := map[int32]uint64{1: 10}
			if accepted {
				want = map[int32]uint64{1: 5, stack: 5}
			}
			assert.Equal(t, want, sumsOf(t, sink).byStack, name)
		}
	}
}

func TestBatchesAreSentWithoutTheClientOfTheBatchThatEndedThePeriod(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{ForeignSamples: true}, sink)
	for i := range 3 {
		publish(f, windowOf(1000*i, 1000*i+1000, 7))
		b := newSamples()
		b.add(1, ns(1000*i+500))
		require.NoError(t, p.ConsumeProfiles(clientAt(&net.TCPAddr{}), b.Profiles))
	}
	require.NotEmpty(t, sink.Contexts())
	for _, ctx := range sink.Contexts() {
		assert.Nil(t, client.FromContext(ctx).Addr)
	}
	require.NoError(t, p.Shutdown(context.Background()))
}

func TestAClientCannotCancelTheSendingOfEnergy(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{ForeignSamples: true}, sink)
	ctx, cancel := context.WithCancel(clientAt(&net.TCPAddr{}))
	cancel()
	for i := range 3 {
		publish(f, windowOf(1000*i, 1000*i+1000, 7))
		b := newSamples()
		b.add(1, ns(1000*i+500))
		require.NoError(t, p.ConsumeProfiles(ctx, b.Profiles))
	}
	require.NotEmpty(t, sink.Contexts())
	for _, ctx := range sink.Contexts() {
		assert.NoError(t, ctx.Err())
	}
	require.NoError(t, p.Shutdown(context.Background()))
}

func TestSamplesOfAClientDoNotCountForTheLimitOfTheProfiler(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{ForeignSamples: true}, sink)
	publish(f, windowOf(0, 1000, 10))
	for i, ctx := range []context.Context{clientAt(&net.TCPAddr{}), context.Background()} {
		b := newSamples()
		b.stacks = int32(i)
		b.Dictionary().StackTable().AppendEmpty()
		b.add(1)
		b.last().Values().FromRaw([]int64{1000}) // as many as the time since the start allows
		b.ResourceProfiles().At(0).ScopeProfiles().At(0).Profiles().At(0).SetPeriod(int64(maxLate) * int64(runtime.NumCPU()) / 1000)
		require.NoError(t, p.ConsumeProfiles(ctx, b.Profiles))
	}
	require.NoError(t, p.Shutdown(context.Background()))
	assert.Equal(t, map[int32]uint64{1: 5, 2: 5}, sumsOf(t, sink).byStack)
}
