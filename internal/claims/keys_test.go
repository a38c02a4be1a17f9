// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Counters are not among them: this machine has none. internal/usage/cpu/weigh holds theirs.
func TestWeighingClaimsAllocatesNothingInTheSteadyState(t *testing.T) {
	h := hostsim.New(t.TempDir())
	for cpu, khz := range []int64{3_000_000, 1_000_000, 1_000_000} {
		h.Clocks[cpu] = khz
	}
	h.Cgroups["/a"], h.Memory["/a"] = 0, 1<<30
	require.NoError(t, h.Render())
	for _, key := range []Key{KeyFrequency, KeyMemory, KeyMemoryCPUTime} {
		k := NewKeys(KeyOptions{Root: h.Root(), Keys: []Key{key}, FrequencyExponent: 1, CgroupMemory: true})
		claims := make([]attribution.Claim, 3)
		at := h.Now()
		assert.Zero(t, testing.AllocsPerRun(30, func() {
			at = at.Add(time.Second)
			k.begin()
			for i := range claims {
				claims[i].CPU = 5 * units.Second
				k.claimed(origin{cpu: int32(i), cgroup: "/a", seen: i > 0, resident: 1 << 20, held: time.Second})
			}
			k.weigh(at, claims)
			for key, err := range k.Failed() {
				t.Error(key, err)
			}
		}), key)
		assert.NotZero(t, claims[2].Weights[0], key)
		require.NoError(t, k.Close())
	}
}

// Files come and go with their containers.
func TestTheSizesOfContainersThatAreGoneAreForgotten(t *testing.T) {
	root := t.TempDir()
	sizes := newContainerSizes(root)
	defer func() { require.NoError(t, sizes.close()) }()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	read := func(after time.Duration, cgroups ...string) {
		var all []*containerSize
		for _, cgroup := range cgroups {
			all = append(all, sizes.of(cgroup))
		}
		now = now.Add(after)
		sizes.begin(now)
		for _, size := range all {
			sizes.read(size)
		}
		sizes.finish()
	}
	write := func(cgroup, text string) {
		dir := filepath.Join(root, "sys/fs/cgroup/memory", cgroup)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "memory.usage_in_bytes"), []byte(text), 0o600))
	}
	read(0, "/a")
	assert.False(t, sizes.of("/a").ok, "there is none")
	write("a", "4096\n")
	read(0, "/a")
	assert.False(t, sizes.of("/a").ok, "it is not looked for each time")
	read(measureSizesAgain, "/a")
	require.True(t, sizes.of("/a").ok, "as version 1 has it")
	assert.EqualValues(t, 4096, sizes.of("/a").own)
	for name, text := range map[string]string{"empty": "", "cut short": "40", "a word": "max\n", "negative": "-1\n"} {
		write("a", text)
		read(2*measureSizesAgain, "/a")
		assert.False(t, sizes.of("/a").ok, name)
	}

	write("a", "5000\n")
	write("a/b", "3000\n")
	write("a/b/c", "1000\n")
	read(2*measureSizesAgain, "/a/b/c", "/a", "/a/b")
	for cgroup, want := range map[string]uint64{"/a": 2000, "/a/b": 2000, "/a/b/c": 1000} {
		assert.Equal(t, want, sizes.of(cgroup).own, "without those inside, %s", cgroup)
	}
	write("a/b", "what is not read counts for the one around it\n")
	read(2*measureSizesAgain, "/a/b/c", "/a", "/a/b")
	assert.EqualValues(t, 4000, sizes.of("/a").own, "without the innermost")
	read(2*measureSizesAgain, "/a")
	assert.EqualValues(t, 5000, sizes.of("/a").own, "nobody is in the others any more")

	read(2*forgetSizes, "/a")
	require.Contains(t, sizes.known, "/a", "it is asked for")
	assert.EqualValues(t, 5000, sizes.of("/a").own, "after a pause, too")
	clear(sizes.known)
	read(0, "/a", "/x")
	read(forgetSizes, "/a")
	read(forgetSizes, "/a")
	assert.Len(t, sizes.known, 1)
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
			k := NewKeys(KeyOptions{Root: h.Root(), Keys: []Key{key}, FrequencyExponent: 1})
			defer func() { require.NoError(b, k.Close()) }()
			claims := make([]attribution.Claim, 100)
			at := h.Now()
			b.ReportAllocs()
			for b.Loop() {
				at = at.Add(time.Second)
				k.begin()
				for i := range claims {
					claims[i].CPU = 5_000_000
					k.claimed(origin{cpu: int32(i % 64), seen: true, resident: 1 << 26, held: time.Second})
				}
				k.weigh(at, claims)
			}
		})
	}
}
