// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"context"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// FuzzSpansAndProfiles shows that no trace and no profile changes the sum of the energy, and that memory is bounded.
func FuzzSpansAndProfiles(f *testing.F) {
	seed := newEnergy().add(id(1, 2), "a", 5).add(spanID{}, "b\x00\xff", 7).add(spanID{}, "", -1)
	pd, err := (&pprofile.ProtoMarshaler{}).MarshalProfiles(seed.Profiles)
	require.NoError(f, err)
	td, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(tracesOf("shop", "GET", "/", ptrace.SpanKindServer, id(1, 2), spanID{}))
	require.NoError(f, err)
	f.Add(pd, td, uint64(12))
	f.Fuzz(func(t *testing.T, ofProfiles, ofTraces []byte, mark uint64) {
		pd, err := (&pprofile.ProtoUnmarshaler{}).UnmarshalProfiles(ofProfiles)
		if err != nil {
			return
		}
		c := start(t, func(c *Config) { c.Labels, c.MaxSeries = []string{"tenant"}, 4 })
		c.limitMemory(10 * itemBytes)
		ctx := feed.WithEnergy(context.Background(), mark)
		var want uint64
		newBatch(ctx, pd, nil).each(func(_ claim, energy uint64) { want = units.AddSaturating(want, energy) })
		require.LessOrEqual(t, want, mark)
		if td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(ofTraces); err == nil {
			c.consumeTraces(td)
		}
		require.NoError(t, profiles{c.energySpans}.ConsumeProfiles(ctx, pd))
		require.NoError(t, profiles{c.energySpans}.Shutdown(context.Background()))
		var sum uint64
		for _, of := range c.tracker.all {
			for k, s := range of.series {
				sum = units.AddSaturating(sum, s.energy)
				require.True(t, utf8.ValidString(of.name+k.route+k.span+k.labels))
				require.LessOrEqual(t, max(len(of.name), len(k.route), len(k.span)), maxText)
			}
		}
		require.LessOrEqual(t, c.tracker.live, 4+2)
		require.LessOrEqual(t, len(c.tracker.all), 2, "one and the others")
		require.Equal(t, want, sum)
	})
}
