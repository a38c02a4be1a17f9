// SPDX-License-Identifier: Apache-2.0

//go:build accuracy && (amd64 || arm64)

package energyreceiver

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
	"github.com/energyreceiver/energyreceiver/receiver/internal/training"
)

var accuracyWrite = flag.Bool("accuracy.write", false, "write the tables of dev/accuracy-tables.md")

// lab runs the receiver on a simulated machine that knows the true energy of each workload.
type lab struct {
	tb        testing.TB
	root      string
	machine   *hostsim.Machine
	workloads []*labWorkload
	// containers counts the containers.
	containers int
	// nights is the lowest load of a day, 0 to 1, if work arrives at random; see day.
	nights float64
	// since is called when training has ended, if it is not nil. It changes the machine.
	since  func()
	s      *energyScraper
	series map[labSeries]float64 // last value of each, in J
	doubts map[labSeries]float64 // sum of each uncertainty times the length of its collection, in J
	events *labEvents            // nil if the machine counts no hardware events
}

// labWorkload is a process of the host, or containers with all their processes.
type labWorkload struct {
	name       string
	containers []string        // ids of all that ever existed
	tasks      []*hostsim.Task // all that ever existed
	contexts   []*hostsim.Context
}

type labSeries struct {
	metric, resource, zone string
	start                  pcommon.Timestamp
	of                     string // the workload's name
	idle                   bool   // otherwise active energy
}

// joules is energy by zone.
type joules struct{ pkg, dram float64 }

func (j joules) sum() float64 { return j.pkg + j.dram }

func (j joules) plus(o joules) joules { return joules{j.pkg + o.pkg, j.dram + o.dram} }

func (j joules) less(o joules) joules { return joules{j.pkg - o.pkg, j.dram - o.dram} }

func inJoules(e hostsim.Energies) joules { return joules{e.Package / 1e6, e.DRAM / 1e6} }

func (l *lab) on(sockets ...*hostsim.Socket) { l.machine = hostsim.NewMachine(l.root, sockets...) }

// process adds a process of the host that demands n CPUs of a socket.
func (l *lab) process(name string, socket int, demand float64) *labWorkload {
	w := &labWorkload{name: name}
	l.workloads = append(l.workloads, w)
	l.begin(w, "/system.slice/"+name+".service", socket, demand)
	return w
}

// container adds a workload of one container with one process.
func (l *lab) container(name string, socket int, demand float64) *labWorkload {
	w := &labWorkload{name: name}
	l.workloads = append(l.workloads, w)
	l.contain(w, socket, demand)
	return w
}

// contain adds a container with one process to a workload.
func (l *lab) contain(w *labWorkload, socket int, demand float64) {
	l.containers++
	id := fmt.Sprintf("%064x", l.containers)
	w.containers = append(w.containers, id)
	l.begin(w, "/system.slice/docker-"+id+".scope", socket, demand)
	l.requests(w, 1)
}

// requests sets the CPU limit of a workload's last container, which its request is derived from.
func (l *lab) requests(w *labWorkload, cpus int) {
	dir := filepath.Join(l.root, "sys/fs/cgroup", w.tasks[len(w.tasks)-1].Cgroup)
	require.NoError(l.tb, os.MkdirAll(dir, 0o700))
	for name, content := range map[string]string{"cpu.weight": "100\n", "cpu.max": fmt.Sprintf("%d 100000\n", cpus*100000)} {
		require.NoError(l.tb, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
}

// rest returns the power of the machine's sockets at rest, in W by zone kind.
func (l *lab) rest() map[power.Kind]float64 {
	rest := map[power.Kind]float64{power.Package: 0, power.DRAM: 0}
	for _, s := range l.machine.Sockets {
		rest[power.Package] += s.Idle
		rest[power.DRAM] += s.DRAMIdle
	}
	return rest
}

func (l *lab) begin(w *labWorkload, cgroup string, socket int, demand float64) {
	t := l.machine.Init().Spawn()
	t.Exec("/usr/bin/"+w.name, w.name)
	t.Move(cgroup)
	t.Socket, t.Demand, t.Resident = socket, demand, usualResident
	w.tasks = append(w.tasks, t)
}

// weighs sets the intensity of a workload's first task, and the power of memory per CPU that runs it, in W.
func (w *labWorkload) weighs(intensity, memory float64) *labWorkload {
	w.tasks[0].Intensity, w.tasks[0].Memory = intensity, memory
	return w
}

// holds sets the resident memory of the workload's first task, in bytes.
func (w *labWorkload) holds(resident uint64) { w.tasks[0].Resident = resident }

// usualResident is the resident memory of other tasks, in bytes.
const usualResident = 64 << 20

// spawn adds a child of the workload's first task.
func (w *labWorkload) spawn() *hostsim.Task {
	t := w.tasks[0].Spawn()
	t.Resident = usualResident
	w.tasks = append(w.tasks, t)
	return t
}

// entity returns what the workload's series are of.
func (w *labWorkload) entity() string {
	if w.containers != nil {
		return "container"
	}
	return "process"
}

// truth returns the energy that the workload caused.
func (w *labWorkload) truth() (j joules) {
	for _, t := range w.tasks {
		j = j.plus(inJoules(t.Energy))
	}
	return j
}

// accuracy is how far from the truth the receiver's figures are. Errors are relative: 0.1 is 10 % too much.
type accuracy struct {
	labTotals

	active  float64 // of the node's active energy, relative to all energy above idle
	mean    float64 // of the absolute errors of the workloads
	worst   float64
	worstOf string
	// misplaced is the part of all energy above idle that is attributed to another workload than the one that caused
	// it: of all zones, and of each.
	misplaced, misplacedPackage, misplacedDRAM float64
}

// measure runs the real receiver on a scenario for a time, in whole collections. What it has
// learned of the machine before, it has from learned.
func measure(tb testing.TB, sc labScenario, setting labSetting, horizon time.Duration) accuracy {
	l := &lab{tb: tb, root: treeDir(tb), series: map[labSeries]float64{}, doubts: map[labSeries]float64{}}
	drive := sc.build(l)
	var models training.Models
	if setting.learns > 0 {
		models = restored(tb, trainedOn(tb, sc, setting))
	}
	if l.since != nil {
		l.since()
	}
	window := l.start(setting, models)
	defer func() { require.NoError(tb, l.s.shutdown(context.Background())) }()
	before := l.totals()

	const step = time.Millisecond
	for at := time.Duration(0); at < horizon; {
		if drive != nil {
			drive(at)
		}
		l.machine.Step(step)
		l.events.observe(l.machine)
		at += step
		switch {
		case at%l.s.cfg.CollectionInterval == 0:
			require.NoError(tb, l.machine.Render())
			l.collect()
		case window > 0 && at%window == 0:
			require.NoError(tb, l.machine.Render())
			l.s.sample()
		}
	}
	require.Equal(tb, window, l.s.windows.Sampler.Window, "nothing else measured")
	return l.totals().since(before).accuracy()
}

// start starts the receiver on the machine, with models that are restored. It returns the length of
// the windows, 0 for one window per collection.
func (l *lab) start(setting labSetting, models training.Models) (window time.Duration) {
	cfg := simpleConfig()
	cfg.RootPath = l.root
	cfg.Meters.Use = only(config.MeterPowercap)
	cfg.CPUTime = setting.source
	cfg.Series.Processes = byPID(config.ProcessSeriesConfig{}) // every process has a series
	cfg.Metrics.SystemPowerUncertainty.Enabled = true
	cfg.Metrics.ProcessPowerUncertainty.Enabled, cfg.Metrics.ContainerPowerUncertainty.Enabled = true, true
	setting.configure(cfg)
	if cfg.Attribution.StaticPower[config.AllZones].Model == config.StaticFixed {
		cfg.Attribution.StaticPower = fixedPower(l.rest())
	}
	require.NoError(l.tb, cfg.Validate())
	set := receivertest.NewNopSettings(metadata.Type)
	set.Logger = zap.NewNop()
	var err error
	l.s, err = newEnergyScraper(cfg, set)
	require.NoError(l.tb, err)
	l.s.now, l.s.state.Training.Trained = l.machine.Host.Now, models
	switch setting.source {
	case cpu.KindBPF:
		kernel := hostsim.NewKernel(l.machine)
		l.s.node.Probes.Open = openAs(func(root string) cpu.Source { return cpu.NewSimulatedBPF(root, kernel, kernel.Now) })
	case cpu.KindClocks:
		l.s.node.Probes.Open = openAs(func(root string) cpu.Source { return cpu.NewSimulatedClocks(root, l.machine.Host.CPUClock) })
	}
	if setting.counts {
		l.countEvents()
	}
	window = cfg.WindowLength()
	l.s.windows.Sampler.Window = window // the lab's clock is the sampler
	require.NoError(l.tb, l.machine.Render())
	require.NoError(l.tb, l.s.start(context.Background(), simHost{}))
	return window
}

// trainedOnce holds the results of trainedOn, as functions by machine and setting.
var trainedOnce sync.Map

// trainedOn returns the models of a receiver that has measured the machine of a scenario, without
// its workloads, under a varied load. Settings with the same training share them, and so do
// scenarios with one name, which have one machine.
func trainedOn(tb testing.TB, sc labScenario, setting labSetting) training.Models {
	once, _ := trainedOnce.LoadOrStore(sc.name+"\n"+setting.learning(), sync.OnceValue(func() training.Models {
		l := &lab{tb: tb, root: treeDir(tb), series: map[labSeries]float64{}, doubts: map[labSeries]float64{}}
		sc.build(l)
		l.strip()
		l.start(setting, training.Models{})
		l.day(setting.learns, func() {
			require.NoError(tb, l.machine.Render())
			l.collect()
		})
		l.s.state.Training.Note(l.s.ledger.Models())
		require.NoError(tb, l.s.shutdown(context.Background()))
		return l.s.state.Training.Trained
	}))
	return once.(func() training.Models)()
}

// strip ends all workloads.
func (l *lab) strip() {
	for _, w := range l.workloads {
		for _, t := range w.tasks {
			t.Exit()
			t.Reap(false)
			l.machine.RemoveCgroup(t.Cgroup)
		}
	}
	l.workloads = nil
}

// measured holds the results of measureOnce, as functions by scenario and setting.
var measured sync.Map

// measureOnce measures a row of the tables. Tables that have the same row share the measurement.
func measureOnce(tb testing.TB, sc labScenario, setting labSetting) accuracy {
	once, _ := measured.LoadOrStore(sc.name+"\n"+setting.name, sync.OnceValue(func() accuracy {
		return measure(tb, sc, setting, labHorizon)
	}))
	return once.(func() accuracy)()
}

// collect makes a collection and acknowledges it.
func (l *lab) collect() {
	md, err := l.s.scrape(context.Background())
	require.NoError(l.tb, err)
	for _, rm := range md.ResourceMetrics().All() {
		of := l.workloadOf(rm.Resource().Attributes())
		var resource strings.Builder
		for k, v := range rm.Resource().Attributes().All() {
			resource.WriteString(k + "=" + v.AsString() + ",")
		}
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if strings.HasSuffix(m.Name(), ".power.uncertainty") {
				l.readDoubts(of, m)
			}
			if !workloadMetrics[m.Name()] {
				continue
			}
			for _, p := range m.Sum().DataPoints().All() {
				l.read(labSeries{metric: m.Name(), resource: resource.String(), of: of}, p)
			}
		}
	}
	l.s.delivered(delivery{all: true, some: true})
}

func (l *lab) read(s labSeries, p pmetric.NumberDataPoint) {
	zone, _ := p.Attributes().Get("energy.zone")
	state, hasState := p.Attributes().Get("energy.state")
	s.idle = hasState && state.Str() == "idle"
	s.zone, s.start = zone.Str(), p.StartTimestamp()
	l.series[s] = p.DoubleValue()
}

// workloadOf returns the name of the workload that a resource belongs to, or "".
func (l *lab) workloadOf(resource pcommon.Map) string {
	container, contained := resource.Get("container.id")
	program, named := resource.Get("process.executable.name")
	for _, w := range l.workloads {
		switch {
		case contained && slices.Contains(w.containers, container.Str()):
			return w.name
		case !contained && named && w.containers == nil && program.Str() == w.name:
			return w.name
		}
	}
	return ""
}

// readDoubts adds the uncertainties of a workload, or of the node. Their errors are the same in
// each collection, so those of energy add up.
func (l *lab) readDoubts(of string, m pmetric.Metric) {
	for _, p := range m.Gauge().DataPoints().All() {
		if zone, _ := p.Attributes().Get("energy.zone"); !p.Flags().NoRecordedValue() {
			l.doubts[labSeries{metric: m.Name(), of: of, zone: zone.Str()}] += p.DoubleValue() * l.s.cfg.CollectionInterval.Seconds()
		}
	}
}

// labTotals is the emitted and the true energy so far.
type labTotals struct {
	workloads       []string
	reported, truth map[string]joules // by workload
	node, aboveIdle joules            // the node's active energy, and all energy above idle
	parts           joules            // the active energy of all processes, and what is unattributed
	idle            idleTotals
	// doubts are the standard deviations of the energy of the measurement, by metric, workload and zone, where they
	// were emitted.
	doubts   map[labSeries]float64
	entities map[string]string // of each workload: process or container
	sockets  int
}

// idleTotals is the idle energy by carrier.
type idleTotals struct {
	workloads map[string]joules
	// node is all idle energy, processes that of the processes' series, unattributed the part without a carrier, and
	// idled the machine's true energy at rest.
	node, processes, unattributed, idled joules
}

func (l *lab) totals() labTotals {
	sums := l.sums()
	t := labTotals{
		reported: map[string]joules{}, truth: map[string]joules{}, node: sums.active("system.energy", ""), doubts: maps.Clone(l.doubts),
		entities: map[string]string{}, sockets: len(l.machine.Sockets),
	}
	for s, value := range l.series {
		switch {
		case s.idle || s.metric != "process.energy" && s.metric != "system.unattributed.energy":
		case s.zone == "package":
			t.parts.pkg += value
		case s.zone == "dram":
			t.parts.dram += value
		}
	}
	t.idle = idleTotals{
		workloads: map[string]joules{}, node: sums.idle("system.energy", ""),
		processes: sums.idle("process.energy", ""), unattributed: sums.idle("system.unattributed.energy", ""),
	}
	for _, w := range l.workloads {
		entity := w.entity()
		metric := entity + ".energy"
		t.workloads = append(t.workloads, w.name)
		t.entities[w.name] = entity
		t.reported[w.name] = sums.active(metric, w.name)
		t.idle.workloads[w.name] = sums.idle(metric, w.name)
		t.idle.processes = t.idle.processes.plus(sums.idle("process.energy", w.name))
		t.truth[w.name] = w.truth()
	}
	for _, s := range l.machine.Sockets {
		t.aboveIdle = t.aboveIdle.plus(inJoules(s.Energy)).less(inJoules(s.Idled))
		t.idle.idled = t.idle.idled.plus(inJoules(s.Idled))
	}
	return t
}

// since returns the totals less earlier ones.
func (t labTotals) since(before labTotals) labTotals {
	for _, w := range t.workloads {
		t.reported[w] = t.reported[w].less(before.reported[w])
		t.truth[w] = t.truth[w].less(before.truth[w])
		t.idle.workloads[w] = t.idle.workloads[w].less(before.idle.workloads[w])
	}
	i, was := &t.idle, &before.idle
	i.node, i.idled = i.node.less(was.node), i.idled.less(was.idled)
	i.processes, i.unattributed = i.processes.less(was.processes), i.unattributed.less(was.unattributed)
	t.node, t.aboveIdle = t.node.less(before.node), t.aboveIdle.less(before.aboveIdle)
	t.parts = t.parts.less(before.parts)
	return t
}

// labRounding is the precision of the tables: of errors that print the same, the first is the worst.
const labRounding = 5e-4

// accuracy compares the emitted energy with the truth.
func (t labTotals) accuracy() accuracy {
	a := accuracy{labTotals: t, active: off(t.node.sum(), t.aboveIdle.sum())}
	for _, w := range t.workloads {
		e := off(t.reported[w].sum(), t.truth[w].sum())
		a.mean += math.Abs(e) / float64(len(t.workloads))
		if math.Abs(e) > math.Abs(a.worst)+labRounding || a.worstOf == "" {
			a.worst, a.worstOf = e, w
		}
	}
	a.misplaced = t.misplaced(joules.sum)
	a.misplacedPackage = t.misplaced(func(j joules) float64 { return j.pkg })
	a.misplacedDRAM = t.misplaced(func(j joules) float64 { return j.dram })
	return a
}

// misplaced returns half the sum of the differences between the reported and the true shares, where everything outside
// the workloads is one more share. It is NaN if no energy above idle was used.
func (t labTotals) misplaced(of func(joules) float64) float64 {
	if of(t.aboveIdle) < 1e-6 {
		return math.NaN()
	}
	rest, distance := 0.0, 0.0
	for _, w := range t.workloads {
		d := of(t.reported[w])/of(t.node) - of(t.truth[w])/of(t.aboveIdle)
		distance += math.Abs(d)
		rest -= d
	}
	return (distance + math.Abs(rest)) / 2
}

// off returns the error of a figure relative to the true one.
func off(reported, truth float64) float64 { return (reported - truth) / truth }

// labSums are the sums of the series by metric, workload and state, in J by zone.
type labSums map[labSeries]joules

func (l *lab) sums() labSums {
	all := labSums{}
	for s, value := range l.series {
		of := labSeries{metric: s.metric, of: s.of, idle: s.idle}
		switch s.zone {
		case "package":
			all[of] = all[of].plus(joules{pkg: value})
		case "dram":
			all[of] = all[of].plus(joules{dram: value})
		}
	}
	return all
}

func (s labSums) active(metric, of string) joules { return s[labSeries{metric: metric, of: of}] }

func (s labSums) idle(metric, of string) joules {
	return s[labSeries{metric: metric, of: of, idle: true}]
}

// labShort is how long the scenarios of the other tests run: one collection.
const labShort = 10 * time.Second

// labScenarioOf returns the scenario with a name.
func labScenarioOf(t *testing.T, name string) labScenario {
	all := labAll()
	i := slices.IndexFunc(all, func(sc labScenario) bool { return sc.name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return all[i]
}

// rule is the default rule in windows of the given length. 0 is one window per collection.
func rule(source cpu.SourceKind, window time.Duration) labSetting {
	return labSetting{source: source, configure: inWindows(window)}
}

// share is the part of all active energy that a workload was given, relative to its true part.
func (a *accuracy) share(workload string) float64 {
	return a.reported[workload].sum() / a.node.sum() / (a.truth[workload].sum() / a.aboveIdle.sum())
}

func TestSteadyLoadIsSharedRightlyInAnyWindows(t *testing.T) {
	steady := labScenarioOf(t, "Steady mix")
	for _, setting := range labSettings {
		a := measure(t, steady, setting, labShort)
		most := 1e-5 // rounding of nanoseconds and microjoules
		if setting.source == cpu.KindProcfs {
			most = 2e-3 // ticks of 10 ms
		}
		assert.Less(t, a.misplaced, most, setting.name)
		assert.InDelta(t, 2.163/4-1, a.active, 5e-3, "%s: energy by utilization is that much less than what the load used", setting.name)
	}
}

func TestShortWindowsDistinguishBurstsFromSteadyLoad(t *testing.T) {
	bursts := labScenarioOf(t, "Bursts")
	one := measure(t, bursts, rule(cpu.KindBPF, 0), labShort)
	assert.Greater(t, one.misplaced, 0.3)
	second := measure(t, bursts, rule(cpu.KindBPF, time.Second), labShort)
	assert.Less(t, second.misplaced, one.misplaced/2)
	short := measure(t, bursts, rule(cpu.KindBPF, 100*time.Millisecond), labShort)
	assert.Less(t, short.misplaced, one.misplaced/4)
	assert.Less(t, measure(t, bursts, rule(cpu.KindBPF, config.MinWindow), labShort).misplaced, short.misplaced)
}

func TestShortLivedChildrensEnergyIsTheirContainers(t *testing.T) {
	children := labScenarioOf(t, "Short-lived children")
	for _, setting := range labSettings {
		a := measure(t, children, setting, labShort)
		assert.InDelta(t, 1, a.share("builder"), 0.01, setting.name)
		assert.InDelta(t, 1, a.share("server"), 0.01, setting.name)
	}
}

// A third of the CPU time is that of short-lived processes whose parent ignores SIGCHLD.
func TestShortLivedProcessesThatNothingShowsAreNotBilledToOthers(t *testing.T) {
	dropped := labScenario{name: "Dropped children", build: func(l *lab) func(time.Duration) {
		l.on(straight(4, 20, 100))
		l.process("server", 0, 0.5)
		l.container("web", 0, 0.5)
		parent := l.machine.Find(1)
		var child *hostsim.Task
		return func(at time.Duration) {
			switch at % (10 * time.Millisecond) {
			case 3 * time.Millisecond:
				child = parent.Spawn()
				child.Demand = 1
			case 8 * time.Millisecond:
				child.Exit()
				child.Reap(true)
			}
		}
	}}
	for _, window := range []time.Duration{0, time.Second} {
		setting := labSetting{name: "default, fixed, procfs, " + lengths[window], source: cpu.KindProcfs, configure: func(c *Config) {
			inWindows(window)(c)
			c.Attribution.Preset, c.Attribution.StaticPower = "", allStatic(config.StaticFixed)
		}}
		a := measure(t, dropped, setting, labShort)
		assert.InDelta(t, 1, a.share("server"), 0.02, setting.name)
		assert.InDelta(t, 1, a.share("web"), 0.02, setting.name)
		assert.Less(t, a.misplaced, 0.01, setting.name)
	}
}

func TestContainersBetweenTwoScansNeedBPF(t *testing.T) {
	containers := labScenarioOf(t, "Short-lived containers")
	a := measure(t, containers, rule(cpu.KindProcfs, 0), labShort)
	assert.Zero(t, a.reported["job"].sum())
	a = measure(t, containers, rule(cpu.KindBPF, 0), labShort)
	assert.InDelta(t, 1, a.share("job"), 0.01)
}

func TestCPUTimeCannotDistinguishSocketsClockRatesOrInstructions(t *testing.T) {
	for _, window := range []time.Duration{0, 100 * time.Millisecond} {
		setting := rule(cpu.KindBPF, window)
		perCPU := func(a accuracy, workload string, cpus float64) float64 { return a.reported[workload].sum() / cpus }
		equal := func(a accuracy, one string, cpus float64, other string, others float64) {
			assert.InEpsilon(t, perCPU(a, one, cpus), perCPU(a, other, others), 1e-5, "%s and %s", one, other)
			assert.Greater(t, a.misplaced, 0.05)
		}
		equal(measure(t, labScenarioOf(t, "One container on one socket"), setting, labShort), "server", 0.6, "job", 6.5)
		equal(measure(t, labScenarioOf(t, "Frequency scaling"), setting, labShort), "fast", 3.6, "slow", 0.8)
		equal(measure(t, labScenarioOf(t, "Memory-bound and compute-bound"), setting, labShort), "compute", 1.5, "memory", 1.5)
	}
}

func TestScopeZoneDistinguishesSocketsAndTheirClockRates(t *testing.T) {
	for _, name := range []string{"One container on one socket", "Frequency scaling"} {
		for _, source := range []cpu.SourceKind{cpu.KindBPF, cpu.KindProcfs} {
			node := measure(t, labScenarioOf(t, name), splitting(config.StaticFixed, 0), labShort)
			assert.Greater(t, node.misplaced, 0.05, name)
			zone := measure(t, labScenarioOf(t, name), byZone("", config.StaticFixed, source, 0), labShort)
			assert.Less(t, zone.misplaced, 0.005, "%s, %s", name, source)
			assert.InDelta(t, 0, zone.active, 1e-3, "%s, %s", name, source)
		}
	}
}

func TestTheScopeZoneChangesNothingOnOneSocket(t *testing.T) {
	for _, name := range []string{"Steady mix", "Bursts", "Short-lived children", "Memory-bound and compute-bound"} {
		sc := labScenarioOf(t, name)
		for _, source := range []cpu.SourceKind{cpu.KindBPF, cpu.KindProcfs} {
			node := byZone("", config.StaticFixed, source, 0)
			zone := node
			node.configure = func(c *Config) { zone.configure(c); c.Attribution.Scope = config.ScopeNode }
			assert.Equal(t, measure(t, sc, node, labShort).reported, measure(t, sc, zone, labShort).reported, "%s, %s", name, source)
		}
	}
}

// The default rule has the larger error in windows of equal length. Compared with its single interval of 10 s the
// others are better still.
func TestKeysAndACorrectModelHalveMisplacedEnergy(t *testing.T) {
	for _, name := range []string{"Mixed node", "Frequency scaling"} {
		sc := labScenarioOf(t, name)
		for _, window := range []time.Duration{time.Second, 100 * time.Millisecond} {
			byDefault := measure(t, sc, rule(cpu.KindBPF, window), labShort)
			a := measure(t, sc, keyed(config.StaticFixed, config.WeightFrequencySquared, config.WeightMemoryCPUTime, window), labShort)
			assert.Less(t, a.misplaced, byDefault.misplaced/2, "%s, %v", name, window)
			assert.Less(t, a.misplacedPackage, byDefault.misplacedPackage/2, "%s, %v", name, window)
			if !math.IsNaN(a.misplacedDRAM) {
				assert.Less(t, a.misplacedDRAM, byDefault.misplacedDRAM/2, "%s, %v", name, window)
			}
		}
	}
}

func TestMemoryKeysAttributeDRAMEnergy(t *testing.T) {
	sc := labScenarioOf(t, "Memory-bound and compute-bound")
	for _, key := range []config.Weight{config.WeightMemory, config.WeightMemoryCPUTime} {
		a := measure(t, sc, keyed(config.StaticFixed, config.WeightCPUTime, key, 0), labShort)
		assert.Less(t, a.misplacedDRAM, 0.02, key)
	}
}

func TestInterruptsAreTheWorkloadsUnlessTheyAreUnattributed(t *testing.T) {
	interrupts := labScenarioOf(t, "Interrupts")
	for _, window := range []time.Duration{0, time.Second, 100 * time.Millisecond} {
		for _, source := range []cpu.SourceKind{cpu.KindBPF, cpu.KindProcfs} {
			if window > 0 && window < time.Second && source == cpu.KindProcfs {
				continue // a window of procfs is a second at least
			}
			setting := interruptsUnattributed(window)
			setting.source = source
			a := measure(t, interrupts, setting, labShort)
			assert.Less(t, a.misplaced, 0.01, "%v, %s", window, source)
			assert.InDelta(t, 0, a.active, 1e-3, "%v, %s", window, source)
			shared := setting
			shared.configure = func(c *Config) { setting.configure(c); c.Attribution.Interrupts = "" }
			b := measure(t, interrupts, shared, labShort)
			assert.InDelta(t, 0.4/2.563, b.misplaced, 1e-3, "their share of all busy time, %v, %s", window, source)
			assert.InDelta(t, a.node.sum(), b.node.sum(), 1e-6, "the node's is the same")
		}
		byUtilization := measure(t, interrupts, rule(cpu.KindBPF, window), labShort)
		assert.InDelta(t, 2.563/4-1, byUtilization.active, 2e-3, "interrupts are busy time in windows of %v", window)
	}
}

// The expected error follows from the rule's formula: P·u instead of P - P(rest).
func TestUtilizationErrorOnALoadCurveFollowsTheFormula(t *testing.T) {
	off := map[string][]float64{}
	for _, c := range labCurves(t) {
		for _, load := range labLoads {
			a := measure(t, underLoad(c, load), rule(cpu.KindBPF, 0), labShort)
			watts, rest := c.watts.Watts(load), c.watts[0].Watts
			assert.InDelta(t, watts*load/(watts-rest)-1, a.active, 1e-3, "%s at %v", c.cpu, load)
			assert.Less(t, a.misplaced, 1e-4)
			off[c.cpu] = append(off[c.cpu], a.active)
		}
	}
	assert.InDelta(t, -0.793, off["Intel Xeon E5-2620 v3"][0], 1e-3, "at a load of 10 %% most of the added power is missed")
	assert.InDelta(t, 0.343, off["AMD Ryzen Threadripper 1950X"][3], 1e-3, "at full load idle energy is attributed too")
}

// Six hours after midnight have enough different loads for the learned model.
func TestTheLearnedModelFindsActiveEnergyOnLoadCurves(t *testing.T) {
	setting := splitting(config.StaticTrained, 0)
	setting.learns = 6 * time.Hour
	for _, c := range labCurves(t) {
		for _, load := range []float64{0.1, 1} {
			a := measure(t, underLoad(c, load), setting, labShort)
			assert.InDelta(t, 0, a.active, 0.02, "%s at %v", c.cpu, load)
			assert.Less(t, a.misplaced, 1e-4)
		}
	}
}

func TestALearnedStateIsOfTheMachineAlone(t *testing.T) {
	bursts := labScenarioOf(t, "Bursts")
	setting := splitting(config.StaticTrained, 0)
	setting.learns = 6 * time.Hour
	a := measure(t, bursts, setting, labShort)
	without := measure(t, bursts, rule(cpu.KindBPF, 0), labShort)
	assert.InDelta(t, without.aboveIdle.sum(), a.aboveIdle.sum(), 1e-3, "the energy of the time in which it learned is not in it")
	assert.InDelta(t, 0, a.active, 5e-3, "it is in effect from the first interval")
	again := setting
	again.configure = func(c *Config) {
		setting.configure(c)
		c.Attribution.Weight = allWeight(config.WeightFrequency)
	}
	assert.Equal(t, setting.learning(), again.learning(), "an allocation key changes nothing that is learned")
}

func TestADayHasAllLoads(t *testing.T) {
	l := &lab{tb: t, root: t.TempDir()}
	l.on(straight(4, 20, 100))
	l.process("a", 0, 1)
	var loads [10]int
	busy := l.machine.Ran()
	l.day(24*time.Hour, func() {
		now := l.machine.Ran()
		loads[min(int(10*(now-busy)/(40*time.Second)), 9)]++
		busy = now
	})
	for i, n := range loads {
		assert.Greater(t, n, 100, "times 10 s at a load of %d0 %%", i)
	}
	assert.Len(t, l.machine.Tasks, 2)
	assert.InDelta(t, 1, l.workloads[0].tasks[0].Demand, 0, "as it was")
	assert.Zero(t, l.workloads[0].tasks[0].Used)
}

func TestLabFiguresFollowTheirDefinitions(t *testing.T) {
	socket := &hostsim.Socket{CPUs: 1}
	l := &lab{tb: t, root: t.TempDir(), series: map[labSeries]float64{}}
	l.on(socket)
	task := l.process("a", 0, 0).tasks[0]
	task.Energy = hostsim.Energies{Package: 40e6, DRAM: 20e6}
	l.container("b", 0, 0).spawn().Energy = hostsim.Energies{Package: 40e6}
	socket.Energy, socket.Idled = hostsim.Energies{Package: 135e6, DRAM: 25e6}, hostsim.Energies{Package: 55e6, DRAM: 5e6}
	for _, s := range []struct {
		labSeries
		value float64
	}{
		{labSeries{metric: "system.energy", zone: "package"}, 40},
		{labSeries{metric: "system.energy", zone: "dram"}, 10},
		{labSeries{metric: "process.energy", of: "a", zone: "package"}, 20},
		{labSeries{metric: "process.energy", of: "a", zone: "package", start: 1}, 4}, // restarted
		{labSeries{metric: "process.energy", of: "a", zone: "dram"}, 6},
		{labSeries{metric: "container.energy", of: "b", zone: "package"}, 12},
		{labSeries{metric: "process.energy", of: "b", zone: "package"}, 11}, // included in the container's
		{labSeries{metric: "process.energy", zone: "dram"}, 4},
		{labSeries{metric: "system.energy", zone: "package", idle: true}, 55},
		{labSeries{metric: "system.energy", zone: "dram", idle: true}, 5},
		{labSeries{metric: "process.energy", of: "a", zone: "package", idle: true}, 25},
		{labSeries{metric: "process.energy", of: "a", zone: "dram", idle: true}, 5},
		{labSeries{metric: "container.energy", of: "b", zone: "package", idle: true}, 20},
		{labSeries{metric: "process.energy", of: "b", zone: "package", idle: true}, 18},
		{labSeries{metric: "process.energy", zone: "package", idle: true}, 9}, // 2 of them by b's children
		{labSeries{metric: "system.unattributed.energy", zone: "package", idle: true}, 3},
	} {
		l.series[s.labSeries] = s.value
	}
	a := l.totals().accuracy()
	assert.InDelta(t, -0.5, a.active, 1e-9, "50 of 100 J")
	assert.InDelta(t, -0.7, a.worst, 1e-9, "12 of 40 J")
	assert.Equal(t, "b", a.worstOf)
	assert.InDelta(t, (0.5+0.7)/2, a.mean, 1e-9, "the other 30 of 60 J")
	assert.InDelta(t, 0.16, a.misplaced, 1e-9, "a 60 %% for 60, b 24 %% for 40, and unattributed 16 %%")
	assert.InDelta(t, 0.2, a.misplacedPackage, 1e-9, "a 60 %% for 50, b 30 %% for 50, and unattributed 10 %%")
	assert.InDelta(t, 0.4, a.misplacedDRAM, 1e-9, "a 60 %% for 100, and unattributed 40 %%")
	assert.InDeltaSlice(t, []float64{30. / 60, 20. / 60, 7. / 60, 3. / 60}, a.idle.shares(t, []string{"a", "b"}), 1e-9)
}

func TestSettingsShareARunWhereActiveEnergyIsTheSame(t *testing.T) {
	all := append(labRows(), labPresets...)
	runs := map[string][]string{}
	for _, setting := range all {
		runs[setting.run()] = append(runs[setting.run()], setting.name)
	}
	shared := [][]string{}
	for _, setting := range all {
		if names := runs[setting.run()]; len(names) > 1 && names[0] == setting.name {
			shared = append(shared, names)
		}
	}
	assert.Equal(t, [][]string{
		{"CPU time, 10 s, BPF", "preset kepler, 10 s, BPF", "preset scaphandre, 10 s, BPF"},
		{"minimum, 10 s, BPF", "preset kepler_0_9, 10 s, BPF"},
		{"resting, 10 s, BPF", "preset smartwatts, 10 s, BPF"},
		{"base, 10 s, BPF", "preset kavanagh, 10 s, BPF"},
		{"regression, 10 s, BPF", "preset kubewatt, 10 s, BPF"},
	}, shared)
}

// Settings that run leaves out do not change active energy, here in an hour of learning.
func TestAPresetSharesActiveEnergyLikeItsModel(t *testing.T) {
	c := labCurves(t)[0]
	for _, pair := range [][2]labSetting{
		{preset(config.PresetKepler09), splitting(config.StaticMinimum, 0)}, {preset(config.PresetKavanagh), splitting(config.StaticBase, 0)},
	} {
		var reported [2]map[string]joules
		for i, setting := range pair {
			setting.learns = time.Hour
			reported[i] = measure(t, underLoad(c, 0.4), setting, labShort).reported
		}
		assert.Equal(t, reported[1], reported[0], pair[0].name)
		assert.NotZero(t, reported[0]["job"])
	}
}

func TestEveryScenarioAndSettingHasANameOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, sc := range append(labAll(), labEffects...) {
		assert.False(t, seen[sc.name], sc.name)
		seen[sc.name] = true
	}
	for _, setting := range append(labRows(), labPresets...) {
		assert.False(t, seen[setting.name], setting.name)
		for _, scenario := range setting.in {
			assert.True(t, seen[scenario], "%s: there is no scenario %s", setting.name, scenario)
		}
		seen[setting.name] = true
	}
	for _, sc := range gpuScenarios {
		assert.False(t, seen[sc.name], sc.name)
		seen[sc.name] = true
	}
	for _, setting := range gpuSettings {
		assert.False(t, seen[setting.name], setting.name)
		seen[setting.name] = true
	}
}
