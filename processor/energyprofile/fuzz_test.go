// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pprofile"
)

// FuzzProfiles shows that no profile changes the sum of the energy.
func FuzzProfiles(f *testing.F) {
	seed := newSamples()
	seed.add(1, ns(500), ns(1500))
	seed.add(0, ns(500))
	marshaler := &pprofile.ProtoMarshaler{}
	b, err := marshaler.MarshalProfiles(seed.Profiles)
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		pd, err := (&pprofile.ProtoUnmarshaler{}).UnmarshalProfiles(b)
		if err != nil {
			return
		}
		others := 0
		if other, ok := splitOther(copyOf(pd)); ok {
			others = other.ProfileCount()
		}
		sink := new(consumertest.ProfilesSink)
		p, feed := start(t, createDefaultConfig().(*Config), sink)
		publish(feed, windowOf(0, 1000, 1_000_000))
		require.NoError(t, p.ConsumeProfiles(context.Background(), pd))
		if others > 0 {
			sink.Reset()
		}
		publish(feed, windowOf(1000, 2000, 1_000_000))
		require.NoError(t, p.Shutdown(context.Background()))
		var sum int64
		for _, pd := range sink.AllProfiles() {
			eachProfile(pd, func(of pprofile.Profile) {
				for _, s := range of.Samples().All() {
					sum += s.Values().At(0)
				}
			})
		}
		require.EqualValues(t, 2_000_000, sum)
	})
}

func copyOf(pd pprofile.Profiles) pprofile.Profiles {
	to := pprofile.NewProfiles()
	pd.CopyTo(to)
	return to
}
