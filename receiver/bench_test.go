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
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/energyreceiver/energyreceiver/internal/test/crowd"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
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
