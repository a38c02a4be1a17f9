package receiver

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// keyedNode is the shared node whose processes are on CPUs of 3, 1 and 1 GHz, and hold something.
func keyedNode(t *testing.T, edit func(*AttributionConfig)) *testNode {
	n := sharedNode(t, edit)
	for cpu, khz := range []int64{3_000_000, 1_000_000, 1_000_000} {
		n.host.Clocks[cpu] = khz
	}
	for i, pid := range []int{10, 20, 30, 40} {
		n.host.Processes[pid].LastCPU = i
		n.host.Processes[pid].Resident = int64(100 * (i + 1))
	}
	return n
}

// 600 J in 10 s, of which 240 J are active: A and B run for 1 s, c for 2 s, etcd sleeps.
func TestActiveEnergyIsSharedByEachKey(t *testing.T) {
	page := uint64(os.Getpagesize())
	for name, c := range map[string]struct {
		edit func(*AttributionConfig)
		want figures
	}{
		"CPU time":        {func(*AttributionConfig) {}, figures{60, 60, 120, 0, 240}},
		"frequency":       {func(a *AttributionConfig) { a.Key = KeyFrequency }, figures{120, 40, 80, 0, 240}},
		"frequency²":      {func(a *AttributionConfig) { a.Key, a.FrequencyExponent = KeyFrequency, 2 }, figures{180, 20, 40, 0, 240}},
		"memory":          {func(a *AttributionConfig) { a.Key = KeyMemory }, figures{24, 48, 72, 96, 240}},
		"memory_cpu_time": {func(a *AttributionConfig) { a.Key = KeyMemoryCPUTime }, figures{240. / 9, 480. / 9, 1440. / 9, 0, 240}},
		"memory of cgroups": { // A's has 600 pages, 100 of which are resident; B's tells nothing
			func(a *AttributionConfig) { a.Key, a.MemorySize = KeyMemory, MemoryCgroup },
			figures{96, 32, 48, 64, 240},
		},
		"of its zone alone": {
			func(a *AttributionConfig) {
				a.Key, a.Keys = KeyMemory, map[power.Kind]KeyRule{power.Package: KeyCPUTime}
			},
			figures{60, 60, 120, 0, 240},
		},
	} {
		n := keyedNode(t, c.edit)
		n.host.Cgroups["/system.slice/docker-"+idA+".scope"] = 0
		n.host.Memory["/system.slice/docker-"+idA+".scope"] = 600 * page
		n.start()
		n.run(600*joule, map[int]int64{10: 100, 20: 100, 30: 200})
		requireFigures(t, c.want, n.figures("active"), name)
		assert.Empty(t, n.status, name)

		before := n.figures("active")
		n.run(600*joule, map[int]int64{10: 100, 20: 100, 30: 200})
		requireFigures(t, c.want, n.figures("active").less(before), name)
	}
}

// The container's memory is its cgroup's, however much of it each process shares with the others.
func TestProcessesDivideTheMemoryOfTheirCgroup(t *testing.T) {
	n := keyedNode(t, func(a *AttributionConfig) { a.Key, a.MemorySize = KeyMemory, MemoryCgroup })
	n.host.Processes[20].Cgroup = docker(idA)
	n.host.Processes[40].Resident = 0
	n.host.Cgroups["/system.slice/docker-"+idA+".scope"] = 0
	n.host.Memory["/system.slice/docker-"+idA+".scope"] = 900 * uint64(os.Getpagesize())
	n.start()
	n.run(600*joule, map[int]int64{10: 100, 20: 100, 30: 200})
	assert.InDelta(t, 180, n.one("container.energy").value, 2e-3, "900 of 1200 pages")
	assert.InDelta(t, 60, n.sum("process.energy", attrs{"process.executable.name": "a"}), 2e-3)
	assert.InDelta(t, 120, n.sum("process.energy", attrs{"process.executable.name": "b"}), 2e-3)
	assert.InDelta(t, 60, n.sum("process.energy", attrs{"process.executable.name": "c"}), 2e-3)
}

// It held its memory for 4 of 10 s.
func TestMemoryCountsForAsLongAsItIsHeld(t *testing.T) {
	n := keyedNode(t, func(a *AttributionConfig) { a.Key = KeyMemory })
	born := n.host.Processes[30]
	delete(n.host.Processes, 30)
	n.host.Processes[40].Resident = 0
	n.start()
	born.Start = int64((n.host.Uptime + 6*time.Second) / (10 * time.Millisecond))
	n.host.Processes[30] = born
	n.run(600*joule, map[int]int64{10: 100, 20: 100, 30: 200})
	requireFigures(t, figures{240. * 100 / 420, 240. * 200 / 420, 240. * 120 / 420, 0, 240}, n.figures("active"))
}

func TestWhereAKeyIsNotMeasuredCPUTimeStandsInAndOneLineSaysWhy(t *testing.T) {
	for _, key := range []KeyRule{KeyFrequency, KeyCycles, KeyInstructions, KeyCacheMisses} {
		n := keyedNode(t, func(a *AttributionConfig) { a.Key = key })
		clear(n.host.Clocks)
		n.start()
		for range 3 {
			n.run(600*joule, map[int]int64{10: 100, 20: 100, 30: 200})
		}
		requireFigures(t, figures{180, 180, 360, 0, 720}, n.figures("active"), key)
		lines := n.logs.FilterMessage("Degraded").All()
		require.Len(t, lines, 1, key)
		assert.Equal(t, "key "+string(key)+", for which CPU time stands in", lines[0].ContextMap()["what"])
		require.Len(t, n.status, 1)
		assert.Equal(t, componentstatus.StatusRecoverableError, n.status[0].Status())
	}
}

func TestAKeyThatCanBeMeasuredLaterIsTakenThen(t *testing.T) {
	n := keyedNode(t, func(a *AttributionConfig) { a.Key = KeyFrequency })
	clocks := n.host.Clocks
	n.host.Clocks = nil
	n.start()
	n.run(600*joule, map[int]int64{10: 100, 20: 100, 30: 200})
	n.host.Clocks = clocks
	for range 6 { // a minute
		before := n.figures("active")
		n.run(600*joule, map[int]int64{10: 100, 20: 100, 30: 200})
		if len(n.logs.FilterMessage("Recovered").All()) > 0 {
			requireFigures(t, figures{120, 40, 80, 0, 240}, n.figures("active").less(before))
			break
		}
		requireFigures(t, figures{60, 60, 120, 0, 240}, n.figures("active").less(before))
	}
	weighed := n.logs.FilterMessage("CPU time is weighed").All()
	require.Len(t, weighed, 1)
	assert.Equal(t, "clock rate by cpufreq", weighed[0].ContextMap()["by"])
	assert.Contains(t, weighed[0].ContextMap()["rejected"], "not those of this kernel", "why not by counters")
	assert.Equal(t, componentstatus.StatusOK, n.status[len(n.status)-1].Status())
}

func TestEachZoneHasTheKeyThatIsItsOwn(t *testing.T) {
	zones := []power.Kind{power.Package, power.DRAM, power.Core, power.Uncore}
	c := AttributionConfig{Key: KeyFrequency, Keys: map[power.Kind]KeyRule{power.DRAM: KeyMemory, power.Core: KeyCPUTime}}
	rules := c.rules(zones)
	assert.Equal(t, [attribution.Zones]attribution.Key{
		attribution.ByFirstWeight, attribution.BySecondWeight, attribution.ByCPUTime, attribution.ByFirstWeight,
	}, rules.Keys)
	assert.Equal(t, []KeyRule{KeyFrequency, KeyMemory}, c.weighed(zones))
	assert.Empty(t, c.weighed([]power.Kind{power.Core}))
}

// Neither the passes, nor the clock rates and the cgroups that are read in each.
func TestWeighingClaimsAllocatesNothingInTheSteadyState(t *testing.T) {
	n := keyedNode(t, func(*AttributionConfig) {})
	n.host.Cgroups["/a"], n.host.Memory["/a"] = 0, 1<<30
	require.NoError(t, n.host.Render())
	for _, key := range keyRules[1:] {
		cfg := createDefaultConfig().(*Config)
		cfg.RootPath = n.host.Root()
		cfg.Attribution.Key, cfg.Attribution.MemorySize = key, MemoryCgroup
		k := newKeys(cfg, zap.NewNop())
		claims := make([]attribution.Claim, 3)
		at := n.host.Now()
		assert.Zero(t, testing.AllocsPerRun(30, func() {
			at = at.Add(time.Second)
			k.begin()
			for i := range claims {
				claims[i].CPU = 5
				k.claimed(origin{cpu: int32(i), cgroup: "/a", seen: i > 0, resident: 1 << 20, held: time.Second})
			}
			k.weigh(at, claims)
		}), key)
		assert.NotZero(t, k.origins)
		require.NoError(t, k.close())
	}
}

// Files come and go with their containers.
func TestTheSizesOfContainersThatAreGoneAreForgotten(t *testing.T) {
	root := t.TempDir()
	sizes := newContainerSizes(root)
	defer func() { require.NoError(t, sizes.close()) }()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	sizes.begin(now)
	assert.False(t, sizes.read(sizes.of("/a")), "there is none")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "sys/fs/cgroup/memory/a"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "sys/fs/cgroup/memory/a/memory.usage_in_bytes"), []byte("4096\n"), 0o600))
	assert.False(t, sizes.read(sizes.of("/a")), "it is not looked for each time")
	sizes.begin(now.Add(measureSizesAgain))
	require.True(t, sizes.read(sizes.of("/a")), "as version 1 has it")
	assert.EqualValues(t, 4096, sizes.of("/a").charged)
	for name, text := range map[string]string{"empty": "", "cut short": "40", "a word": "max\n", "negative": "-1\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(root, "sys/fs/cgroup/memory/a/memory.usage_in_bytes"), []byte(text), 0o600))
		now = now.Add(2 * measureSizesAgain)
		sizes.begin(now)
		assert.False(t, sizes.read(sizes.of("/a")), name)
	}
	sizes.begin(now.Add(2 * forgetSizes))
	assert.Empty(t, sizes.known)
}

// BenchmarkWeigh weighs 100 claims of as many processes on 64 CPUs, with a file of cpufreq for each.
func BenchmarkWeigh(b *testing.B) {
	h := hostsim.New(b.TempDir())
	for cpu := range 64 {
		h.Clocks[cpu] = 3_000_000
	}
	require.NoError(b, h.Render())
	for _, key := range []KeyRule{KeyFrequency, KeyMemory, KeyMemoryCPUTime} {
		b.Run(string(key), func(b *testing.B) {
			cfg := createDefaultConfig().(*Config)
			cfg.RootPath, cfg.Attribution.Key = h.Root(), key
			k := newKeys(cfg, zap.NewNop())
			defer func() { require.NoError(b, k.close()) }()
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
