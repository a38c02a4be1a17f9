// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
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

// gpuSetting is how a card is read, and by which rules its energy is shared.
type gpuSetting struct {
	name   string
	driver string // of the cards: "xe" and "amdgpu" are read by fdinfo and hwmon, "nvidia" by a library
	window time.Duration
	static config.StaticModel
	// learns is how long it learns from cards under varied load before the measurement.
	learns time.Duration
	// kepler, if set, is how often Kepler's rule reads, in place of the receiver.
	kepler time.Duration
	peak   bool // see keplerGPUs
}

var gpuSettings = []gpuSetting{
	{name: "utilization, fdinfo (xe), 10 s", driver: "xe"},
	{name: "utilization, library, 10 s", driver: "nvidia"},
	{name: "fixed, fdinfo (xe), 10 s", driver: "xe", static: config.StaticFixed},
	{name: "fixed, library, 10 s", driver: "nvidia", static: config.StaticFixed},
	{name: "fixed, fdinfo (xe), 1 s", driver: "xe", static: config.StaticFixed, window: time.Second},
	{name: "fixed, fdinfo (amdgpu), 1 s", driver: "amdgpu", static: config.StaticFixed, window: time.Second},
	{name: "fixed, library, 1 s", driver: "nvidia", static: config.StaticFixed, window: time.Second},
	{name: "trained, fdinfo (xe), 1 s", driver: "xe", static: config.StaticTrained, window: time.Second, learns: 6 * time.Hour},
	{name: "trained, library, 1 s", driver: "nvidia", static: config.StaticTrained, window: time.Second, learns: 6 * time.Hour},
	{name: "Kepler's rule, 5 s", driver: "nvidia", kepler: 5 * time.Second},
	{name: "Kepler's rule, maximum of samples, 5 s", driver: "nvidia", kepler: 5 * time.Second, peak: true},
}

// gpuScenario is a machine with cards, and what uses them.
type gpuScenario struct {
	name, description string
	only              string // the driver of the cards, if it is not any
	build             func(l *simulator, driver string) (drive func(at time.Duration))
}

var gpuScenarios = []gpuScenario{
	{
		name: "Two processes, steady",
		description: "The process `train` keeps the card busy 60 % of the time and `serve` 20 %, steadily: 3:1. The process `other` uses 2 CPUs\n" +
			"and no card.",
		build: func(l *simulator, driver string) func(time.Duration) {
			g := l.card(driver)
			l.uses(l.process("train", 0, 0.5), g, 0.6)
			l.uses(l.process("serve", 0, 0.5), g, 0.2)
			l.process("other", 0, 2)
			return nil
		},
	},
	{
		name: "Bursts on a card",
		description: "Half of what load adds to the card's power comes with the first quarter of it. The process `steady` keeps the card busy\n" +
			"20 % of the time. `burst` asks for all of it during 2 s of every 7 s, and gets five sixths.",
		build: func(l *simulator, driver string) func(time.Duration) {
			g := l.card(driver)
			g.Curve = concaveCard
			l.uses(l.process("steady", 0, 0.1), g, 0.2)
			burst := l.uses(l.process("burst", 0, 0.1), g, 0)
			return inBursts(burst, 1)
		},
	},
	{
		name: "Unequal users",
		description: "On the same card: the processes `large` with 40 % of its time, `small` with 4 % and `tiny` with 1 %. It is idle for the\n" +
			"rest.",
		build: func(l *simulator, driver string) func(time.Duration) {
			g := l.card(driver)
			g.Curve = concaveCard
			l.uses(l.process("large", 0, 0.1), g, 0.4)
			l.uses(l.process("small", 0, 0.1), g, 0.04)
			l.uses(l.process("tiny", 0, 0.1), g, 0.01)
			return nil
		},
	},
	{
		name: "A card's user without CPU time",
		description: "The container `kernel` keeps the card busy 70 % of the time and uses no CPU time. The process `web` uses 2 CPUs and no\n" +
			"card, `serve` 0.5 CPUs and 5 % of the card.",
		build: func(l *simulator, driver string) func(time.Duration) {
			g := l.card(driver)
			l.uses(l.container("kernel", 0, 0), g, 0.7)
			l.uses(l.process("serve", 0, 0.5), g, 0.05)
			l.process("web", 0, 2)
			return nil
		},
	},
	{
		name: "Memory only",
		description: "The process `holder` has the card open, holds half of its memory and does nothing. `batch` keeps it busy during 2 s of\n" +
			"every 7 s.",
		build: func(l *simulator, driver string) func(time.Duration) {
			g := l.card(driver)
			l.uses(l.process("holder", 0, 0.1), g, 0).Memory = 12 << 30
			return inBursts(l.uses(l.process("batch", 0, 0.5), g, 0), 1)
		},
	},
	{
		name: "Jobs on a card",
		description: "In every 7 s a new container `job` lives for 3 s and keeps the card busy half of the time; all of them are taken\n" +
			"together. The process `serve` uses 20 % steadily.",
		build: func(l *simulator, driver string) func(time.Duration) {
			g := l.card(driver)
			l.uses(l.process("serve", 0, 0.1), g, 0.2)
			job := &simWorkload{name: "job"}
			l.workloads = append(l.workloads, job)
			return func(at time.Duration) {
				switch at % (7 * time.Second) {
				case 2219 * time.Millisecond:
					l.contain(job, 0, 0.2)
					l.uses(job, g, 0.5)
				case 5219 * time.Millisecond:
					last := job.tasks[len(job.tasks)-1]
					last.Exit()
					last.Reap(false)
					l.machine.RemoveCgroup(last.Cgroup)
				}
			}
		},
	},
	{
		name: "Two cards",
		description: "The process `first` keeps one card busy 90 % of the time, `second` another one 30 %, and `both` either 10 %. The load of\n" +
			"the second card draws three times as much.",
		build: func(l *simulator, driver string) func(time.Duration) {
			g, other := l.card(driver), l.card(driver)
			other.Curve = model.Curve{{Utilization: 0, Watts: 40}, {Utilization: 1, Watts: 820}}
			l.uses(l.process("first", 0, 0.1), g, 0.9)
			l.uses(l.process("second", 0, 0.1), other, 0.3)
			both := l.process("both", 0, 0.1)
			l.uses(both, g, 0.1)
			l.uses(both, other, 0.1)
			return nil
		},
	},
	{
		name: "Slices of a card",
		only: "nvidia",
		description: "MIG divides the card into slices of 4/7 and 3/7. The process `whole` has the larger one and keeps half of it busy, the\n" +
			"container `shared` has two processes in the smaller one that keep all of it busy.",
		build: func(l *simulator, driver string) func(time.Duration) {
			g := l.card(driver)
			g.Slices = []float64{4. / 7, 3. / 7}
			l.uses(l.process("whole", 0, 0.1), g, 2./7)
			shared := l.container("shared", 0, 0.1)
			l.uses(shared, g, 0.3).Slice = 1
			c := shared.spawn().OpenGPU(g)
			c.Demand[0], c.Slice = 0.3, 1
			shared.contexts = append(shared.contexts, c)
			return nil
		},
	},
}

// concaveCard is the power of a card whose first load costs the most.
var concaveCard = model.Curve{{Utilization: 0, Watts: 40}, {Utilization: 0.25, Watts: 170}, {Utilization: 1, Watts: 300}}

// card adds a card that draws 40 W at rest and 300 W at full load, in proportion in between.
func (l *simulator) card(driver string) *hostsim.GPU {
	if l.machine == nil {
		l.on(straight(8, 20, 100))
	}
	return l.machine.AddGPU(&hostsim.GPU{
		Address: fmt.Sprintf("0000:%02x:00.0", 3+len(l.machine.GPUs)), Driver: driver, Idle: 40,
		Curve: model.Curve{{Utilization: 0, Watts: 40}, {Utilization: 1, Watts: 300}}, Engines: []hostsim.Engine{{Name: "ccs", Weight: 1}},
	})
}

// uses has a workload's last task keep a part of the card's first engine busy.
func (l *simulator) uses(w *simWorkload, g *hostsim.GPU, demand float64) *hostsim.Context {
	c := w.tasks[len(w.tasks)-1].OpenGPU(g)
	c.Demand[0] = demand
	w.contexts = append(w.contexts, c)
	return c
}

// inBursts sets the demand of a context during 2 s of every 7 s: not in step with any window.
func inBursts(c *hostsim.Context, demand float64) func(time.Duration) {
	return func(at time.Duration) {
		c.Demand[0] = 0
		if in := at % (7 * time.Second); in >= 3437*time.Millisecond && in < 5437*time.Millisecond {
			c.Demand[0] = demand
		}
	}
}

// gpuHorizon is how long the tables' scenarios run, gpuShort how long those of other tests do.
const gpuHorizon, gpuShort = 70 * time.Second, 20 * time.Second

// gpuAccuracy is how far from the truth the figures of GPUs are.
type gpuAccuracy struct {
	accuracy
	// sum is the error of all energy: active, idle and what is deferred, compared with what the cards counted.
	sum float64
	// unattributed is the part of active energy without an owner.
	unattributed float64
}

// simLibrary is an extension with a simulated machine's library.
type simLibrary struct {
	component.StartFunc
	component.ShutdownFunc
	*hostsim.Library
}

var _ gpulibrary.Extension = (*simLibrary)(nil)

var libraryID = component.MustNewID("nvml")

// sensorPeriod is how often a card's driver updates its sensors, and procPeriod how often
// goroutines that look at processes between two scans see changes.
const sensorPeriod, procPeriod = 20 * time.Millisecond, 200 * time.Millisecond

// pollsBefore is how long before the end of a window goroutines poll that began at the start: half
// of the time between two polls, as on average.
const pollsBefore = 500 * time.Millisecond

// measureGPUs runs the real receiver on a scenario for a time, in whole collections, with a clock
// that is simulated for all its goroutines.
func measureGPUs(t *testing.T, sc gpuScenario, setting gpuSetting, horizon time.Duration) (a gpuAccuracy) {
	root := treeDir(t)
	synctest.Test(t, func(t *testing.T) { a = runGPUs(t, root, sc, setting, horizon) })
	return a
}

func runGPUs(t *testing.T, root string, sc gpuScenario, setting gpuSetting, horizon time.Duration) gpuAccuracy {
	l := &simulator{tb: t, root: root, series: map[simSeries]float64{}}
	drive := sc.build(l, setting.driver)
	l.machine.Host.Booted = time.Now().Add(-l.machine.Now())
	lib := hostsim.NewLibrary(l.machine, l.machine.Host.Booted)
	if setting.kepler > 0 {
		return l.runKepler(lib, setting, drive, horizon)
	}
	cfg := simpleConfig()
	cfg.RootPath, cfg.Window = root, setting.window
	host := map[component.ID]component.Component{}
	if setting.driver == "nvidia" {
		cfg.Meters.GPU.Extensions = []component.ID{libraryID}
		host[libraryID] = &simLibrary{Library: lib}
	}
	switch setting.static {
	case "":
	case config.StaticFixed:
		rest := l.rest()
		for _, g := range l.machine.GPUs {
			rest[power.GPU] += g.Idle
		}
		cfg.Attribution.StaticPower = fixedPower(rest)
	default:
		cfg.Attribution.StaticPower = allStatic(setting.static)
	}
	l.receive(cfg, host, l.readByBPF)
	require.NoError(t, l.machine.Render())
	require.NoError(t, l.r.Start(t.Context()))
	defer func() { require.NoError(t, l.r.Shutdown(context.WithoutCancel(t.Context()))) }()

	time.Sleep(time.Millisecond / 2) // so that they never poll while the machine changes its files
	l.let(pollsBefore, nil)
	l.collect()
	l.learnGPUs(setting.learns)
	before, energy := l.gpuTotals(), l.cardEnergy()
	for at := time.Duration(0); at < horizon; {
		window := cfg.CollectionInterval
		if cfg.Window > 0 {
			window = cfg.Window
		}
		start := at
		l.let(window, func(in time.Duration) {
			if drive != nil {
				drive(start + in)
			}
		})
		at += window
		require.NoError(t, l.machine.Render())
		if at%cfg.CollectionInterval == 0 {
			l.collect()
		} else {
			l.windows.end()
		}
	}
	require.Equal(t, cfg.Window, l.windows.length, "nothing else measured")
	l.checkGPUs()
	return l.gpuAccuracy(before, energy)
}

// checkGPUs checks that the parts of the energy of GPUs are the whole, to the microjoule: in the
// ledger, and at the consumer, which has the final values of what ended.
func (l *simulator) checkGPUs() {
	var counted units.Energy
	for _, r := range l.r.Attributed() {
		if r.Zone.Kind == power.GPU {
			counted += r.Total
		}
	}
	active, idle := map[string]units.Energy{}, map[string]units.Energy{}
	for s, value := range l.series {
		switch energy := units.Energy(math.Round(1e6 * value)); {
		case s.zone != string(power.GPU):
		case s.idle:
			idle[s.metric] += energy
		default:
			active[s.metric] += energy
		}
	}
	require.Equal(l.tb, counted, active["system.energy"]+idle["system.energy"]+l.r.Deferred()[power.GPU])
	require.Equal(l.tb, active["system.energy"], active["process.energy"]+active["system.unattributed.energy"])
}

// let lets time pass on the machine and for all goroutines, in steps of 1 ms before each of which step is called.
func (l *simulator) let(d time.Duration, step func(in time.Duration)) {
	for in := time.Duration(0); in < d; in += time.Millisecond {
		if step != nil {
			step(in)
		}
		l.machine.Step(time.Millisecond)
		switch {
		case in%procPeriod == 0:
			require.NoError(l.tb, l.machine.Render())
		case in%sensorPeriod == 0:
			require.NoError(l.tb, l.machine.RenderSensors())
		}
		time.Sleep(time.Millisecond)
	}
}

// learnGPUs runs the cards, without the workloads, under a load that varies from one collection to the next.
func (l *simulator) learnGPUs(length time.Duration) {
	demands := map[*hostsim.Context]float64{}
	var loads []*hostsim.Context
	for _, g := range l.machine.GPUs {
		for _, c := range g.Contexts {
			demands[c], c.Demand[0] = c.Demand[0], 0
		}
		t := l.machine.Init().Spawn()
		t.Exec("/usr/bin/day", "day")
		loads = append(loads, t.OpenGPU(g))
	}
	r := rand.New(rand.NewPCG(1, 1))
	const step = 10 * time.Second
	for at := time.Duration(0); at < length; at += step {
		around := 0.35 - 0.35*math.Cos(2*math.Pi*float64(at)/float64(length))
		for _, c := range loads {
			c.Demand[0] = min(max(around+0.2*r.NormFloat64(), 0), 1)
		}
		for range step / time.Second {
			l.machine.Step(time.Second)
			require.NoError(l.tb, l.machine.RenderSensors())
			time.Sleep(time.Second)
		}
		require.NoError(l.tb, l.machine.Render())
		l.collect()
	}
	for _, c := range loads {
		c.Task.Exit()
		c.Task.Reap(false)
	}
	for c, demand := range demands {
		c.Demand[0] = demand
	}
}

// cardEnergy returns the energy of all cards so far, in J.
func (l *simulator) cardEnergy() (joules float64) {
	for _, g := range l.machine.GPUs {
		joules += g.Energy / 1e6
	}
	return joules
}

// gpuTotals are the totals of the zone kind gpu, as energies of package.
func (l *simulator) gpuTotals() simTotals {
	t := simTotals{reported: map[string]joules{}, truth: map[string]joules{}, idle: idleTotals{workloads: map[string]joules{}}}
	sum := func(metric, of string, idle bool) (j joules) {
		for s, value := range l.series {
			if s.metric == metric && s.of == of && s.idle == idle && s.zone == string(power.GPU) {
				j.pkg += value
			}
		}
		return j
	}
	t.node, t.idle.node = sum("system.energy", "", false), sum("system.energy", "", true)
	t.idle.unattributed = sum("system.unattributed.energy", "", false) // active, as idle energy is not shared
	for _, w := range l.workloads {
		metric := "process.energy"
		if w.containers != nil {
			metric = "container.energy"
		}
		t.workloads = append(t.workloads, w.name)
		t.reported[w.name] = sum(metric, w.name, false)
		t.truth[w.name] = w.gpuTruth()
	}
	for _, g := range l.machine.GPUs {
		t.aboveIdle.pkg += (g.Energy - g.Idled) / 1e6
	}
	return t
}

func (w *simWorkload) gpuTruth() (j joules) {
	for _, c := range w.contexts {
		j.pkg += c.Energy / 1e6
	}
	return j
}

// gpuAccuracy compares what was reported since before with the truth.
func (l *simulator) gpuAccuracy(before simTotals, energy float64) gpuAccuracy {
	now := l.gpuTotals()
	reported := now.node.plus(now.idle.node).less(before.node).less(before.idle.node).pkg
	unattributed := now.idle.unattributed.less(before.idle.unattributed).pkg
	a := gpuAccuracy{accuracy: now.since(before).gpuAccuracy(), sum: off(reported, l.cardEnergy()-energy)}
	a.unattributed = unattributed / a.node.sum()
	return a
}

// gpuAccuracy compares the energy with the truth. Workloads that used no card have no relative
// error: what they are given is misattributed.
func (t simTotals) gpuAccuracy() accuracy {
	all := t.workloads
	t.workloads = slices.DeleteFunc(slices.Clone(all), func(w string) bool { return t.truth[w].sum() == 0 })
	a := t.accuracy()
	a.workloads = all
	return a
}

// keplerGPUs is Kepler's rule for GPUs since 0.11 (internal/device/gpu/nvidia and
// internal/monitor): each interval the power of the moment, less the lowest one that was seen, is
// divided by the utilization that the driver answers with for the timestamp 0, that is of all
// samples that it has kept, and equally among those that have the card open where there is none; a
// slice weighs what its own activity is, whatever its size. The energy of a process is its power
// times the interval. The energy of the card is its counter.
type keplerGPUs struct {
	library *hostsim.Library
	peak    bool // of several samples of a process it takes the largest, else the driver answers with the mean
	lowest  map[*hostsim.GPU]float64
	energy  map[int]float64 // by PID, in J
}

func (k *keplerGPUs) observe(m *hostsim.Machine, interval time.Duration) {
	for _, g := range m.GPUs {
		if lowest, ok := k.lowest[g]; !ok || g.Watts < lowest {
			k.lowest[g] = g.Watts
		}
		weights, total := k.weights(g), 0.0
		for _, weight := range weights {
			total += weight
		}
		for pid, weight := range weights {
			part := 1 / float64(len(weights))
			if total > 0 {
				part = weight / total
			}
			k.energy[pid] += (g.Watts - k.lowest[g]) * interval.Seconds() * part
		}
	}
}

// weights returns the weight of each process that has the card open.
func (k *keplerGPUs) weights(g *hostsim.GPU) map[int]float64 {
	weights, slices := map[int]float64{}, map[int]int{}
	utilization, activity := k.library.Utilization(g, k.peak), k.library.Activity(g)
	for _, c := range g.Contexts {
		slices[c.Slice]++
	}
	for _, c := range g.Contexts {
		weights[c.Task.PID] = utilization[c.Task.PID]
		if g.Slices != nil {
			weights[c.Task.PID] = activity[c.Slice] / float64(slices[c.Slice])
		}
	}
	return weights
}

// runKepler runs a scenario under Kepler's rule, after it has seen the cards at rest.
func (l *simulator) runKepler(lib *hostsim.Library, setting gpuSetting, drive func(time.Duration), horizon time.Duration) gpuAccuracy {
	k := &keplerGPUs{library: lib, peak: setting.peak, lowest: map[*hostsim.GPU]float64{}, energy: map[int]float64{}}
	for _, g := range l.machine.GPUs {
		k.lowest[g] = g.Idle
	}
	before, energy := l.gpuTotals(), l.cardEnergy()
	for at := time.Duration(0); at < horizon; {
		if drive != nil {
			drive(at)
		}
		l.machine.Step(time.Millisecond)
		if at += time.Millisecond; at%setting.kepler == 0 {
			k.observe(l.machine, setting.kepler)
		}
	}
	now := l.gpuTotals()
	for _, w := range l.workloads {
		j := now.reported[w.name]
		for _, t := range w.tasks {
			j.pkg += k.energy[t.PID]
		}
		now.reported[w.name] = j
		now.node = now.node.plus(j)
	}
	idle := 0.0
	for _, g := range l.machine.GPUs {
		idle += k.lowest[g] * horizon.Seconds()
	}
	return gpuAccuracy{accuracy: now.since(before).gpuAccuracy(), sum: off(now.node.sum()+idle, l.cardEnergy()-energy)}
}

// gpuTables runs all scenarios of cards under these settings, and returns their tables.
func gpuTables(t *testing.T, settings []gpuSetting) string {
	cells := make([][]gpuAccuracy, len(gpuScenarios))
	t.Run("GPUs", func(t *testing.T) {
		for i, sc := range gpuScenarios {
			cells[i] = make([]gpuAccuracy, len(settings))
			for k, setting := range settings {
				if sc.runs(setting) {
					t.Run(sc.name+"/"+setting.name, func(t *testing.T) {
						t.Parallel()
						cells[i][k] = measureGPUs(t, sc, setting, gpuHorizon)
					})
				}
			}
		}
	})
	var b strings.Builder
	b.WriteString("\n### GPUs\n\n" +
		"Energy of the zone `gpu` alone. A card draws 40 W at rest and 300 W at full load, in proportion in between, unless the scenario says\n" +
		"otherwise. *Sum* is the error of active and idle energy together, compared with what the cards counted.\n")
	for i, sc := range gpuScenarios {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n", sc.name, sc.description)
		b.WriteString("| setting | sum | active | mean | worst | misattributed | unattributed |\n|---|---|---|---|---|---|---|\n")
		for k, setting := range settings {
			if a := &cells[i][k]; sc.runs(setting) {
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s `%s` | %s | %s |\n", setting.name, signed(a.sum), signed(a.active), percent(a.mean),
					signed(a.worst), a.worstOf, percent(a.misattributed), percent(a.unattributed))
			}
		}
	}
	return b.String()
}

func (sc *gpuScenario) runs(s gpuSetting) bool { return sc.only == "" || sc.only == s.driver }
