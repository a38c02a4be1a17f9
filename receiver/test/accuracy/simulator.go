// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
	"github.com/energyreceiver/energyreceiver/internal/window"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/receiver/internal/rules"
	"github.com/energyreceiver/energyreceiver/receiver/internal/state"
	"github.com/energyreceiver/energyreceiver/receiver/internal/windows"
)

// simulator runs the receiver on a simulated machine with the true energy of each workload.
type simulator struct {
	tb        testing.TB
	root      string
	machine   *hostsim.Machine
	workloads []*simWorkload
	// containers counts the containers.
	containers int
	// nights is the lowest load of a day, 0 to 1, if jobs arrive at random; see day.
	nights float64
	// drives are called before every millisecond with the time since the beginning, at.
	drives []func(at time.Duration)
	at     time.Duration
	// since is called after training, if it is not nil. It changes the machine.
	since func()
	// driver is the driver of the machine's cards; see simSetting.
	driver        string
	cfg           *config.Config
	r             *energyreceiver.Embedded
	windows       *simWindows
	series        map[simSeries]float64 // last value of each, in J
	uncertainties map[simSeries]float64 // sum over collections, in J
}

// simWindows is the metronome with which the simulator ends the receiver's windows.
type simWindows struct {
	length time.Duration // 0 for one window per collection
	ends   chan struct{} // of a window; closed by Stop
	ended  chan struct{} // receives once a window is attributed
	began  bool          // set by the first Next
}

// Next implements windows.Metronome.
func (w *simWindows) Next() int64 {
	if w.began {
		w.ended <- struct{}{}
	}
	w.began = true
	if _, ok := <-w.ends; !ok {
		return 0
	}
	return 1
}

// Stop implements windows.Metronome.
func (w *simWindows) Stop() {
	w.length = 0
	close(w.ends)
}

// end ends a window, and returns once the receiver has attributed it.
func (w *simWindows) end() {
	w.ends <- struct{}{}
	<-w.ended
}

// simWorkload is a process of the host, or one or more containers with all their processes.
type simWorkload struct {
	name       string
	containers []string        // IDs of all that ever existed
	tasks      []*hostsim.Task // all that ever existed
	contexts   []*hostsim.Context
}

type simSeries struct {
	metric, resource, zone string
	start                  pcommon.Timestamp
	of                     string // the workload's name
	idle                   bool   // idle instead of active energy
}

// treeDir returns a temporary directory, in memory if there is room.
func treeDir(tb testing.TB) string {
	const memory, room = "/dev/shm", 256 << 20
	var fs unix.Statfs_t
	if err := unix.Statfs(memory, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC || fs.Bavail*uint64(fs.Bsize) < room {
		return tb.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "host-")
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, os.RemoveAll(dir)) })
	return dir
}

// build returns the simulator of a scenario, with the files of its machine below root. driver is as
// in simSetting.
func build(tb testing.TB, root string, sc simScenario, driver string) *simulator {
	l := &simulator{tb: tb, root: root, driver: driver, series: map[simSeries]float64{}, uncertainties: map[simSeries]float64{}}
	sc.build(l)
	return l
}

// run lets the time of the scenario pass in steps of a millisecond. It calls after, unless it is
// nil, at the end of each step.
func (l *simulator) run(length time.Duration, after func()) {
	for end := l.at + length; l.at < end; {
		for _, drive := range l.drives {
			drive(l.at)
		}
		l.machine.Step(time.Millisecond)
		if l.driver != "" {
			l.poll()
		}
		l.at += time.Millisecond
		if after != nil {
			after()
		}
	}
}

// each adds a function that changes the machine before every millisecond.
func (l *simulator) each(drive func(at time.Duration)) { l.drives = append(l.drives, drive) }

func (l *simulator) on(sockets ...*hostsim.Socket) {
	l.machine = hostsim.NewMachine(l.root, sockets...)
}

// workload adds a workload without processes.
func (l *simulator) workload(name string) *simWorkload {
	l.workloads = append(l.workloads, &simWorkload{name: name})
	return l.workloads[len(l.workloads)-1]
}

// process adds a process of the host that demands n CPUs of a socket.
func (l *simulator) process(name string, socket int, demand float64) *simWorkload {
	w := l.workload(name)
	l.begin(w, "/system.slice/"+name+".service", socket, demand)
	return w
}

// container adds a workload of one container with one process.
func (l *simulator) container(name string, socket int, demand float64) *simWorkload {
	w := l.workload(name)
	l.contain(w, socket, demand)
	return w
}

// contain adds a container with one process to a workload.
func (l *simulator) contain(w *simWorkload, socket int, demand float64) {
	l.containers++
	id := fmt.Sprintf("%064x", l.containers)
	w.containers = append(w.containers, id)
	l.begin(w, "/system.slice/docker-"+id+".scope", socket, demand)
	l.requests(w, 1)
}

// requests sets the CPU limit of a workload's last container, from which its CPU request is
// derived.
func (l *simulator) requests(w *simWorkload, cpus int) {
	dir := filepath.Join(l.root, "sys/fs/cgroup", w.tasks[len(w.tasks)-1].Cgroup)
	require.NoError(l.tb, os.MkdirAll(dir, 0o700))
	for name, content := range map[string]string{"cpu.weight": "100\n", "cpu.max": fmt.Sprintf("%d 100000\n", cpus*100000)} {
		require.NoError(l.tb, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
}

// rest returns the power of the machine at rest, in W by zone kind.
func (l *simulator) rest() map[power.Kind]float64 {
	rest := map[power.Kind]float64{power.Package: 0, power.DRAM: 0}
	for _, s := range l.machine.Sockets {
		rest[power.Package] += s.Idle
		rest[power.DRAM] += s.DRAMIdle
	}
	for _, g := range l.machine.GPUs {
		rest[power.GPU] += g.Idle
	}
	return rest
}

func (l *simulator) begin(w *simWorkload, cgroup string, socket int, demand float64) {
	t := l.machine.Init().Spawn()
	t.Exec("/usr/bin/"+w.name, w.name)
	t.Move(cgroup)
	t.Socket, t.Demand, t.Resident = socket, demand, usualResident
	w.tasks = append(w.tasks, t)
}

// weighs sets the intensity of a workload's first task, and the memory power per CPU that runs it,
// in W.
func (w *simWorkload) weighs(intensity, memory float64) *simWorkload {
	w.tasks[0].Intensity, w.tasks[0].Memory = intensity, memory
	return w
}

// holds sets the resident memory of the workload's first task, in bytes.
func (w *simWorkload) holds(resident uint64) { w.tasks[0].Resident = resident }

// usualResident is the resident memory of other tasks, in bytes.
const usualResident = 64 << 20

// spawn adds a child of the workload's first task.
func (w *simWorkload) spawn() *hostsim.Task {
	t := w.tasks[0].Spawn()
	t.Resident = usualResident
	w.tasks = append(w.tasks, t)
	return t
}

// entity returns the entity type of the workload's series.
func (w *simWorkload) entity() string {
	if w.containers != nil {
		return "container"
	}
	return "process"
}

// measure measures a scenario under a setting for a time, in whole collections.
func measure(t *testing.T, sc simScenario, setting simSetting, horizon time.Duration) (a accuracy) {
	if setting.by != nil {
		return setting.by(t, sc, horizon)
	}
	root := treeDir(t)
	if setting.driver == "" {
		return measureIn(t, root, sc, setting, horizon)
	}
	// Goroutines poll the cards. synctest simulates the clock for all of them.
	synctest.Test(t, func(t *testing.T) { a = measureIn(t, root, sc, setting, horizon) })
	return a
}

// measureIn runs the real receiver. It first trains the models for setting.training.
func measureIn(t *testing.T, root string, sc simScenario, setting simSetting, horizon time.Duration) accuracy {
	l := build(t, root, sc, setting.driver)
	storage := ""
	if setting.training > 0 && setting.driver == "" {
		storage = filepath.Join(t.TempDir(), "trained")
		require.NoError(t, os.WriteFile(storage, trainedOn(t, sc, setting), 0o600))
	}
	if l.since != nil {
		l.since()
	}
	window := l.start(setting, storage, state.OpenReadOnly)
	defer func() { require.NoError(t, l.r.Shutdown(context.Background())) }()
	if setting.driver != "" {
		l.beginPolling()
		l.day(setting.training, l.renderAndCollect)
	}
	observe := func() {
		switch {
		case l.at%l.cfg.CollectionInterval == 0:
			l.renderAndCollect()
		case window > 0 && l.at%window == 0:
			require.NoError(t, l.machine.Render())
			l.windows.end()
		}
	}
	l.run(setting.warm, observe)
	before := l.totals()
	l.run(horizon, observe)
	require.Equal(t, window, l.windows.length, "no other window length")
	l.checkSums()
	return l.totals().since(before).accuracy()
}

// start starts the receiver on the machine. open opens the storage. start returns the length of the
// windows, 0 for one window per collection.
func (l *simulator) start(setting simSetting, storage string, open state.Opener) (window time.Duration) {
	cfg := setting.config()
	cfg.RootPath, cfg.Storage = l.root, storage
	cfg.CPUTime = setting.source
	cfg.Metrics.SystemPowerUncertainty.Enabled = true
	cfg.Metrics.ProcessPowerUncertainty.Enabled, cfg.Metrics.ContainerPowerUncertainty.Enabled = true, true
	if cfg.Attribution.StaticPower[config.AllZones].Model == config.StaticFixed {
		cfg.Attribution.StaticPower = fixedPower(l.rest())
	}
	if setting.counts && l.machine.PMU == nil {
		l.machine.PMU = &hostsim.PMU{Seed: 1}
	}
	var host map[component.ID]component.Component
	if setting.driver == "" {
		cfg.Meters.Use = []string{"powercap"}
	} else {
		host = l.cards(cfg)
	}
	l.receive(cfg, host, func(m *machine.Machine) {
		m.OpenStorage = open
		if setting.driver == "" {
			m.Now = l.machine.Host.Now
		}
		m.FindHardware = func(string) (*perfevent.Hardware, error) {
			if !setting.counts {
				return nil, errUncounted
			}
			return &perfevent.Hardware{}, nil
		}
		switch setting.source {
		case cpu.KindBPF:
			kernel := hostsim.NewKernel(l.machine)
			readFrom(m, func(o cpu.Options) cpu.Source { return cpu.NewSimulatedBPF(o, kernel, kernel.Now) })
		case cpu.KindClocks:
			readFrom(m, func(o cpu.Options) cpu.Source { return cpu.NewSimulatedClocks(o, l.machine.Host.CPUClock) })
		}
	})
	require.NoError(l.tb, l.machine.Render())
	require.NoError(l.tb, l.r.Start(context.Background()))
	return cfg.WindowLength()
}

var errUncounted = errors.New("the machine counts no hardware events")

// receive creates the receiver with a valid configuration and the extensions of host. edit
// completes the machine that the receiver reads.
func (l *simulator) receive(cfg *config.Config, host map[component.ID]component.Component, edit func(*machine.Machine)) {
	require.NoError(l.tb, cfg.Validate())
	m := machine.Local()
	l.windows = &simWindows{}
	m.NewMetronome = func(length time.Duration) windows.Metronome {
		l.windows = &simWindows{length: length, ends: make(chan struct{}), ended: make(chan struct{})}
		return l.windows
	}
	m.OpenWeigher = l.openWeigher(cfg)
	edit(&m)
	r, err := energyreceiver.Embed(cfg, energyreceiver.EmbeddedOptions{Logger: zap.NewNop(), Extensions: host, Machine: &m})
	require.NoError(l.tb, err)
	l.cfg, l.r = cfg, r
}

// openWeigher returns a function that opens weighers of the simulated machine. The figures of
// presets are from a machine without clock rates.
func (l *simulator) openWeigher(cfg *config.Config) func(window.Key, *window.KeyOptions) (window.Weigher, error) {
	wanted, _ := rules.Resolve(cfg, rules.Machine{})
	return func(key window.Key, o *window.KeyOptions) (window.Weigher, error) {
		if key == window.KeyFrequency && !wanted.Clocks {
			return weigh.SimulatedClock(func() map[int]int64 { return l.machine.Host.Clocks }, o.FrequencyExponent)
		}
		return window.OpenWeigher(key, o)
	}
}

// readFrom sets the CPU time source.
func readFrom(m *machine.Machine, open func(cpu.Options) cpu.Source) {
	m.OpenCPU = func(o cpu.Options) (*cpu.Reader, error, error) { return cpu.NewReader(open(o), o), nil, nil }
}

// onceBy holds results of functions by a key. It calls each function once, even if several tests
// need its result at the same time.
type onceBy[T any] struct{ byKey sync.Map }

func (r *onceBy[T]) get(key string, f func() T) T {
	once, _ := r.byKey.LoadOrStore(key, sync.OnceValue(f))
	return once.(func() T)()
}

// Results of trainedOn by machine and setting, and of measureOnce by scenario, setting and length.
var (
	trained  onceBy[[]byte]
	measured onceBy[accuracy]
)

// trainedOn returns the state of a receiver after it measured the machine of a scenario under a
// varied load, without the workloads. Settings with the same training, and scenarios of one
// machine, share the state.
func trainedOn(tb testing.TB, sc simScenario, setting simSetting) []byte {
	return trained.get(cmp.Or(sc.machine, sc.name)+"\n"+setting.trainingKey(), func() []byte {
		l := build(tb, treeDir(tb), sc, "")
		l.strip()
		directory := treeDir(tb)
		l.start(setting, directory, state.OpenStorage)
		l.day(setting.training, l.renderAndCollect)
		require.NoError(tb, l.r.Shutdown(context.Background()))
		state, err := os.ReadFile(state.Path(directory, energyreceiver.EmbeddedID.String()))
		require.NoError(tb, err)
		return state
	})
}

// strip ends all workloads.
func (l *simulator) strip() {
	for _, w := range l.workloads {
		for _, t := range w.tasks {
			l.end(t)
		}
	}
	l.workloads = nil
}

// end ends a task with its cgroup.
func (l *simulator) end(t *hostsim.Task) {
	t.Exit()
	t.Reap(false)
	l.machine.RemoveCgroup(t.Cgroup)
}

// measureOnce measures a row of the tables. Tables with the same row share the measurement.
func measureOnce(t *testing.T, sc simScenario, setting simSetting, horizon time.Duration) accuracy {
	key := fmt.Sprint(sc.name, "\n", setting.name, "\n", horizon)
	return measured.get(key, func() accuracy { return measure(t, sc, setting, horizon) })
}

func (l *simulator) renderAndCollect() {
	require.NoError(l.tb, l.machine.Render())
	l.collect()
}

// collect makes a collection and acknowledges it.
func (l *simulator) collect() {
	md, err := l.r.Collect(context.Background())
	require.NoError(l.tb, err)
	l.record(md)
}

// record reads the data points of a collection.
func (l *simulator) record(md pmetric.Metrics) {
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
			if !slices.Contains(workloadMetrics, m.Name()) {
				continue
			}
			for _, p := range m.Sum().DataPoints().All() {
				zone, _ := p.Attributes().Get("energy.zone")
				state, hasState := p.Attributes().Get("energy.state")
				l.series[simSeries{
					metric: m.Name(), resource: resource.String(), of: of, zone: zone.Str(),
					idle: hasState && state.Str() == "idle", start: p.StartTimestamp(),
				}] = p.DoubleValue()
			}
		}
	}
}

// workloadOf returns the name of the workload that a resource belongs to, or "".
func (l *simulator) workloadOf(resource pcommon.Map) string {
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

// readDoubts adds up the uncertainties of a workload, or of the node. Errors are the same in each
// collection, so the uncertainties of energy add up.
func (l *simulator) readDoubts(of string, m pmetric.Metric) {
	for _, p := range m.Gauge().DataPoints().All() {
		if zone, _ := p.Attributes().Get("energy.zone"); !p.Flags().NoRecordedValue() {
			l.uncertainties[simSeries{metric: m.Name(), of: of, zone: zone.Str()}] += p.DoubleValue() * l.cfg.CollectionInterval.Seconds()
		}
	}
}

// simScenarioOf returns the scenario with a name.
func simScenarioOf(t *testing.T, name string) simScenario {
	all := slices.Concat(simAll(), simEffects, gpuScenarios)
	i := slices.IndexFunc(all, func(sc simScenario) bool { return sc.name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return all[i]
}
