// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"context"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// FuzzSpansAndProfiles shows that no trace and no profile changes the sum of the energy, and that
// what is kept is bounded.
func FuzzSpansAndProfiles(f *testing.F) {
	seed := newEnergy().add(id(1, 2), "a", 5).add(spanID{}, "b\x00\xff", 7).add(spanID{}, "", -1)
	pd, err := (&pprofile.ProtoMarshaler{}).MarshalProfiles(seed.Profiles)
	require.NoError(f, err)
	td, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(tracesOf("shop", "GET", "/", ptrace.SpanKindServer, id(1, 2), spanID{}))
	require.NoError(f, err)
	f.Add(pd, td)
	f.Fuzz(func(t *testing.T, ofProfiles, ofTraces []byte) {
		pd, err := (&pprofile.ProtoUnmarshaler{}).UnmarshalProfiles(ofProfiles)
		if err != nil {
			return
		}
		c := start(t, func(c *Config) { c.Labels, c.MaxSeries, c.MaxSpans = []string{"tenant"}, 3, 2 })
		want := energyIn(pd)
		if td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(ofTraces); err == nil {
			c.learn(td)
		}
		require.NoError(t, profiles{c.energySpans}.ConsumeProfiles(context.Background(), pd))
		require.LessOrEqual(t, len(c.spans.of), 2)
		require.LessOrEqual(t, len(c.waiting), 2)
		require.NoError(t, profiles{c.energySpans}.Shutdown(context.Background()))
		var sum uint64
		for g, µJ := range c.series.of {
			sum += µJ
			require.True(t, utf8.ValidString(g.service+g.route+g.name+g.labels))
			require.LessOrEqual(t, max(len(g.service), len(g.route), len(g.name)), maxText)
		}
		require.LessOrEqual(t, len(c.series.of), 4, "three and one for the rest")
		require.Equal(t, want, sum)
	})
}

// energyIn returns the energy of all energy profiles, in µJ.
func energyIn(pd pprofile.Profiles) (sum uint64) {
	r := newReader(pd.Dictionary(), nil)
	for _, rp := range pd.ResourceProfiles().All() {
		for _, sp := range rp.ScopeProfiles().All() {
			for _, of := range sp.Profiles().All() {
				for _, s := range of.Samples().All() {
					if r.isEnergy(of) {
						µJ, _ := energyOf(s)
						sum += µJ
					}
				}
			}
		}
	}
	return sum
}
