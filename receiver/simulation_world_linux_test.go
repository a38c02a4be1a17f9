// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/attributor"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// world is a simulated machine, its receiver, which is started, stopped and killed, the receiver's
// store, and a backend that checks everything that the receivers send.
type world struct {
	tb      testing.TB
	plan    plan
	dir     string
	life    *hostsim.Life
	faults  *hostsim.Faults
	boot    boot
	slow    *lateMeter // of the whole machine; nil if powercap is the only meter
	cards   *simCards  // nil without GPUs
	run     run
	store   *simStore
	backend *backend
	inside  *inside
	fired   map[string]int // faults and other acts that took effect
	rule    string         // the rule that was broken
	wrong   error
}

// plan selects the properties of a world.
type plan struct {
	seed uint64
	// restarts: the receiver restarts. Its meters report the true energy unless the world is
	// faulty.
	restarts bool
	// Only of the hosts and virtual machines of a guestsSimulation:
	id     component.ID
	edit   func(*Config)
	refuse bool // the consumer refuses
}

// exact and the following methods select properties by the seed.
func (p *plan) exact() bool     { return p.seed%2 == 0 } // the CPU time source is BPF
func (p *plan) clocks() bool    { return p.seed%4 == 3 && !p.restarts }
func (p *plan) modeled() bool   { return p.seed%7 == 3 && p.restarts } // the meter is a model
func (p *plan) stored() bool    { return p.seed%11 != 7 && p.restarts }
func (p *plan) unlimited() bool { return p.seed/2%2 == 0 }

// faulty reports whether counters and reads of files fail.
func (p *plan) faulty() bool {
	if p.restarts {
		return p.seed%3 == 0
	}
	return p.seed%5 > 0 || p.edit != nil
}

// boot is a boot of the machine.
type boot struct {
	number int
	id     string
	before time.Duration // how long earlier boots lasted, with the time between them
}

// run is a run of the receiver.
type run struct {
	s        *energyScraper // nil while the receiver is down
	number   int
	starting bool   // it has not returned from start
	dying    crash  // the moment in this collection at which it is killed
	cut      bool   // it was killed: nothing that it does has an effect
	settings uint32 // that differ from those of the first run
	next     uint32 // the same of the next run
	// otherZones: zones differed in any run.
	otherZones bool
	onDemand   bool          // windows end on demand after some intervals
	passed     time.Duration // since the interval before
	// Of all runs.
	scrapes, intervals int
}

// simulations are the running worlds, each by the root of its host.
var simulations sync.Map

var installReader = sync.OnceFunc(func() {
	kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		for root := path; len(root) > 1; root = filepath.Dir(root) {
			if sim, ok := simulations.Load(root); ok {
				return sim.(*world).faults.Read(path, got, err)
			}
		}
		return got, err
	})
})

// newWorld returns a world whose machine has booted. The receiver has not started.
func newWorld(tb testing.TB, p plan) *world {
	installReader()
	w := &world{tb: tb, plan: p, dir: treeDir(tb), fired: map[string]int{}}
	w.run.onDemand = p.seed%3 != 1 && !p.restarts && p.edit == nil
	w.store = &simStore{w: w, values: map[string][]byte{}, records: map[string]*record{}}
	w.backend = newBackend(w)
	w.bootMachine(freshBoot)
	if zones := p.seed / 2 % 3; !p.restarts && p.edit == nil {
		if zones > 0 {
			w.slow = newSlowMeter(p.seed, w.life, w.faults.Slow)
		}
		if zones < 2 { // without the zone other
			w.cards = newCards(p.seed, w.life, w.faults.Slow)
		}
	}
	return w
}

// close ends the receiver and removes the machine.
func (w *world) close() {
	if w.run.s != nil {
		w.run.cut = true
		w.stop()
	}
	simulations.Delete(w.life.Host.Root())
	require.NoError(w.tb, os.RemoveAll(w.dir))
}

// Boots of a machine.
const (
	freshBoot = iota
	// warmBoot keeps the energy counters, as kexec and some firmware do.
	warmBoot
	// imageBoot is another machine with a copy of this one's disk. Its counters are anywhere.
	imageBoot
	// snapshotBoot goes back to an earlier moment of the same boot, as a virtual machine may.
	snapshotBoot
	numBoots
)

var bootNames = [numBoots]string{"booted", "booted with its counters", "copied to another machine", "set back to a snapshot"}

// bootMachine begins a boot of the machine.
func (w *world) bootMachine(how int) {
	zones, fired := map[string]*hostsim.Zone{}, map[string]int{}
	if old := w.life; old != nil {
		w.fired[bootNames[how]]++
		w.boot.before += old.Host.Uptime.Truncate(time.Second) + time.Minute
		zones, fired = old.Host.Zones, w.faults.Fired
		simulations.Delete(old.Host.Root())
		require.NoError(w.tb, os.RemoveAll(old.Host.Root()))
	}
	w.boot.number++
	m := w.newMachine()
	for id, z := range m.Host.Zones {
		switch old := zones[id]; {
		case old != nil && how == warmBoot:
			z.Energy, z.Counted = old.Energy, old.Counted
		case old != nil && (how == imageBoot || how == snapshotBoot):
			z.Energy = old.Energy / 2 * uint64(1+w.boot.number%3) % z.Max
		}
	}
	if how != snapshotBoot {
		w.boot.id = fmt.Sprintf("00000000-0000-4000-a000-%04d%08d", w.boot.number, w.plan.seed)
	}
	m.Host.Files["proc/sys/kernel/random/boot_id"] = w.boot.id + "\n"
	if w.plan.modeled() {
		clear(m.Host.Zones)
	}
	w.life = hostsim.NewLife(m)
	w.faults = hostsim.NewFaults(w.life)
	w.faults.Fired = fired
	w.faults.OnRead = func(path string, got []byte, err error) { w.inside.observeRead(path, got, err) }
	w.backend.tasks = map[simProcess]*hostsim.Task{}
	w.backend.meet()
	simulations.Store(m.Host.Root(), w)
}

// newMachine returns a machine with two sockets.
func (w *world) newMachine() *hostsim.Machine {
	curve, err := model.Linear(0, 60)
	require.NoError(w.tb, err)
	first := &hostsim.Socket{CPUs: 2, Idle: 20, DRAMIdle: 3, Curve: curve, Frequency: schedutil}
	if !w.plan.restarts {
		first.Threads, first.Siblings = int(1+w.plan.seed/2%2), 1.2
	}
	m := hostsim.NewMachine(filepath.Join(w.dir, fmt.Sprint(w.boot.number)), first, &hostsim.Socket{CPUs: 2, Idle: 15, DRAMIdle: 2, Curve: curve})
	m.Host.Booted = m.Host.Booted.Add(w.boot.before)
	m.LimitPIDs(64)
	if !w.plan.restarts {
		m.IRQ = float64(w.plan.seed/5%3) / 10
	}
	return m
}

// schedutil is the clock rate that the kernel's default governor requests, relative to the highest,
// with a minimum of 40 % (Documentation/scheduler/schedutil.rst: 1.25 times the utilization).
func schedutil(utilization float64) float64 { return min(max(1.25*utilization, 0.4), 1) }

func (w *world) fail(format string, args ...any) {
	if w.wrong == nil {
		w.wrong, w.rule = fmt.Errorf(format, args...), format
	}
}

// Settings of a run.
const (
	otherRules uint32 = 1 << iota
	fewerZones
	otherScope
	fewerSeries
	numSettings = 4
	// dependsOn are the settings that totals depend on.
	dependsOn = otherRules | fewerZones | otherScope
)

// modelWatts is the power of a machine with a model.
const modelWatts = 50

// groupings are the values of processes::group_by.
var groupings = [...]config.GroupBy{"", config.GroupByPID, config.GroupByProgram}

// config returns the configuration of a run.
func (w *world) config() *Config {
	p := &w.plan
	cfg := simpleConfig()
	cfg.RootPath = w.life.Host.Root()
	cfg.Meters.Use = only("powercap")
	cfg.Metrics.ProcessCPUTime.Enabled = true
	cfg.Series.Processes = byPID(config.ProcessSeriesConfig{})
	switch {
	case p.edit != nil:
		p.edit(cfg)
	case p.restarts:
		w.configRestarts(cfg)
	default:
		w.configOneRun(cfg)
	}
	require.NoError(w.tb, cfg.Validate())
	return cfg
}

// configOneRun sets the zones and rules of a world without restarts.
func (w *world) configOneRun(cfg *Config) {
	seed := w.plan.seed
	cfg.Series.Processes.MinEnergy, cfg.Series.Processes.Max = float64(seed/2%3), [...]int{0, 4, 20}[seed/6%3]
	cfg.Series.Processes.GroupBy = groupings[seed/4%3]
	if seed%4 > 0 {
		cfg.Series.Containers.Max, cfg.Series.Pods.Max, cfg.Series.VMs.Max = 2, 1, 1
	}
	cfg.Zones = slices.Concat(cfg.Zones, [...][]power.Kind{nil, {power.Platform}, {power.Platform, power.Other}}[seed/2%3])
	if seed%3 > 0 { // otherwise the default rules
		weight := config.Weights[seed/4%uint64(len(config.Weights))]
		dram := config.Weights[seed/28%uint64(len(config.Weights))]
		if weight.Exponent() > 0 && dram.Exponent() > 0 {
			dram = weight
		}
		cfg.Attribution.Weight = map[power.Kind]config.Weight{config.AllZones: weight, power.DRAM: dram}
		cfg.Attribution.SMTWeight = [...]float64{0.6, 0, 0.5}[seed/4%3]
		shareIdle(cfg, seed, map[power.Kind]float64{power.Package: 40, power.DRAM: 5, power.Platform: 90, power.Other: 45})
	}
	cfg.Attribution.Scope = [...]config.Scope{config.ScopeNode, config.ScopeZone}[seed/7%2]
	if seed%7 == 3 {
		cfg.Attribution = config.Default().Attribution
		cfg.CollectionInterval = 100 * time.Millisecond // the preset makes no windows: they would be of this machine's time
	}
	cfg.Attribution.Interrupts = [...]config.InterruptRule{config.InterruptsShared, config.InterruptsUnattributed}[seed/11%2]
}

// configRestarts sets the zones and rules of a world with restarts.
func (w *world) configRestarts(cfg *Config) {
	seed, settings := w.plan.seed, w.run.settings
	cfg.Zones = []power.Kind{power.Package, power.DRAM}
	if w.plan.modeled() {
		cfg.Meters.Use = only()
		withModel(modelWatts, modelWatts)(cfg)
	}
	cfg.Series.Containers.Max = 0
	if !w.plan.unlimited() {
		cfg.Series.Processes.MinEnergy, cfg.Series.Processes.Max = float64(seed/3%3), [...]int{0, 4, 20}[seed/5%3]
		cfg.Series.Containers.Max = 2
	}
	cfg.Series.Processes.GroupBy = groupings[seed/7%3]
	if seed%5 > 1 {
		shareIdle(cfg, seed, map[power.Kind]float64{power.Package: 40, power.DRAM: 5})
	}
	cfg.Attribution.Scope = [...]config.Scope{config.ScopeNode, config.ScopeZone}[(seed/3+uint64(settings&otherScope/otherScope))%2]
	cfg.Attribution.Interrupts = [...]config.InterruptRule{config.InterruptsShared, config.InterruptsUnattributed}[seed/4%2]
	if settings&otherRules != 0 {
		cfg.Attribution.StaticPower = fixedPower(map[power.Kind]float64{power.Package: 7, power.DRAM: 1})
	}
	if settings&fewerZones != 0 || w.plan.modeled() {
		cfg.Zones = cfg.Zones[:1]
	}
	if settings&fewerZones != 0 {
		maps.DeleteFunc(cfg.Attribution.StaticPower, func(zone power.Kind, _ config.StaticPowerConfig) bool { return zone == power.DRAM })
	}
	if settings&fewerSeries != 0 {
		cfg.Series.Processes.Max = 3
	}
	if w.plan.stored() {
		cfg.Storage = storageID.String()
	}
}

// shareIdle selects the static power models and the idle rule of a seed.
func shareIdle(cfg *Config, seed uint64, watts map[power.Kind]float64) {
	a := &cfg.Attribution
	a.StaticPower = fixedPower(watts)
	if model := config.StaticModelNames[seed/3%uint64(len(config.StaticModelNames))]; model != config.StaticFixed {
		a.StaticPower = allStatic(model)
	}
	a.Idle = [...]config.IdleRule{config.IdleNone, config.IdleEqual, config.IdleRequested, config.IdleUsed, config.IdleEqualContainers}[seed/5%5]
	a.Tuning = config.StaticTuning{Rest: 0.5, Base: time.Minute, Samples: 1}
}

// start starts the receiver.
func (w *world) start() {
	if !w.render() {
		return
	}
	set := receivertest.NewNopSettings(metadata.Type)
	set.Logger = zap.NewNop()
	if w.plan.edit != nil {
		set.ID = w.plan.id
	}
	r := &w.run
	r.settings, r.otherZones = r.next, r.otherZones || r.next&fewerZones != 0
	s, err := newEnergyScraper(w.config(), set, w.openMachine(), attributor.Embedded{})
	require.NoError(w.tb, err)
	r.s, r.cut, r.starting = s, false, true
	r.number++
	s.output.next = nextConsumer{w, s.delivered}
	w.inside = newInside(w)
	w.backend.observe()
	w.store.forget()
	w.backend.started(w.store.usable())
	require.NoError(w.tb, s.start(context.Background(), w))
	w.store.settle()
	if w.plan.faulty() && s.state.Err() != nil { // it could not read the machine's clock, and begins anew
		w.backend.started(nil)
	}
	r.starting = false
	w.inside.begin()
	w.backend.stamp()
	w.store.opened()
	w.inside.check()
}

// openMachine returns the simulated machine, with simulated sources where files are not enough.
func (w *world) openMachine() machine.Machine {
	host, p, m := w.life.Host, &w.plan, machine.Local()
	m.Now = host.Now
	m.Clocks = func() (boot, suspended time.Duration) { return host.Uptime, host.Suspended }
	if p.edit != nil {
		return m
	}
	if p.seed/7%2 == 0 && !p.restarts {
		m.OpenWeigher = openClocks(host)
	}
	if p.clocks() {
		m.OpenCPU = openAs(func(o cpu.Options) cpu.Source { return cpu.NewSimulatedClocks(o, host.CPUClock) })
	}
	if p.exact() && (!p.restarts || p.seed%6 != 0 || w.run.number%3 > 0) {
		kernel := hostsim.NewKernel(w.life.Machine)
		kernel.Spreads = !p.restarts
		w.faults.Kernel = kernel
		m.OpenCPU = func(o cpu.Options) (*cpu.Reader, error, error) {
			if p.seed/18%2 == 0 && !p.restarts {
				o.Window = cpu.TickWindow / 2 // the node's CPU time is that of the scans
			}
			return cpu.NewReader(cpu.NewSimulatedBPF(o, kernel, kernel.Now), o), nil, nil
		}
	}
	w.openMeters(&m)
	return m
}

// GetExtensions implements component.Host.
func (w *world) GetExtensions() map[component.ID]component.Component {
	return map[component.ID]component.Component{storageID: w.store}
}

// Report implements componentstatus.Reporter.
func (*world) Report(*componentstatus.Event) {}

// stop stops the receiver. Of one that was killed, it only releases what the test's process holds
// of it.
func (w *world) stop() {
	w.observe()
	if err := w.run.s.shutdown(context.Background()); err != nil {
		w.fail("shutdown: %w", err)
	}
	w.store.release(w.run.scrapes%2 == 0)
	w.run.s, w.run.cut, w.run.dying = nil, false, noCrash
	w.faults.Kernel = nil
	w.life.OnEnd(nil)
	w.backend.ended()
}

// render writes the machine's files.
func (w *world) render() bool {
	err := w.life.Render()
	if err != nil {
		w.fail("render: %w", err)
	}
	return err == nil
}

// observe renders the machine, and notes it as the receiver is going to read it.
func (w *world) observe() bool {
	if !w.render() {
		return false
	}
	w.backend.observe()
	return true
}

// window lets the receiver observe the machine without a collection.
func (w *world) window() {
	if w.inside.shrink(); w.observe() {
		w.run.s.sample()
		w.observed()
	}
}

// observed checks an interval.
func (w *world) observed() {
	w.run.intervals++
	w.backend.stamp()
	w.inside.check()
}

// collect makes a collection and sends it.
func (w *world) collect() {
	w.inside.shrink()
	if !w.observe() {
		return
	}
	w.store.collected()
	w.run.scrapes++
	md, err := w.run.s.scrape(context.Background())
	if err != nil {
		w.fail("scrape: %w", err)
	}
	w.store.settle()
	w.observed()
	if md.ResourceMetrics().Len() == 0 { // nothing could be measured, and the collector sends nothing
		w.store.withheld()
		return
	}
	_ = w.run.s.output.next.ConsumeMetrics(context.Background(), md)
}

// Capabilities implements consumer.Metrics.
func (*world) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

var errSimRefuses = errors.New("refused")

// ConsumeMetrics implements consumer.Metrics. Of the collections that are refused some were taken
// all the same.
func (w *world) ConsumeMetrics(_ context.Context, md pmetric.Metrics) error {
	w.store.settle()
	r := &w.run
	if r.dying != noCrash && r.dying != betweenTwo && r.dying != afterDelivered {
		r.cut = true
	}
	if r.cut {
		return nil
	}
	refused := w.faults.Refused() || w.plan.refuse
	taken := !refused || w.plan.restarts && w.plan.unlimited() && r.settings&fewerSeries == 0 && r.scrapes%2 == 0
	w.backend.receive(md, taken, !refused)
	if refused || r.dying == afterDelivered {
		return errSimRefuses
	}
	return nil
}

// shortest returns the shortest interval in which no energy of the machine's own meters is
// deferred. In a shorter one the CPU time of a package may stand still. With steal, less than half
// of the interval is the machine's own.
func (w *world) shortest() time.Duration {
	switch {
	case !w.plan.restarts:
		return 0
	case w.life.Steal > 0:
		return 200 * time.Millisecond
	}
	return 50 * time.Millisecond
}

// end ends all faults, lets all tasks end, and delivers their final values.
func (w *world) end() {
	if w.wrong != nil {
		return
	}
	w.store.faults = storeFaults{}
	w.store.release(true)
	w.faults.Disarm()
	if w.run.s == nil {
		w.start()
	}
	if w.plan.restarts {
		w.life.Step(time.Second)
		w.collect()
	}
	for len(w.life.Tasks) > 1 {
		t := w.life.Tasks[len(w.life.Tasks)-1]
		if !t.Zombie {
			t.Exit()
		}
		t.Reap(false)
	}
	w.life.Each(func(c *hostsim.Container) { w.life.RemoveCgroup(c.Cgroup) })
	for range 9 { // a slow meter has news every fourth time
		w.life.Step(61 * time.Second)
		w.collect()
	}
	w.inside.end()
}
