// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// splitC is the program split in C.
const splitC = `#include <stdint.h>
#include <stdlib.h>
#include <time.h>
static volatile uint64_t sink;
__attribute__((noinline)) uint64_t work(uint64_t x, int n) {
	for (int i = 0; i < n; i++) { x = x * 6364136223846793005ull + 1442695040888963407ull; __asm__ volatile("" : "+r"(x)); }
	return x;
}
__attribute__((noinline)) uint64_t three(uint64_t x) { return work(x, 3000000) + 1; }
__attribute__((noinline)) uint64_t one(uint64_t x) { return work(x, 1000000) + 1; }
int main(int argc, char **argv) {
	time_t end = time(0) + atoi(argv[1]);
	while (time(0) < end) { sink = three(sink); sink = one(sink); }
}
`

func TestMeasureEnergyByFunction(t *testing.T) {
	need(t)
	collector := profilesCollector(t)
	if _, err := os.Stat("/sys/kernel/tracing/events"); err != nil {
		t.Skip("lacks tracefs: mount -t tracefs tracefs /sys/kernel/tracing")
	}
	c := filepath.Join(t.TempDir(), "split")
	require.NoError(t, os.WriteFile(c+".c", []byte(splitC), 0o600))
	run(t, exec.Command(program(t, "gcc", "gcc"), "-O2", "-o", c, c+".c"))
	for name, c := range map[string]struct{ split, three, one string }{
		"Go": {build(t, "split"), "main.three", "main.one"},
		"C":  {c, "three", "one"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "out.pb.gz")
			cmd, result := measureCommand(t, "--profiler", collector, "--profile", file, "--", c.split, "10")
			run(t, cmd)
			m := readMeasured(t, result)
			m.requireSums(t)
			written, err := os.Stat(result)
			require.NoError(t, err)
			after := written.ModTime().Sub(m.Started.Add(time.Duration(m.Seconds * float64(time.Second))))
			all, by := energyByFunction(t, file)
			assert.Equal(t, int64(math.Round(1e6*m.Joules)), all, "functions add up to the command's energy")
			sampled := by[c.three] + by[c.one]
			share := float64(by[c.three]) / float64(sampled)
			deviation := math.Sqrt(0.75 * 0.25 / (97 * m.CPUSeconds * float64(sampled) / float64(all)))
			t.Logf("%d µJ = the command's; %.1f %% of %.1f s in three, 75 ± %.1f %% expected; %.1f %% not sampled; written %v after the end",
				all, 100*share, m.CPUSeconds, 100*deviation, 100*float64(by["[not sampled]"])/float64(all), after)
			assert.InDelta(t, 0.75, share, 3*deviation)
			assert.Less(t, after, 5*time.Second)
		})
	}
}

// energyByFunction returns the energy of a profile in µJ: the total, and by function with its
// callees.
func energyByFunction(t *testing.T, path string) (all int64, by map[string]int64) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	p, err := profile.Parse(file)
	require.NoError(t, err)
	by = map[string]int64{}
	for _, s := range p.Sample {
		all += s.Value[0]
		seen := map[string]bool{}
		for _, location := range s.Location {
			for _, line := range location.Line {
				if name := line.Function.Name; !seen[name] {
					by[name] += s.Value[0]
					seen[name] = true
				}
			}
		}
	}
	return all, by
}
