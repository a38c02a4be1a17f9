// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
)

// platformOf shows the energy of a simulated machine, with 60 W in addition to its socket, as of
// the last multiple of every.
type platformOf struct {
	machine *hostsim.Machine
	every   time.Duration
	booted  time.Duration // start of the meter
	reading power.Reading
}

// measure is called as time passes.
func (m *platformOf) measure() {
	if ran := m.machine.Now() - m.booted; ran%m.every != 0 {
		return
	}
	socket := m.machine.Sockets[0]
	energy := 60e6*m.machine.Now().Seconds() + socket.Energy.Package + socket.Energy.DRAM
	m.reading.Total, m.reading.At = units.Energy(energy), m.machine.Host.Now()
}

func (m *platformOf) Read(context.Context, power.Sample) ([]power.Reading, error) {
	return []power.Reading{m.reading}, nil
}

func (*platformOf) Close() error { return nil }

// slowCase is the timing of a receiver, and the largest difference between shares by a slow meter
// and by a fast meter.
type slowCase struct {
	window, collection time.Duration // window: 0 for one per collection
	static             bool          // the configuration has the static power
	limit              float64       // of each share, relative
}

// observe returns a receiver whose only meter is updated every interval of length every.
func (tc *slowCase) observe(t *testing.T, on *hostsim.Machine, every time.Duration) (*simulator, *platformOf) {
	l := &simulator{tb: t, root: on.Host.Root(), machine: on, series: map[simSeries]float64{}}
	m := &platformOf{machine: on, every: every, booted: on.Now(), reading: power.Reading{Zone: &power.Zone{
		ID: "bmc", Kind: power.Platform, Method: power.Measured, Domain: units.NodeCPUs,
	}}}
	m.measure()
	cfg := simpleConfig()
	cfg.RootPath, cfg.Zones = l.root, []power.Kind{power.Platform}
	cfg.CollectionInterval, cfg.Window = tc.collection, tc.window
	if tc.static {
		cfg.Attribution.StaticPower = fixedPower(map[power.Kind]float64{power.Platform: 83})
	}
	l.receive(cfg, nil, func(to *machine.Machine) {
		to.Now = on.Host.Now
		to.OpenMeters = func(context.Context, *config.Config, component.Host, component.TelemetrySettings) (*power.Set, error) {
			return power.NewSet(power.Member{Name: "bmc", Meter: m}), nil
		}
	})
	return l, m
}

// mix returns a function that changes the load of a machine: requests in waves, jobs of half a
// minute and of a few seconds, and an almost idle process.
func (l *simulator) mix() func(at time.Duration) {
	web, batch, build := l.process("web", 0, 1), l.process("batch", 0, 0), l.process("build", 0, 0)
	l.process("idler", 0, 0.1)
	rng := rand.New(rand.NewPCG(1, 2))
	var next [2]time.Duration
	return func(at time.Duration) {
		web.tasks[0].Demand = 1.5 + math.Sin(at.Seconds()/20) + 0.4*rng.Float64()
		for i, job := range []*simWorkload{batch, build} {
			if at >= next[i] {
				job.tasks[0].Demand = float64(rng.IntN(5))
				next[i] = at + time.Duration(rng.ExpFloat64()*float64([...]time.Duration{20 * time.Second, 5 * time.Second}[i]))
			}
		}
	}
}

// share returns the workload's share of the energy of all workloads.
func (l *simulator) share(workload string) float64 {
	var sum, own float64
	for s, energy := range l.series {
		if s.metric == "process.energy" && s.of != "" && s.zone == string(power.Platform) {
			if sum += energy; s.of == workload {
				own += energy
			}
		}
	}
	return own / sum
}

// TestSharesByASlowMeterEqualSharesByAFastOne compares two receivers on a machine with a changing
// mix of processes: one with a platform meter that is updated every 15 seconds, one with a meter
// that is updated in each window. With -v it prints the errors.
func TestSharesByASlowMeterEqualSharesByAFastOne(t *testing.T) {
	for _, tc := range []slowCase{
		{0, 5 * time.Second, false, .01},
		{0, 5 * time.Second, true, .01},
		{0, 10 * time.Second, false, .01},
		// The meter is updated in the middle of every second collection, so the window of its
		// energy differs from the window of the CPU time.
		{0, 10 * time.Second, true, .02},
		// Within 15 seconds the slow meter does not show which tasks ran while power was higher.
		{time.Second, 10 * time.Second, false, .0125},
		{time.Second, 10 * time.Second, true, .0125},
	} {
		curve, err := model.NewCurve([]model.Point{{Utilization: 0, Watts: 20}, {Utilization: .5, Watts: 100}, {Utilization: 1, Watts: 140}})
		require.NoError(t, err)
		machine := hostsim.NewMachine(treeDir(t), &hostsim.Socket{CPUs: 8, Idle: 20, DRAMIdle: 3, Curve: curve})
		const step = 100 * time.Millisecond
		fast, fastMeter := tc.observe(t, machine, step)
		slow, slowMeter := tc.observe(t, machine, 15*time.Second)
		drive := fast.mix()
		slow.workloads = fast.workloads
		require.NoError(t, machine.Render())
		for _, l := range []*simulator{fast, slow} {
			require.NoError(t, l.r.Start(t.Context()))
			defer func() { require.NoError(t, l.r.Shutdown(t.Context())) }()
		}
		window := cmp.Or(tc.window, tc.collection)
		for at := step; at <= 11*time.Minute; at += step {
			drive(at)
			machine.Step(step)
			fastMeter.measure()
			slowMeter.measure()
			if at%window > 0 {
				continue
			}
			require.NoError(t, machine.Render())
			for _, l := range []*simulator{fast, slow} {
				if at%tc.collection > 0 {
					l.windows.end()
				} else {
					l.collect()
				}
			}
		}
		for _, w := range fast.workloads {
			e := slow.share(w.name)/fast.share(w.name) - 1
			t.Logf("window %v, static power known: %t: %s: %+.2f %%", window, tc.static, w.name, 100*e)
			assert.LessOrEqual(t, math.Abs(e), tc.limit, w.name)
		}
	}
}
