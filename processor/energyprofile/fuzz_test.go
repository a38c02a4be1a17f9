// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pprofile"
)

// FuzzProfiles shows that no profile changes the sum of the energy.
func FuzzProfiles(f *testing.F) {
	seed := sampled(1, ns(500), ns(1500))
	seed.add(0, ns(500))
	b, err := (&pprofile.ProtoMarshaler{}).MarshalProfiles(seed.Profiles)
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		pd, err := (&pprofile.ProtoUnmarshaler{}).UnmarshalProfiles(b)
		if err != nil {
			return
		}
		copied := pprofile.NewProfiles()
		pd.CopyTo(copied)
		p := start(t, createDefaultConfig().(*Config))
		p.publish(windowOf(0, 1000, 1_000_000))
		p.consume(&samples{Profiles: pd})
		if other, ok := splitOther(copied); ok && other.ProfileCount() > 0 {
			p.sink.Reset()
		}
		p.publish(windowOf(1000, 2000, 1_000_000))
		require.NoError(t, p.Shutdown(t.Context()))
		var sum int64
		for _, pd := range p.sink.AllProfiles() {
			eachProfile(pd, func(of pprofile.Profile) {
				for _, s := range of.Samples().All() {
					sum += s.Values().At(0)
				}
			})
		}
		require.EqualValues(t, 2_000_000, sum)
	})
}
