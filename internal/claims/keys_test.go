// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
)

// Hardware counters are left out: this machine has none. internal/usage/weigh has their benchmarks.
func TestWeighingClaimsAllocatesNothingInTheSteadyState(t *testing.T) {
	h := hostsim.New(t.TempDir())
	for cpu, khz := range []int64{3_000_000, 1_000_000, 1_000_000} {
		h.Clocks[cpu] = khz
	}
	h.Cgroups["/a"] = 0
	require.NoError(t, h.Render())
	for _, key := range []Key{KeyFrequency, KeyMemory, KeyMemoryCPUTime} {
		tree := cgroup.New(cgroup.Options{Root: h.Root()})
		in := tree.Enter("/a", true)
		k := NewKeys(KeyOptions{Cgroups: tree, Keys: []Key{key}, FrequencyExponent: 1})
		claims := make([]attribution.Claim, 3)
		at := h.Now()
		assert.Zero(t, testing.AllocsPerRun(30, func() {
			at = at.Add(time.Second)
			k.begin()
			for i := range claims {
				k.claimed(weigh.Share{CPU: 5 * units.Second, LastCPU: int32(i), Cgroup: in, ShortLived: i == 0, Resident: 1 << 20, Held: time.Second})
			}
			k.weigh(at, nil, claims)
			for key, err := range k.Failed() {
				t.Error(key, err)
			}
		}), key)
		assert.NotZero(t, claims[2].Weights[0], key)
		require.NoError(t, errors.Join(k.Close(), tree.Close()))
	}
}

// BenchmarkWeigh weighs 100 claims of as many processes on 64 CPUs, with a file of cpufreq for each.
func BenchmarkWeigh(b *testing.B) {
	h := hostsim.New(b.TempDir())
	for cpu := range 64 {
		h.Clocks[cpu] = 3_000_000
	}
	require.NoError(b, h.Render())
	for _, key := range []Key{KeyFrequency, KeyMemory, KeyMemoryCPUTime} {
		b.Run(string(key), func(b *testing.B) {
			k := NewKeys(KeyOptions{Cgroups: cgroup.New(cgroup.Options{Root: h.Root()}), Keys: []Key{key}, FrequencyExponent: 1})
			defer func() { require.NoError(b, k.Close()) }()
			claims := make([]attribution.Claim, 100)
			at := h.Now()
			b.ReportAllocs()
			for b.Loop() {
				at = at.Add(time.Second)
				k.begin()
				for i := range claims {
					k.claimed(weigh.Share{CPU: 5_000_000, LastCPU: int32(i % 64), Resident: 1 << 26, Held: time.Second})
				}
				k.weigh(at, nil, claims)
			}
		})
	}
}
