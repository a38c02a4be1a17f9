// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// card returns a card that draws 30 W at rest and 200 W with its first engine busy. It has two more
// units for video.
func card(driver string) *GPU {
	return &GPU{
		Address: "0000:03:00.0", Driver: driver, Idle: 30, Curve: model.Curve{{Utilization: 0, Watts: 30}, {Utilization: 1, Watts: 200}},
		Engines: []Engine{{Name: "gfx", Weight: 1}, {Name: "dec", Units: 2, Weight: 0.2}},
	}
}

func TestCardEnergyIsIdlePlusContexts(t *testing.T) {
	m := machineOf(t, rising())
	g := m.AddGPU(card("amdgpu"))
	g.Curve = model.Curve{{Utilization: 0, Watts: 35}, {Utilization: 0.3, Watts: 150}, {Utilization: 1, Watts: 250}}
	var all []*Context
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		switch {
		case len(g.Contexts) < 6:
			c := task(m, 0, 0).OpenGPU(g)
			c.Demand[0], c.Demand[1], c.Intensity = r.Float64(), r.Float64(), 0.5+r.Float64()
			all = append(all, c)
		case r.IntN(3) == 0:
			task := g.Contexts[r.IntN(len(g.Contexts))].Task
			task.Exit()
			task.Reap(false)
		}
		m.Step(time.Duration(r.IntN(100_000_000)))
	}
	var sum float64
	var used time.Duration
	for _, c := range all {
		sum += c.Energy
		used += c.Used[0]
	}
	assert.InEpsilon(t, g.Energy, g.Idled+sum, 1e-9)
	assert.Greater(t, sum, g.Energy/4)
	assert.LessOrEqual(t, used, g.Busy+time.Millisecond, "one unit")
}

func TestContextsShareAnEngineInProportionToDemand(t *testing.T) {
	m := machineOf(t, rising())
	g := m.AddGPU(card("amdgpu"))
	a, b, holds := task(m, 0, 0).OpenGPU(g), task(m, 0, 0).OpenGPU(g), task(m, 0, 0).OpenGPU(g)
	a.Demand[0], b.Demand[0], a.Demand[1] = 3, 1, 2
	m.Step(8 * time.Second)
	assert.Equal(t, []time.Duration{6 * time.Second, 16 * time.Second}, a.Used)
	assert.Equal(t, 2*time.Second, b.Used[0])
	assert.InDelta(t, 1.2*170, g.Watts-30, 1e-9, "both engines")
	assert.InDelta(t, (0.75+0.2)/1.2, a.Energy/(g.Energy-g.Idled), 1e-9)
	assert.Zero(t, holds.Energy, "it has the card open and does not use it")
	assert.Equal(t, 8*time.Second, g.Busy)
}

func TestAContextIsConfinedToItsSlice(t *testing.T) {
	m := machineOf(t, rising())
	g := m.AddGPU(card("nvidia"))
	g.Slices = []float64{0.75, 0.25}
	a, b := task(m, 0, 0).OpenGPU(g), task(m, 0, 0).OpenGPU(g)
	a.Demand[0], b.Demand[0], b.Slice = 1, 1, 1
	m.Step(4 * time.Second)
	assert.Equal(t, 3*time.Second, a.Used[0])
	assert.Equal(t, time.Second, b.Used[0])
}

func TestACardIsShownAsItsDriverDoes(t *testing.T) {
	m := machineOf(t, rising())
	amd, intel := m.AddGPU(card("amdgpu")), m.AddGPU(card("xe"))
	intel.Address = "0000:07:00.0"
	user := task(m, 0, 0)
	a, b := user.OpenGPU(amd), user.OpenGPU(intel)
	a.Demand[0], b.Demand[1] = 0.5, 1
	m.Step(2 * time.Second)
	require.NoError(t, m.Render())
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(m.Host.Root(), name))
		require.NoError(t, err)
		return string(text)
	}
	link := func(name string) string {
		target, err := os.Readlink(filepath.Join(m.Host.Root(), name))
		require.NoError(t, err)
		return target
	}
	assert.Equal(t, "/dev/dri/renderD128", link("proc/2/fd/3"))
	assert.Equal(t, "/dev/dri/renderD129", link("proc/2/fd/4"))
	info := read("proc/2/fdinfo/3")
	assert.Contains(t, info, "drm-driver:\tamdgpu\ndrm-client-id:\t1\ndrm-pdev:\t0000:03:00.0\n")
	assert.Contains(t, info, "drm-engine-gfx:\t1000000000 ns\n")
	assert.NotContains(t, info, "dec", "it was not used")
	info = read("proc/2/fdinfo/4")
	assert.Contains(t, info, "drm-cycles-gfx:\t0\ndrm-total-cycles-gfx:\t19238400000\n", "since the machine booted 1,002 s ago")
	assert.Contains(t, info, "drm-cycles-dec:\t38400000\ndrm-total-cycles-dec:\t19238400000\ndrm-engine-capacity-dec:\t2\n")
	assert.Equal(t, "amdgpu\n", read("sys/class/hwmon/hwmon0/name"))
	assert.Equal(t, "115000000\n", read("sys/class/hwmon/hwmon0/power1_average"), "in µW")
	assert.Equal(t, "94000000\n", read("sys/class/hwmon/hwmon1/energy1_input"), "in µJ: 2 s of 30 W and a tenth of 170 W")
	assert.Equal(t, "0x1002\n", read("sys/class/drm/renderD128/device/vendor"))
	assert.Equal(t, "0x8086\n", read("sys/bus/pci/devices/0000:07:00.0/vendor"))

	a.Close()
	require.NoError(t, m.Render())
	assert.NoFileExists(t, filepath.Join(m.Host.Root(), "proc/2/fdinfo/3"))
	user.Exit()
	require.NoError(t, m.Render())
	assert.NoFileExists(t, filepath.Join(m.Host.Root(), "proc/2/fdinfo/4"))
	assert.Empty(t, intel.Contexts)
}

func TestALibrarySamplesTheUsersOfACard(t *testing.T) {
	m := machineOf(t, rising())
	g := m.AddGPU(card("nvidia"))
	l := NewLibrary(m, time.Now().Add(-m.Now()))
	a, b := task(m, 0, 0).OpenGPU(g), task(m, 0, 0).OpenGPU(g)
	task(m, 0, 0).OpenGPU(g)
	run := func(d time.Duration) {
		for range d / time.Millisecond {
			m.Step(time.Millisecond)
		}
	}
	a.Demand[0], b.Demand[0] = 0.6, 0.2
	run(time.Second)
	devices, err := l.Poll(t.Context())
	require.NoError(t, err)
	assert.Zero(t, devices[0].Elapsed, "the first poll is the baseline")
	assert.Len(t, devices[0].Users, 3)
	energy, at := devices[0].Energy, devices[0].At

	run(time.Second)
	devices, err = l.Poll(t.Context())
	require.NoError(t, err)
	d := devices[0]
	assert.InDelta(t, time.Second, d.At.Sub(at), float64(samplePeriod+l.Lag))
	assert.InEpsilon(t, (30+0.8*170)*1e6*d.At.Sub(at).Seconds(), d.Energy-energy, 0.02, "the counter is up to 20 ms old")
	assert.InDelta(t, time.Second, d.Elapsed, float64(samplePeriod))
	require.Len(t, d.Users, 3)
	assert.InDelta(t, 0.6, d.Users[0].Used.Seconds()/d.Elapsed.Seconds(), 0.01)
	assert.InDelta(t, 0.2, d.Users[1].Used.Seconds()/d.Elapsed.Seconds(), 0.01)
	assert.Zero(t, d.Users[2].Used, "it has the card open")
	assert.Equal(t, []int32{int32(a.Task.PID)}, d.Users[0].PIDs)
	assert.WithinDuration(t, d.At, d.Users[0].Last, samplePeriod+l.Lag)

	a.Task.Exit()
	run(time.Second)
	devices, err = l.Poll(t.Context())
	require.NoError(t, err)
	require.Len(t, devices[0].Users, 3, "samples from before the exit are reported")
	run(time.Second)
	devices, err = l.Poll(t.Context())
	require.NoError(t, err)
	require.Len(t, devices[0].Users, 2)
}

func TestALibraryReportsASlicesActivityWithoutProcesses(t *testing.T) {
	m := machineOf(t, rising())
	g := m.AddGPU(card("nvidia"))
	g.Slices = []float64{0.5, 0.5}
	l := NewLibrary(m, time.Now().Add(-m.Now()))
	a, b, c := task(m, 0, 0).OpenGPU(g), task(m, 0, 0).OpenGPU(g), task(m, 0, 0).OpenGPU(g)
	c.Slice = 1
	a.Demand[0], b.Demand[0], c.Demand[0] = 0.1, 0.3, 0.2
	_, err := l.Poll(t.Context())
	require.NoError(t, err)
	for range 2000 {
		m.Step(time.Millisecond)
	}
	devices, err := l.Poll(t.Context())
	require.NoError(t, err)
	require.Len(t, devices[0].Users, 2)
	assert.Equal(t, []int32{int32(a.Task.PID), int32(b.Task.PID)}, devices[0].Users[0].PIDs)
	assert.InDelta(t, 0.4, devices[0].Users[0].Used.Seconds()/devices[0].Elapsed.Seconds(), 0.01)
	assert.Equal(t, []int32{int32(c.Task.PID)}, devices[0].Users[1].PIDs)
}
