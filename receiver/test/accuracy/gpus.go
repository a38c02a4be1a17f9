// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// gpuSettings are the settings of the table of GPUs. The receiver reads cards of xe and amdgpu from
// fdinfo and hwmon, and cards of nvidia through a library. A model is trained on cards under varied
// load before the measurement.
var gpuSettings = slices.Concat(
	onCards(
		"utilization, fdinfo (xe), 10 s", "utilization, library, 10 s", "fixed, fdinfo (xe), 10 s", "fixed, library, 10 s",
		"fixed, fdinfo (xe), 1 s", "fixed, fdinfo (amdgpu), 1 s", "fixed, library, 1 s", "trained, fdinfo (xe), 1 s", "trained, library, 1 s",
	),
	[]simSetting{
		{name: "Kepler's rule, 5 s", driver: "nvidia", by: keplersRule(false)},
		{name: "Kepler's rule, maximum of samples, 5 s", driver: "nvidia", by: keplersRule(true)},
	},
)

// onCards returns settings whose models are trained for six hours.
func onCards(names ...string) []simSetting {
	all := among(nil, names...)
	for i := range all {
		all[i].training = min(all[i].training, 6*time.Hour)
	}
	return all
}

var gpuScenarios = []simScenario{
	{
		name: "Two processes, steady",
		description: "The process `train` keeps the card busy 60 % of the time and `serve` 20 %, steadily: 3:1. The process `other` uses 2 CPUs\n" +
			"and no card.",
		build: func(l *simulator) {
			g := l.card()
			l.uses(l.process("train", 0, 0.5), g, 0.6)
			l.uses(l.process("serve", 0, 0.5), g, 0.2)
			l.process("other", 0, 2)
		},
	},
	{
		name: "Bursts on a card",
		description: "Half of what load adds to the card's power comes with the first quarter of it. The process `steady` keeps the card busy\n" +
			"20 % of the time. `burst` asks for all of it during 2 s of every 7 s, and gets five sixths.",
		build: func(l *simulator) {
			g := l.card()
			g.Curve = concaveCard
			l.uses(l.process("steady", 0, 0.1), g, 0.2)
			l.inBursts(l.uses(l.process("burst", 0, 0.1), g, 0))
		},
	},
	{
		name: "Unequal users",
		description: "On the same card: the processes `large` with 40 % of its time, `small` with 4 % and `tiny` with 1 %. It is idle for the\n" +
			"rest.",
		build: func(l *simulator) {
			g := l.card()
			g.Curve = concaveCard
			l.uses(l.process("large", 0, 0.1), g, 0.4)
			l.uses(l.process("small", 0, 0.1), g, 0.04)
			l.uses(l.process("tiny", 0, 0.1), g, 0.01)
		},
	},
	{
		name: "A card's user without CPU time",
		description: "The container `kernel` keeps the card busy 70 % of the time and uses no CPU time. The process `web` uses 2 CPUs and no\n" +
			"card, `serve` 0.5 CPUs and 5 % of the card.",
		build: func(l *simulator) {
			g := l.card()
			l.uses(l.container("kernel", 0, 0), g, 0.7)
			l.uses(l.process("serve", 0, 0.5), g, 0.05)
			l.process("web", 0, 2)
		},
	},
	{
		name: "Memory only",
		description: "The process `holder` has the card open, holds half of its memory and does nothing. `batch` keeps it busy during 2 s of\n" +
			"every 7 s.",
		build: func(l *simulator) {
			g := l.card()
			l.uses(l.process("holder", 0, 0.1), g, 0).Memory = 12 << 30
			l.inBursts(l.uses(l.process("batch", 0, 0.5), g, 0))
		},
	},
	{
		name: "Jobs on a card",
		description: "In every 7 s a new container `job` lives for 3 s and keeps the card busy half of the time; all of them are taken\n" +
			"together. The process `serve` uses 20 % steadily.",
		build: func(l *simulator) {
			g := l.card()
			l.uses(l.process("serve", 0, 0.1), g, 0.2)
			l.jobs(7*time.Second, 2219*ms, func(job *simWorkload) {
				l.contain(job, 0, 0.2)
				l.uses(job, g, 0.5)
			})
		},
	},
	{
		name: "Two cards",
		description: "The process `first` keeps one card busy 90 % of the time, `second` another one 30 %, and `both` either 10 %. The load of\n" +
			"the second card draws three times as much.",
		build: func(l *simulator) {
			g, other := l.card(), l.card()
			other.Curve = model.Curve{{Utilization: 0, Watts: 40}, {Utilization: 1, Watts: 820}}
			l.uses(l.process("first", 0, 0.1), g, 0.9)
			l.uses(l.process("second", 0, 0.1), other, 0.3)
			both := l.process("both", 0, 0.1)
			l.uses(both, g, 0.1)
			l.uses(both, other, 0.1)
		},
	},
	{
		name:   "Slices of a card",
		driver: "nvidia",
		description: "MIG divides the card into slices of 4/7 and 3/7. The process `whole` has the larger one and keeps half of it busy, the\n" +
			"container `shared` has two processes in the smaller one that keep all of it busy.",
		build: func(l *simulator) {
			g := l.card()
			g.Slices = []float64{4. / 7, 3. / 7}
			l.uses(l.process("whole", 0, 0.1), g, 2./7)
			shared := l.container("shared", 0, 0.1)
			l.uses(shared, g, 0.3).Slice = 1
			c := shared.spawn().OpenGPU(g)
			c.Demand[0], c.Slice = 0.3, 1
			shared.contexts = append(shared.contexts, c)
		},
	},
}

// concaveCard is the power of a card whose first load costs the most.
var concaveCard = model.Curve{{Utilization: 0, Watts: 40}, {Utilization: 0.25, Watts: 170}, {Utilization: 1, Watts: 300}}

// card adds a card that draws 40 W at rest and 300 W at full load, linear in between.
func (l *simulator) card() *hostsim.GPU {
	if l.machine == nil {
		l.on(straight(8, 20, 100))
	}
	return l.machine.AddGPU(&hostsim.GPU{
		Address: fmt.Sprintf("0000:%02x:00.0", 3+len(l.machine.GPUs)), Driver: l.driver, Idle: 40,
		Curve: model.Curve{{Utilization: 0, Watts: 40}, {Utilization: 1, Watts: 300}}, Engines: []hostsim.Engine{{Name: "ccs", Weight: 1}},
	})
}

// uses makes a workload's last task keep a part of the card's first engine busy.
func (l *simulator) uses(w *simWorkload, g *hostsim.GPU, demand float64) *hostsim.Context {
	c := w.tasks[len(w.tasks)-1].OpenGPU(g)
	c.Demand[0] = demand
	w.contexts = append(w.contexts, c)
	return c
}

// inBursts makes a context keep the card busy for 2 s of every 7 s, out of step with all windows.
func (l *simulator) inBursts(c *hostsim.Context) {
	l.each(func(at time.Duration) { c.Demand[0] = cpusIf(1, within(at, 7*time.Second, 3437*ms, 2*time.Second)) })
}

// gpuHorizon is the length of the tables' scenarios, gpuShort the length of other tests' scenarios.
const gpuHorizon, gpuShort = 70 * time.Second, 20 * time.Second

// simLibrary is an extension with a simulated machine's library.
type simLibrary struct {
	component.StartFunc
	component.ShutdownFunc
	*hostsim.Library
}

var _ gpulibrary.Extension = (*simLibrary)(nil)

var libraryID = component.MustNewID("nvml")

// sensorPeriod is the interval at which a card's driver updates its sensors. procPeriod is the
// interval at which the files of processes change between two scans.
const sensorPeriod, procPeriod = 20 * time.Millisecond, 200 * time.Millisecond

// pollsBefore is the time from the last poll to the end of a window: half of the polling interval,
// which is the average.
const pollsBefore = 500 * time.Millisecond

// cards returns the extensions that read the machine's cards, and adds them to the configuration.
func (l *simulator) cards(cfg *config.Config) map[component.ID]component.Component {
	l.machine.Host.Booted = time.Now().Add(-l.machine.Now())
	if l.driver != "nvidia" {
		return nil
	}
	cfg.Meters.GPU.Extensions = []component.ID{libraryID}
	return map[component.ID]component.Component{libraryID: &simLibrary{Library: hostsim.NewLibrary(l.machine, l.machine.Host.Booted)}}
}

// poll lets a millisecond pass for the goroutines that poll the cards.
func (l *simulator) poll() {
	switch {
	case l.at%procPeriod == 0:
		require.NoError(l.tb, l.machine.Render())
	case l.at%sensorPeriod == 0:
		require.NoError(l.tb, l.machine.RenderSensors())
	}
	time.Sleep(time.Millisecond)
}

// beginPolling lets time pass until the first collection. The workloads do not change in that time.
func (l *simulator) beginPolling() {
	time.Sleep(time.Millisecond / 2) // so that polls never coincide with changes of the files
	drives := l.drives
	l.drives = nil
	l.run(pollsBefore, nil)
	l.drives, l.at = drives, 0
	l.collect()
}

// checkSums checks that the parts of the GPU energy add up to the whole, to the microjoule: in the
// ledger, and at the consumer, which has the final values of exited workloads.
func (l *simulator) checkSums() {
	if l.driver == "" {
		return
	}
	var counted units.Energy
	for _, r := range l.r.Attributed() {
		if r.Zone.Kind == power.GPU {
			counted += r.Total
		}
	}
	t := l.totals()
	micro := func(j joules) units.Energy { return units.Energy(math.Round(1e6 * j.Package)) }
	active := t.reported[nodeEnergy]
	require.Equal(l.tb, counted, micro(active.Plus(t.idle[nodeEnergy]))+l.r.Deferred()[power.GPU])
	require.Equal(l.tb, micro(active), micro(t.reported[processEnergy].Plus(t.reported[unattributedEnergy])))
}

// passOnCards lets time pass in steps of a second for the goroutines that poll the cards.
func (l *simulator) passOnCards(length time.Duration) {
	for range length / time.Second {
		l.machine.Step(time.Second)
		require.NoError(l.tb, l.machine.RenderSensors())
		time.Sleep(time.Second)
	}
}

// keplersRule returns a function that measures Kepler's rule for GPUs since 0.11
// (internal/device/gpu/nvidia and internal/monitor), after Kepler has observed the cards at rest.
// Every 5 s it divides the current power, less the lowest observed power, by keplerShares. The
// energy of a process is its power times the interval. The energy of the card is its counter.
func keplersRule(peak bool) func(*testing.T, simScenario, time.Duration) accuracy {
	return func(t *testing.T, sc simScenario, horizon time.Duration) (a accuracy) {
		root := treeDir(t)
		synctest.Test(t, func(t *testing.T) { // no time passes for the library
			l := build(t, root, sc, "nvidia")
			l.driver = "" // without polling goroutines
			a = l.runKepler(peak, horizon)
		})
		return a
	}
}

func (l *simulator) runKepler(peak bool, horizon time.Duration) accuracy {
	const every = 5 * time.Second
	l.machine.Host.Booted = time.Now().Add(-l.machine.Now())
	library := hostsim.NewLibrary(l.machine, l.machine.Host.Booted)
	lowest, energy := map[*hostsim.GPU]float64{}, map[int]joules{} // by PID
	for _, g := range l.machine.GPUs {
		lowest[g] = g.Idle
	}
	l.run(horizon, func() {
		if l.at%every > 0 {
			return
		}
		for _, g := range l.machine.GPUs {
			lowest[g] = min(lowest[g], g.Watts)
			for pid, share := range keplerShares(library, g, peak) {
				energy[pid] = energy[pid].Plus(joules{Package: (g.Watts - lowest[g]) * every.Seconds() * share})
			}
		}
	})
	t := l.totals()
	for _, w := range l.workloads {
		for _, task := range w.tasks {
			t.reported[w.name] = t.reported[w.name].Plus(energy[task.PID])
		}
		t.reported[nodeEnergy] = t.reported[nodeEnergy].Plus(t.reported[w.name])
	}
	for _, g := range l.machine.GPUs {
		t.idle[nodeEnergy] = t.idle[nodeEnergy].Plus(joules{Package: lowest[g] * horizon.Seconds()})
	}
	return t.accuracy()
}

// keplerShares returns the shares of the processes that have a card open, in proportion to their
// utilization. The driver returns it for timestamp 0, over all samples that it has kept. With peak,
// Kepler uses the largest of several samples of a process, otherwise the mean. If all utilizations
// are 0, the shares are equal. Under MIG a process gets an equal part of its slice's activity,
// which is relative to the slice's own size.
func keplerShares(library *hostsim.Library, g *hostsim.GPU, peak bool) map[int]float64 {
	shares, users := map[int]float64{}, map[int]int{}
	utilization, activity := library.Utilization(g, peak), library.Activity(g)
	for _, c := range g.Contexts {
		users[c.Slice]++
	}
	for _, c := range g.Contexts {
		shares[c.Task.PID] = utilization[c.Task.PID]
		if g.Slices != nil {
			shares[c.Task.PID] = activity[c.Slice] / float64(users[c.Slice])
		}
	}
	total := 0.0
	for _, share := range shares {
		total += share
	}
	for pid := range shares {
		if shares[pid] /= total; total == 0 {
			shares[pid] = 1 / float64(len(shares))
		}
	}
	return shares
}
