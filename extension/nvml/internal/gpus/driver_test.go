// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/nvml"
)

// driver is a library with simulated GPUs.
type driver struct {
	devices []nvml.Device
	errs    map[int]error // of Device
	err     error         // of DeviceCount
	opened  int
	closed  int
}

func (d *driver) DeviceCount() (int, error) { return len(d.devices), d.err }
func (d *driver) Close() error              { d.closed++; return nil }

func (d *driver) Device(index int) (nvml.Device, error) {
	if err := d.errs[index]; err != nil {
		return nil, err
	}
	return d.devices[index], nil
}

func (d *driver) open() (nvml.Library, error) {
	d.opened++
	return d, nil
}

// gpu is a simulated GPU on which one process runs at a time. It is simulated in steps of a millisecond.
type gpu struct {
	uuid, address string
	limit         uint32
	module        bool // the energy counter measures a module

	// runs returns which process runs at a time since the start, 0 for none.
	runs func(at time.Duration) uint32
	idle float64 // power in W of the idle GPU; it is busyWatts while a process runs

	period  time.Duration // of the driver's samples
	refresh time.Duration // of the energy counter
	keeps   int           // samples
	lag     func(sample int) time.Duration
	clock   func(at time.Time) uint64
	dry     bool // the driver does not sample while the GPU is idle

	noSamples, noProcesses, noEnergy error
	rate                             uint32
	mig                              bool
	slices                           []nvml.Device
	multiprocessors                  uint32

	began   time.Time
	at      time.Duration            // simulated until
	energy  float64                  // mJ
	counter uint64                   // energy at the last refresh
	used    map[uint32]time.Duration // true GPU time
	active  map[uint32]float64       // true energy in J above that of the idle GPU
	part    int                      // steps since the last sample in which a process ran
	last    uint32                   // the PID that ran last
	samples []sample
	taken   int
	shown   time.Duration // when the last sample shows
}

type sample struct {
	at      uint64
	shows   time.Duration
	percent float64
	pid     uint32 // of the process that ran last, 0 for none
}

const (
	step      = time.Millisecond
	busyWatts = 250.0
)

func newGPU(runs func(at time.Duration) uint32) *gpu {
	return &gpu{
		uuid: "GPU-1", address: "0000:65:00.0", limit: 300_000, runs: runs, idle: 50,
		period: time.Second / 6, refresh: 20 * time.Millisecond, keeps: 72,
		lag:   func(int) time.Duration { return 0 },
		clock: func(at time.Time) uint64 { return uint64(at.UnixMicro()) },
		began: time.Now(), used: map[uint32]time.Duration{}, active: map[uint32]float64{},
	}
}

// advance simulates until now.
func (g *gpu) advance() {
	for now := time.Since(g.began); g.at+step <= now; {
		pid := g.runs(g.at)
		watts := g.idle
		if pid != 0 {
			watts = busyWatts
			g.used[pid] += step
			g.active[pid] += (watts - g.idle) * step.Seconds()
			g.part++
			g.last = pid
		}
		g.energy += watts * 1000 * step.Seconds()
		before := g.at
		g.at += step
		if before/g.refresh != g.at/g.refresh {
			g.counter = uint64(g.energy)
		}
		if before/g.period != g.at/g.period {
			g.sample()
		}
	}
}

// sample ends a period of the driver.
func (g *gpu) sample() {
	steps := g.part
	g.part = 0
	g.shown = max(g.shown, g.at+g.lag(g.taken))
	s := sample{at: g.clock(g.began.Add(g.at)), shows: g.shown}
	length := float64(g.period / step)
	s.percent = math.Min(100*float64(steps)/length, 100)
	if steps > 0 {
		s.pid = g.last
	}
	g.taken++
	if g.dry && steps == 0 {
		return
	}
	g.samples = append(g.samples, s)
	g.samples = g.samples[max(0, len(g.samples)-g.keeps):]
}

// visible returns the samples since a timestamp.
func (g *gpu) visible(since uint64) (visible []sample) {
	g.advance()
	for _, s := range g.samples {
		if s.at > since && s.shows <= g.at {
			visible = append(visible, s)
		}
	}
	return visible
}

func (g *gpu) UUID() (string, error)              { return g.uuid, nil }
func (g *gpu) Name() (string, error)              { return "NVIDIA H100 80GB HBM3", nil }
func (g *gpu) PCIAddress() (string, error)        { return g.address, nil }
func (g *gpu) MeasuresModule() bool               { return g.module }
func (g *gpu) PowerLimit() (uint32, error)        { return g.limit, nil }
func (g *gpu) Utilization() (uint32, error)       { return g.rate, nil }
func (g *gpu) MIG() (bool, error)                 { return g.mig, nil }
func (g *gpu) MIGDevices() ([]nvml.Device, error) { return g.slices, nil }
func (g *gpu) Multiprocessors() (uint32, error)   { return g.multiprocessors, nil }
func (g *gpu) GPMSample() (nvml.GPMSample, error) { return nil, nvml.NotSupported }
func (g *gpu) TotalEnergy() (uint64, error)       { g.advance(); return g.counter, g.noEnergy }
func (g *gpu) Power() (uint32, bool, error)       { return 0, false, nvml.NotSupported }
func (g *gpu) Processes() ([]nvml.Process, error) { return nil, nil }

func (g *gpu) UtilizationSamples(since uint64) ([]nvml.Utilization, error) {
	if g.noSamples != nil {
		return nil, g.noSamples
	}
	var list []nvml.Utilization
	for _, s := range g.visible(since) {
		list = append(list, nvml.Utilization{Timestamp: s.at, Percent: uint32(math.Round(s.percent))})
	}
	return list, nil
}

func (g *gpu) ProcessUtilization(since uint64) ([]nvml.Sample, error) {
	if g.noProcesses != nil {
		return nil, g.noProcesses
	}
	visible := g.visible(since)
	var list []nvml.Sample
	for _, s := range visible {
		i := slices.IndexFunc(list, func(e nvml.Sample) bool { return e.PID == s.pid })
		switch {
		case i >= 0:
			list[i].Timestamp = s.at
		case s.pid != 0:
			list = append(list, nvml.Sample{PID: s.pid, Timestamp: s.at, SM: uint32(math.Round(mean(visible, s.pid)))})
		}
	}
	return list, nil
}

func mean(samples []sample, pid uint32) (sum float64) {
	for _, s := range samples {
		if s.pid == pid {
			sum += s.percent
		}
	}
	return sum / float64(len(samples))
}

// account sums the results of polls of one GPU, as the receiver does: the energy above that of the
// idle GPU belongs to its users.
type account struct {
	idle         float64 // W
	at           time.Time
	energy       uint64
	joules       map[uint32]float64 // active
	used         map[uint32]time.Duration
	busy         time.Duration
	elapsed      time.Duration
	unattributed time.Duration
}

func newAccount(idle float64) *account {
	return &account{idle: idle, joules: map[uint32]float64{}, used: map[uint32]time.Duration{}}
}

func (a *account) take(t testing.TB, d *gpulibrary.Device) {
	t.Helper()
	require.NoError(t, errors.Join(d.Err, d.UsageErr))
	if a.at.IsZero() {
		a.at, a.energy = d.At, d.Energy
		return
	}
	elapsed := d.At.Sub(a.at)
	require.True(t, elapsed >= 0 && d.Energy >= a.energy, "went back by %v, %d µJ", elapsed, a.energy-d.Energy)
	active := max(float64(d.Energy-a.energy)/1e6-a.idle*elapsed.Seconds(), 0)
	a.at, a.energy = d.At, d.Energy
	sum := d.Unattributed
	for _, u := range d.Users {
		sum += u.Used
	}
	for _, u := range d.Users {
		a.used[uint32(u.PIDs[0])] += u.Used
		if sum > 0 {
			a.joules[uint32(u.PIDs[0])] += active * float64(u.Used) / float64(sum)
		}
	}
	a.busy += d.Busy
	a.elapsed += d.Elapsed
	a.unattributed += d.Unattributed
}

// checkDevice checks what holds for every device.
func checkDevice(t testing.TB, d *gpulibrary.Device) {
	t.Helper()
	sum := d.Unattributed
	for _, u := range d.Users {
		require.True(t, u.Used >= 0 && len(u.PIDs) > 0 && u.PIDs[0] > 0, "%+v", u)
		sum += u.Used
	}
	require.True(t, d.Unattributed >= 0 && d.Busy >= 0 && d.Busy <= d.Elapsed && sum <= d.Elapsed+time.Duration(len(d.Users)), "%+v", d)
}
