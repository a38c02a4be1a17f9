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
)

// clientAt returns the context of a client with an address.
func clientAt(addr net.Addr) context.Context {
	return client.NewContext(context.Background(), client.Info{Addr: addr})
}

func TestEnergyProfilesThatArriveAreDroppedWhateverTheSettings(t *testing.T) {
	for _, unit := range []string{"microjoules", "joules"} {
		for _, ctx := range []context.Context{context.Background(), clientAt(&net.TCPAddr{})} {
			f := start(t, &Config{ForeignSamples: true})
			f.publish(windowOf(0, 1000, 7))
			b := newSamples()
			b.count(1, 1_000_000)
			newEnergyType(b.Dictionary(), "measured").set(b.profile())
			b.profile().SampleType().SetUnitStrindex(text(b.Dictionary(), unit))
			f.consumeAs(ctx, b)
			assert.Empty(t, f.sink.AllProfiles())
			assert.EqualValues(t, 7, f.end().all)
			f.checkDrops(map[string]int64{dropForeignEnergy: 1})
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
			f := start(t, &Config{ForeignSamples: accepted})
			ended := 0
			f.feed.Serve(func(context.Context) { ended++ })
			f.publish(windowOf(0, 1000, 10))
			foreign := sampled(1) // it has another stack
			foreign.isOffCPU()
			stack := foreign.add(1, ns(400))
			f.consumeAs(ctx, foreign)
			assert.Len(t, f.sink.AllProfiles(), 1, "%s: other profiles pass", name)
			f.sink.Reset()
			want := map[int32]uint64{1: 5, stack: 5}
			if !accepted {
				want = map[int32]uint64{1: 10}
				f.checkDrops(map[string]int64{dropForeign: 1})
				assert.Zero(t, ended, "%s: the batch ended a window", name)
			}
			f.consume(sampled(1, ns(200)))
			assert.Equal(t, want, f.end().byStack, name)
		}
	}
}

func TestEnergyIsSentWithoutTheClientOfTheBatchThatEndedThePeriod(t *testing.T) {
	f := start(t, &Config{ForeignSamples: true})
	ctx, cancel := context.WithCancel(clientAt(&net.TCPAddr{}))
	cancel()
	for i := range 3 {
		f.publish(windowOf(1000*i, 1000*i+1000, 7))
		f.consumeAs(ctx, sampled(1, ns(1000*i+500)))
	}
	require.NotEmpty(t, f.sink.Contexts())
	for _, ctx := range f.sink.Contexts() {
		assert.Nil(t, client.FromContext(ctx).Addr)
		assert.NoError(t, ctx.Err(), "a client canceled the sending of energy")
	}
	f.end()
}

func TestSamplesOfAClientDoNotCountForTheLimitOfTheProfiler(t *testing.T) {
	f := start(t, &Config{ForeignSamples: true})
	f.publish(windowOf(0, 1000, 10))
	for i, ctx := range []context.Context{clientAt(&net.TCPAddr{}), context.Background()} {
		b := newSamples()
		b.stacks = int32(i)
		b.Dictionary().StackTable().AppendEmpty()
		b.count(1, 1000) // as many as the time since the start allows
		b.profile().SetPeriod(int64(maxLate) * int64(runtime.NumCPU()) / 1000)
		f.consumeAs(ctx, b)
	}
	assert.Equal(t, map[int32]uint64{1: 5, 2: 5}, f.end().byStack)
}
