// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The kernel's DRM and hwmon cores are tested with a GPU that a module of this project emulates,
// and with the kernel's drivers of GPUs that need no hardware or a GPU of QEMU. From Linux 6.5 on
// the core prints the clients; in earlier kernels each driver does.
func TestGPUsInAGuest(t *testing.T) {
	need(t)
	t.Parallel() // in parallel with the other guests
	for _, version := range []string{"6.1", "6.12"} {
		t.Run("Linux"+version, func(t *testing.T) {
			k := guestKernel(t, version+".", "amd64")
			module := k.buildModule(t, "gpu", "emulated_gpu")
			t.Parallel()
			g := startGPUGuest(t, k, map[string]string{
				"otelcol-energy": collectorBinary(t), "gpuload": build(t, "gpuload"), "emulated_gpu.ko": module,
			})
			g.loads(t, "/emulated_gpu.ko")
			g.findsClients(t)
			g.measures(t)
			g.powersOff(t)
			g.compares(t)
		})
	}
	t.Run("Linux6.18", func(t *testing.T) { // Debian 12 has no files to build modules for it
		k := guestKernel(t, "6.18.", "amd64")
		t.Parallel()
		g := startGPUGuest(t, k, map[string]string{})
		g.findsClients(t)
		g.powersOff(t)
	})
}

// emulatedGPU is the PCI address of the device that the module drives.
const emulatedGPU = "0000:00:10.0"

// gpuGuest is a guest with GPUs.
type gpuGuest struct {
	*guest
	collector   *guestCollector
	pids        map[string]string // by the name of a process
	steady, end during
	truth       gpuTruth // after all use
}

// startGPUGuest starts a guest with the kernel's drivers of GPUs in software.
func startGPUGuest(t *testing.T, k kernel, files map[string]string) *gpuGuest {
	t.Helper()
	files["drm.test"] = buildTests(t, "internal/usage/gpu/drm")
	return &gpuGuest{pids: map[string]string{}, guest: startGuest(t, &guestOptions{
		name: "gpus-" + k.release, kernel: k, files: files, modules: []string{"drm", "vgem", "virtio_pci", "virtio_gpu"},
		qemu: []string{"-device", "edu,addr=0x10", "-device", "virtio-gpu-pci"},
	})}
}

// findsClients runs the tests of package drm for the machine's own GPUs.
func (g *gpuGuest) findsClients(t *testing.T) {
	t.Helper()
	g.starts(t, "drm.test", "", "/drm.test", "-test.v", "-test.run=^TestClientsOfThisMachine")
	err := g.try(t, "Wait", "drm.test", &struct{}{})
	text, failed := g.reads(t, "/tmp/drm.test.log")
	require.NoError(t, failed)
	t.Log(text)
	require.NoError(t, err)
	assert.Contains(t, text, "--- PASS: TestClientsOfThisMachineAreFoundOnce")
}

// uses starts a process that uses the GPU, and waits until it and its child, if any, have the GPU.
func (g *gpuGuest) uses(t *testing.T, name string, render, copies int, how ...string) {
	t.Helper()
	node := g.finds(t, "/sys/bus/pci/devices/"+emulatedGPU+"/drm/renderD*")[0]
	node = "/dev/dri" + node[strings.LastIndexByte(node, '/'):]
	g.starts(t, name, "", append([]string{"/gpuload", node, fmt.Sprint(render), fmt.Sprint(copies)}, how...)...)
}

// has waits until a process has the GPU, and records its PID.
func (g *gpuGuest) has(t *testing.T, name, how, as string) {
	t.Helper()
	eventually(t, as+" has the GPU", func() bool {
		text, err := g.reads(t, "/tmp/"+name+".log")
		require.NoError(t, err)
		for line := range strings.Lines(text) {
			if pid, ok := strings.CutPrefix(line, how+" "); ok && strings.HasSuffix(pid, "\n") {
				g.pids[as] = strings.TrimSpace(pid)
			}
		}
		return g.pids[as] != ""
	})
}

// measures runs a collector while processes use the GPU. The GPU's power is 0 at the first and the
// last readings.
func (g *gpuGuest) measures(t *testing.T) {
	t.Helper()
	g.uses(t, "late", 100, 0, "waits", "/tmp/open") // opens long after its start
	g.uses(t, "broker", 0, 0, "brings", "/tmp/socket")
	g.has(t, "broker", "brings", "broker")
	g.collector = g.startsCollector(t, "gpu", "meters: {use: [hwmon]}", "zones: [gpu]", "cpu_time: procfs", "series: {processes: {group_by: pid, max: 0, min_energy: 0}}")
	g.collector.says(t, "energy is measured by hwmon", 0) // after the first reading
	g.idles(t, 20_000)
	g.uses(t, "busy", 300, 0, "opens")
	g.uses(t, "calm", 100, 0, "opens")
	g.uses(t, "copies", 100, 400, "opens")
	g.uses(t, "parent", 150, 0, "forks", "/tmp/close")
	g.uses(t, "session", 50, 0, "gets", "/tmp/socket")
	for _, name := range []string{"busy", "calm", "copies"} {
		g.has(t, name, "opens", name)
	}
	g.has(t, "parent", "forks", "parent")
	g.has(t, "parent", "has", "child")
	g.has(t, "session", "gets", "session")
	g.collector.emits(t, 3)
	g.steady.from = g.collector.sent(t)
	g.collector.emits(t, 12)
	g.steady.to = g.collector.sent(t)

	g.writes(t, "/tmp/open", "")
	g.writes(t, "/tmp/close", "")
	g.has(t, "late", "waits", "late")
	began := time.Now()
	for _, name := range []string{"late", "child"} {
		g.collector.until(t, "finds "+name, func() bool {
			emissions := readEmissions(t, g.keeps(t, "gpu.json"))
			return total(emissions, "process.energy", "energy.zone=gpu", "process.pid="+g.pids[name]) > 0
		})
		t.Logf("%s has energy after %.1f s", name, time.Since(began).Seconds())
	}
	g.collector.emits(t, 2)
	g.end.from = g.collector.sent(t)
	g.collector.emits(t, 12)
	g.end.to = g.collector.sent(t)

	g.idles(t, 0)
	for _, name := range []string{"busy", "calm", "copies", "parent", "session", "broker", "late"} {
		require.Error(t, g.try(t, "Stop", name, &struct{}{}), "the signal ends it")
	}
	g.collector.emits(t, 5)
	g.truth = g.readTruth(t)
	g.collector.stops(t)
}

func (g *gpuGuest) idles(t *testing.T, milliwatts int) {
	t.Helper()
	g.writes(t, "/sys/module/emulated_gpu/parameters/idle_mw", fmt.Sprint(milliwatts))
}

// gpuTruth is the state that the module reports.
type gpuTruth struct {
	energy float64 // J
	open   int     // clients that are not closed
}

func (g *gpuGuest) readTruth(t *testing.T) (truth gpuTruth) {
	t.Helper()
	text, err := g.reads(t, "/proc/emulated_gpu")
	require.NoError(t, err)
	t.Log(text)
	for line := range strings.Lines(text) {
		var microjoules uint64
		var id, opener, closed int
		if _, err := fmt.Sscanf(line, "energy %d", &microjoules); err == nil {
			truth.energy = float64(microjoules) / 1e6
		} else if _, err := fmt.Sscanf(line, "client %d %d %d", &id, &opener, &closed); err == nil && closed == 0 {
			truth.open++
		}
	}
	return truth
}

func (g *gpuGuest) compares(t *testing.T) {
	t.Helper()
	const zone = "energy.zone=gpu"
	emissions := g.collector.emissions
	energy := total(emissions, "hw.energy", "hw.type=gpu")
	t.Logf("true %.6f J, reported %.6f J", g.truth.energy, energy)
	assert.InDelta(t, g.truth.energy, energy, 0.5e-6)
	assert.Zero(t, g.truth.open, "all clients are closed")
	requireBalance(t, emissions, "gpu")
	counters := totals(emissions, "hw.energy", "hw.type=gpu")
	active := totals(emissions, "system.energy", zone, "energy.state=active")
	idle := totals(emissions, "system.energy", zone, "energy.state=idle")
	for i := range emissions {
		require.InDelta(t, counters[i], active[i]+idle[i], 0.5e-6, "emission %d", i)
	}
	t.Logf("of %.3f J active in the whole run, %.3f J are unattributed", active[len(active)-1],
		total(emissions, "system.unattributed.energy", zone))
	// The loads are in permille of an engine's time. The GPU is as busy as its busiest engine.
	g.requireShares(t, "steady", g.steady, 700, map[string]float64{
		"busy": 300, "calm": 100, "copies": 500, "parent": 150, "session": 50, "child": 0, "broker": 0, "late": 0,
	})
	g.requireShares(t, "end", g.end, 800, map[string]float64{
		"busy": 300, "calm": 100, "copies": 500, "parent": 0, "session": 50, "child": 150, "broker": 0, "late": 100,
	})
}

// requireShares checks the processes' shares of the GPU's active energy during steady use.
func (g *gpuGuest) requireShares(t *testing.T, when string, d during, busy float64, permille map[string]float64) {
	t.Helper()
	const zone = "energy.zone=gpu"
	emissions, all := g.collector.emissions, 0.0
	for _, p := range permille {
		all += p
	}
	active := gainedIn(emissions, d, "system.energy", zone, "energy.state=active")
	energy := gainedIn(emissions, d, "hw.energy", "hw.type=gpu")
	t.Logf("%s: %.3f J, of which %.2f %% active (true %.2f), unattributed %.6f J", when, energy, 100*active/energy, busy/10,
		gainedIn(emissions, d, "system.unattributed.energy", zone))
	assert.InEpsilon(t, busy/1000, active/energy, 0.1, "an emulated guest on a busy machine reads its clients about 100 ms after the clock")
	for name, p := range permille {
		got := gainedIn(emissions, d, "process.energy", zone, "process.pid="+g.pids[name]) / active
		t.Logf("%s, %s: %.2f %%, true %.2f %%", when, name, 100*got, 100*p/all)
		assert.InDelta(t, p/all, got, 0.02*p/all, "%s, %s", when, name)
	}
	pid := func(name string) string { return "process.pid=" + g.pids[name] }
	ratio := gainedIn(emissions, d, "process.energy", zone, pid("busy")) / gainedIn(emissions, d, "process.energy", zone, pid("calm"))
	t.Logf("%s: busy and calm are %.4f : 1", when, ratio)
	assert.InEpsilon(t, 3, ratio, 0.02)
}
