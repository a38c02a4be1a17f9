// SPDX-License-Identifier: Apache-2.0

//go:build linux

package energyreceiver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/energyreceiver/energyreceiver/internal/test/crowd"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/receiver/internal/windows"
)

// crowds are the numbers of processes that exist during the benchmarks. The variable CROWD sets one.
func crowds(b *testing.B) []int {
	if s := os.Getenv("CROWD"); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(b, err, "CROWD")
		return []int{n}
	}
	return []int{100, 1000, 10_000}
}

// beside runs benchmarks with a crowd of processes, one in a hundred of which is active.
func beside(b *testing.B, run func(b *testing.B)) {
	for _, n := range crowds(b) {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			keepCrowd(b)(crowd.Start(b.TempDir(), n, n/100))
			run(b)
		})
	}
}

// keepCrowd returns a function that takes the results of crowd.Start and stops the crowd at the end of the benchmark.
func keepCrowd(b *testing.B) func(stop func() error, err error) {
	return func(stop func() error, err error) {
		if errors.Is(err, crowd.ErrNoCompiler) || errors.Is(err, crowd.ErrNoCgroups) {
			b.Skip(err)
		}
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, stop()) })
	}
}

// measureCPU runs an operation b.N times and reports the user and system CPU time of each. Wall time would include
// other processes.
func measureCPU(b *testing.B, operation func()) {
	operation() // lets buffers grow
	b.ReportAllocs()
	before := cpuTime(b)
	for b.Loop() {
		operation()
	}
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
}

// atIntervals is measureCPU for an operation that runs once per interval, so that caches are as cold as they then are.
func atIntervals(b *testing.B, interval time.Duration, operation func()) {
	m := windows.NewMetronome(interval)
	defer m.Stop()
	measureCPU(b, func() { m.Next(); operation() })
}

// collect makes a collection that the next consumer acknowledges.
func collect(b *testing.B, s *energyScraper) {
	_, err := s.scrape(context.Background())
	require.NoError(b, err)
	s.delivered(delivery{all: true, some: true})
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkHostile measures a collection with 300 active processes: honest ones, and ones made to be expensive to read.
// All of them run between two collections.
func BenchmarkHostile(b *testing.B) {
	const n, pause, qemu = 300, 150 * time.Millisecond, "qemu-system-x86_64"
	for _, c := range []struct {
		name     string
		disguise crowd.Disguise
	}{
		{"honest", crowd.Disguise{Program: "crowd"}},
		{"nul bytes", crowd.Disguise{Program: "crowd", Fill: "nul"}},
		{"short arguments", crowd.Disguise{Program: "crowd", Fill: "short"}},
		{"honest hypervisors", crowd.Disguise{Program: qemu}},
		{"hypervisors with short arguments", crowd.Disguise{Program: qemu, Fill: "short"}},
		{"hypervisors with a long name", crowd.Disguise{
			Program: qemu, Fill: "long", Arguments: []string{"-name", "guest=" + strings.Repeat("n", 100_000)},
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			keepCrowd(b)(crowd.StartDisguised(b.TempDir(), n, c.disguise))
			for _, kind := range []cpu.SourceKind{cpu.KindProcfs, cpu.KindBPF} {
				b.Run(string(kind), func(b *testing.B) {
					s := realScraper(b, kind, 0)
					atIntervals(b, pause, func() { collect(b, s) })
				})
			}
		})
	}
}

// BenchmarkRules measures the same under each preset, and under the rules that no preset uses. The time between two
// collections is long enough that there is energy to share.
func BenchmarkRules(b *testing.B) {
	const pause = 20 * time.Millisecond
	rules := []config.AttributionConfig{}
	for _, preset := range []config.Preset{config.PresetKepler, config.PresetKepler09, config.PresetSmartWatts, config.PresetKubeWatt, config.PresetKavanagh} {
		rules = append(rules, config.AttributionConfig{Preset: preset})
	}
	for _, idle := range []config.IdleRule{config.IdleNone, config.IdleEqual, config.IdleRequested, config.IdleUsed} {
		rules = append(rules, config.AttributionConfig{Preset: config.PresetKepler, StaticPower: allStatic(config.StaticTrained), Idle: idle})
	}
	for _, weight := range config.Weights[1:] {
		rules = append(rules, config.AttributionConfig{Preset: config.PresetKepler, Weight: allWeight(weight)})
	}
	beside(b, func(b *testing.B) {
		for _, kind := range []cpu.SourceKind{cpu.KindProcfs, cpu.KindBPF} {
			for _, c := range rules {
				b.Run(fmt.Sprintf("%s/%s %s %s %s", kind, c.Preset, c.StaticPower[config.AllZones].Model, c.Idle, c.Weight[config.AllZones]), func(b *testing.B) {
					window := time.Duration(0)
					if kind == cpu.KindBPF {
						window = pause / 2 // otherwise the node's CPU time would come in ticks
					}
					s := realScraper(b, kind, window, func(cfg *Config) {
						cfg.Attribution = c
						cfg.Attribution.Tuning.Rest = 1
					})
					for _, err := range s.node.Keys.Failed() {
						b.Skip(err)
					}
					atIntervals(b, pause, func() { collect(b, s) })
				})
			}
		}
	})
}

// BenchmarkScope measures one window, of a collection or of 150 ms, with a crowd of which one in twenty is active. The
// machine's CPUs are presented as two packages with a zone each.
func BenchmarkScope(b *testing.B) {
	for _, n := range crowds(b) {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			keepCrowd(b)(crowd.Start(b.TempDir(), n, n/20))
			for _, kind := range []cpu.SourceKind{cpu.KindProcfs, cpu.KindBPF} {
				for _, scope := range []config.Scope{config.ScopeNode, config.ScopeZone} {
					b.Run(string(kind)+"/"+string(scope), func(b *testing.B) {
						root, add := twoPackages(b)
						s := realScraper(b, kind, 0, func(c *Config) {
							c.RootPath, c.Meters.Use, c.Attribution.Scope = root, only(config.MeterPowercap), scope
						})
						require.Equal(b, scope == config.ScopeZone, s.node.CPU.Topology() != nil)
						atIntervals(b, 150*time.Millisecond, func() { add(); s.sample() })
					})
				}
			}
		})
	}
}

// BenchmarkSMTWeight measures the same with and without smt_weight. The machine's CPUs are
// presented as the threads of cores.
func BenchmarkSMTWeight(b *testing.B) {
	for _, n := range crowds(b) {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			keepCrowd(b)(crowd.Start(b.TempDir(), n, n/20))
			for _, kind := range []cpu.SourceKind{cpu.KindProcfs, cpu.KindBPF} {
				for _, weight := range []float64{1, 0.6} {
					b.Run(fmt.Sprint(kind, "/", weight), func(b *testing.B) {
						root, add := twoPackages(b)
						s := realScraper(b, kind, 0, func(c *Config) {
							c.RootPath, c.Meters.Use, c.Attribution.SMTWeight = root, only(config.MeterPowercap), weight
						})
						require.Equal(b, weight < 1, s.node.Siblings != nil && s.node.Siblings.Shared())
						atIntervals(b, 150*time.Millisecond, func() { add(); s.sample() })
					})
				}
			}
		})
	}
}

// twoPackages returns a root with this machine's processes, and its CPUs in two packages with a
// zone each, and as the threads of cores. add adds energy to the zones.
func twoPackages(b *testing.B) (root string, add func()) {
	root = b.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		require.NoError(b, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(b, os.WriteFile(path, []byte(text), 0o600))
	}
	cpus := runtime.NumCPU()
	write("sys/devices/system/cpu/online", fmt.Sprintf("0-%d\n", cpus-1))
	for i := range cpus {
		write(fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/physical_package_id", i), fmt.Sprintf("%d\n", i*2/cpus))
		write(fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i), fmt.Sprintf("%d,%d\n", i, i^1))
	}
	require.NoError(b, os.Symlink("/proc", filepath.Join(root, "proc")))
	require.NoError(b, os.Symlink("/sys/fs", filepath.Join(root, "sys/fs")))
	energy := 0
	add = func() {
		energy += 3_000_000
		for i := range 2 {
			write(fmt.Sprintf("sys/class/powercap/intel-rapl:%d/energy_uj", i), fmt.Sprintln(energy))
		}
	}
	for i := range 2 {
		write(fmt.Sprintf("sys/class/powercap/intel-rapl:%d/name", i), fmt.Sprintf("package-%d\n", i))
		write(fmt.Sprintf("sys/class/powercap/intel-rapl:%d/max_energy_range_uj", i), "262143328850\n")
	}
	add()
	return root, add
}

// realScraper returns the receiver on this machine, with the model meter and without a sampler.
func realScraper(b *testing.B, kind cpu.SourceKind, window time.Duration, edit ...func(*Config)) *energyScraper {
	return startScraper(b, realConfig(kind, window, edit...), componenttest.NewNopHost())
}

func realConfig(kind cpu.SourceKind, window time.Duration, edit ...func(*Config)) *Config {
	cfg := simpleConfig()
	cfg.Meters.Use, cfg.CPUTime, cfg.Window = only(), kind, window
	cfg.Model = configoptional.Some(linear(40, 120))
	for _, f := range edit {
		f(cfg)
	}
	return cfg
}

// startScraper starts the receiver, without a sampler, until the benchmark ends.
func startScraper(b *testing.B, cfg *Config, host component.Host) *energyScraper {
	s := newScraper(b, cfg, machine.Local())
	if err := s.start(context.Background(), host); err != nil {
		b.Skip(err)
	}
	s.windows.Sampler.Stop()
	b.Cleanup(func() { require.NoError(b, s.shutdown(context.Background())) })
	return s
}
