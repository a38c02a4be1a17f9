// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestARMGuest runs the collector for ARM on an emulated ARM machine: an ARM kernel loads its BPF
// programs, and a power supply with PMBus reports the machine's power. Two collectors, one with
// each CPU time source, measure the same containers. Debian's kernel for ARM has no other sensor
// that QEMU can emulate.
func TestARMGuest(t *testing.T) {
	need(t)
	k := guestKernel(t, "6.18.", "arm64")
	files := map[string]string{"otelcol-energy": armCollector(t), "load": buildFor(t, "arm64", "load")}
	t.Parallel()
	consumed := newConsumption(idleWatts)
	chip := newUSBChip(t, consumed)
	g := startGuest(t, &guestOptions{name: "arm-" + k.release, kernel: k, files: files, modules: chipModules, qemu: chip.qemu()})
	g.addsChip(t)

	collectors := map[string]*guestCollector{}
	for _, source := range []string{"bpf", "procfs"} {
		collectors[source] = g.startsCollector(t, source, "zones: [platform]", "cpu_time: "+source,
			"meters: {hwmon: {sensors: {pmbus/pin: platform}}}")
	}
	for _, c := range collectors {
		c.measures(t, 1, pmbus)
	}
	groups := []string{"/system.slice/docker-" + strings.Repeat("a1", 32) + ".scope", "/system.slice/docker-" + strings.Repeat("b2", 32) + ".scope"}
	for i, load := range []string{"burn 60 6", "burn 25 2.5"} {
		g.starts(t, "load"+strconv.Itoa(i), groups[i], append([]string{"/load"}, strings.Fields(load)...)...)
	}
	for _, watts := range []float64{200, 300, 120} {
		reach(t, consumed, watts, 4*time.Second)
	}
	for i := range groups {
		eventually(t, "the containers have used their CPU time and sleep", func() bool {
			return g.counts(t, "/tmp/load"+strconv.Itoa(i)+".log", "done") == 1
		})
	}
	reach(t, consumed, idleWatts, 4*time.Second)
	used := map[string]float64{}
	for _, group := range groups {
		used[group] = g.cpuTime(t, group)
	}
	for _, c := range collectors {
		c.measures(t, 3, pmbus)
		c.stops(t)
	}
	g.powersOff(t)

	for source, c := range collectors {
		t.Run(source, func(t *testing.T) {
			assert.True(t, strings.HasPrefix(c.source(), source), "CPU time source: %s", c.source())
			t.Logf("CPU time source: %s", c.source())
			c.requireEnergy(t, pmbus, consumed, 1, 0.02)
			requireBalance(t, c.emissions, "platform")
			for _, group := range groups {
				id := strings.TrimSuffix(group[strings.LastIndexByte(group, '-')+1:], ".scope")
				got := total(c.emissions, "container.cpu.time", "container.id="+id)
				t.Logf("%s: container %.2s used %.4f s, reported %.4f s (%+.2f %%)", source, id, used[group], got, 100*(got/used[group]-1))
				assert.InDelta(t, used[group], got, 0.02*used[group]+0.02, "container %.2s", id)
				assert.Positive(t, total(c.emissions, "container.energy", "container.id="+id, "energy.zone=platform"))
			}
		})
	}
}

// armCollector builds the collector for ARM from the sources that `make build` has generated.
func armCollector(t *testing.T) string {
	t.Helper()
	sources, err := filepath.Abs("../../../build")
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(sources, "main.go")); err != nil {
		t.Skipf("lacks the collector's generated sources in %s: make build", sources)
	}
	out := filepath.Join(cache(t), "otelcol-energy-arm64")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, ".")
	cmd.Dir, cmd.Env = sources, append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOARCH=arm64")
	began := time.Now()
	run(t, cmd)
	t.Logf("built for ARM in %.1f s", time.Since(began).Seconds())
	return out
}

// cpuTime returns the CPU time of a cgroup by its own counter, in seconds.
func (g *guest) cpuTime(t *testing.T, group string) float64 {
	t.Helper()
	text, err := g.reads(t, "/sys/fs/cgroup"+group+"/cpu.stat")
	require.NoError(t, err)
	found := regexp.MustCompile(`usage_usec (\d+)`).FindStringSubmatch(text)
	require.NotNil(t, found, text)
	microseconds, err := strconv.ParseFloat(found[1], 64)
	require.NoError(t, err)
	return microseconds / 1e6
}

// source returns the CPU time source in the collector's log.
func (c *guestCollector) source() string {
	for _, l := range c.log {
		if l.Msg == "CPU time source selected" {
			return l.Source
		}
	}
	return fmt.Sprintf("none, see %s", c.dir)
}
