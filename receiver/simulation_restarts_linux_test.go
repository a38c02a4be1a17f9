// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
	"github.com/energyreceiver/energyreceiver/receiver/internal/state"
	"github.com/energyreceiver/energyreceiver/receiver/internal/training"
)

// The acts of a history with restarts, beside those of hostsim.
const (
	actStop     hostsim.Act = 200 + iota // the receiver is stopped
	actCrash                             // the receiver is killed; A: when
	actStart                             // the receiver is started, if it is down; B: how long it was down before that
	actBoot                              // the machine boots again; A: how
	actStore                             // something happens to the store; A: what, B: how often
	actSettings                          // the next start has other settings; A: which
)

var actNames = map[hostsim.Act]string{
	actStop: "stop", actCrash: "kill", actStart: "start", actBoot: "boot the machine", actStore: "the store", actSettings: "settings",
}

// crash is the moment in a collection at which the receiver is killed.
type crash int

const (
	noCrash         crash = iota
	beforeStored          // the state is not stored
	whileStored           // a part of it is
	beforeDelivered       // it is stored, and the collection is not sent
	afterDelivered        // the collection was sent, and the receiver does not know that it was taken
	betweenTwo            // nothing is under way
	numCrashes
)

var crashes = [numCrashes]string{
	beforeStored: "killed before the state was stored", whileStored: "killed while it was stored",
	beforeDelivered: "killed between the state and the collection", afterDelivered: "killed after the collection",
	betweenTwo: "killed between two collections",
}

// restarts is a machine on which the receiver is stopped, killed and started again. The rules are about what was sent.
type restarts struct {
	tb    testing.TB
	seed  uint64
	dir   string
	boots int
	// before is how long earlier boots lasted, with the time between them.
	before time.Duration
	bootID string

	life    *hostsim.Life
	faults  *hostsim.Faults
	tasks   map[simProcess]*hostsim.Task // of this boot, with those that ended
	store   *restartStore
	backend *restartBackend

	s        *energyScraper // nil while the receiver is down
	starting bool           // it has not returned from start
	dying    crash          // the moment in this collection at which it is killed
	cut      bool           // it was killed: nothing that it does has an effect
	settings uint32         // that differ from those of the first start, of the next
	running  uint32         // the same of this one
	// otherZones reports whether zones differed at any start.
	otherZones bool
	starts     int
	scrapes    int

	fired map[string]int
	wrong error
	rule  string
}

// The settings that totals depend on, and those that they do not.
const (
	otherRules uint32 = 1 << iota
	fewerZones
	otherScope
	fewerSeries
	numSettings = 4
)

const dependsOn = otherRules | fewerZones | otherScope

func newRestarts(tb testing.TB, seed uint64) *restarts {
	installReader()
	sim := &restarts{tb: tb, seed: seed, dir: treeDir(tb), fired: map[string]int{}}
	sim.store = &restartStore{sim: sim, values: map[string][]byte{}, records: map[string]*record{}}
	sim.backend = newRestartBackend(sim)
	sim.boot(freshBoot)
	return sim
}

// exact and the following methods select the properties of a history by its seed.
func (sim *restarts) exact() bool     { return sim.seed%2 == 0 }  // the CPU time source is BPF
func (sim *restarts) modeled() bool   { return sim.seed%7 == 3 }  // the meter is a model
func (sim *restarts) faulty() bool    { return sim.seed%3 == 0 }  // counters and files fail
func (sim *restarts) stored() bool    { return sim.seed%11 != 7 } // there is a store
func (sim *restarts) unlimited() bool { return sim.seed/2%2 == 0 }

// boots of a machine.
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

// boot begins a boot of the machine.
func (sim *restarts) boot(how int) {
	zones := map[string]*hostsim.Zone{}
	if old := sim.life; old != nil {
		sim.fired[bootNames[how]]++
		sim.before += old.Host.Uptime + time.Minute
		zones = old.Host.Zones
		simulations.Delete(old.Host.Root())
		require.NoError(sim.tb, os.RemoveAll(old.Host.Root()))
	}
	sim.boots++
	root := filepath.Join(sim.dir, fmt.Sprint(sim.boots))
	curve, err := model.Linear(0, 60)
	require.NoError(sim.tb, err)
	machine := hostsim.NewMachine(root,
		&hostsim.Socket{CPUs: 2, Idle: 20, DRAMIdle: 3, Curve: curve, Frequency: schedutil},
		&hostsim.Socket{CPUs: 2, Idle: 15, DRAMIdle: 2, Curve: curve})
	machine.Host.Booted = machine.Host.Booted.Add(sim.before)
	machine.LimitPIDs(64)
	for id, z := range machine.Host.Zones {
		switch old := zones[id]; {
		case old != nil && how == warmBoot:
			z.Energy, z.Counted = old.Energy, old.Counted
		case old != nil && (how == imageBoot || how == snapshotBoot):
			z.Energy = old.Energy / 2 * uint64(1+sim.boots%3) % z.Max
		}
	}
	if how != snapshotBoot {
		sim.bootID = fmt.Sprintf("00000000-0000-4000-a000-%04d%08d", sim.boots, sim.seed)
	}
	machine.Host.Files["proc/sys/kernel/random/boot_id"] = sim.bootID + "\n"
	if sim.modeled() {
		clear(machine.Host.Zones)
	}
	sim.life = hostsim.NewLife(machine)
	sim.tasks = map[simProcess]*hostsim.Task{}
	slow := sim.faults
	sim.faults = hostsim.NewFaults(sim.life)
	if slow != nil {
		maps.Copy(sim.faults.Fired, slow.Fired)
	}
	sim.meet()
	simulations.Store(root, sim)
}

// read implements faultyFiles.
func (sim *restarts) read(path string, got []byte, err error) ([]byte, error) {
	return sim.faults.Read(path, got, err)
}

// meet notes the tasks that are new.
func (sim *restarts) meet() {
	for _, t := range sim.life.Tasks {
		sim.tasks[simProcess{int32(t.PID), t.Born / hostsim.Tick}] = t
	}
}

func (sim *restarts) fail(format string, args ...any) {
	if sim.wrong == nil {
		sim.wrong, sim.rule = fmt.Errorf(format, args...), format
	}
}

// config returns the configuration of the next start.
func (sim *restarts) config() *Config {
	seed := sim.seed
	cfg := simpleConfig()
	cfg.RootPath = sim.life.Host.Root()
	cfg.Metrics.ProcessCPUTime.Enabled = true
	cfg.Zones = []power.Kind{power.Package, power.DRAM}
	switch {
	case sim.modeled():
		cfg.Meters.Use = only()
		withModel(modelWatts, modelWatts)(cfg)
		cfg.Zones = cfg.Zones[:1]
	default:
		cfg.Meters.Use = only(config.MeterPowercap)
	}
	cfg.Series.Processes, cfg.Series.Containers.Max = byPID(config.ProcessSeriesConfig{}), 0
	if !sim.unlimited() {
		cfg.Series.Processes = byPID(config.ProcessSeriesConfig{MinEnergy: float64(seed / 3 % 3), Max: [...]int{0, 4, 20}[seed/5%3]})
		cfg.Series.Containers.Max = 2
	}
	cfg.Series.Processes.GroupBy = groupings[seed/7%3]
	if seed%5 > 1 {
		cfg.Attribution.StaticPower = simulatedStatic(seed/3, map[power.Kind]float64{power.Package: 40, power.DRAM: 5})
		cfg.Attribution.Tuning = config.StaticTuning{Rest: 0.5, Base: time.Minute, Samples: 1}
		cfg.Attribution.Idle = [...]config.IdleRule{config.IdleNone, config.IdleEqual, config.IdleRequested, config.IdleUsed, config.IdleEqualContainers}[seed/5%5]
	}
	cfg.Attribution.Scope = [...]config.Scope{config.ScopeNode, config.ScopeZone}[seed/3%2]
	cfg.Attribution.Interrupts = [...]config.InterruptRule{config.InterruptsShared, config.InterruptsUnattributed}[seed/4%2]
	if sim.settings&otherScope != 0 {
		cfg.Attribution.Scope = [...]config.Scope{config.ScopeZone, config.ScopeNode}[seed/3%2]
	}
	if sim.settings&otherRules != 0 {
		cfg.Attribution.StaticPower = fixedPower(map[power.Kind]float64{power.Package: 7, power.DRAM: 1})
	}
	if sim.settings&fewerZones != 0 {
		cfg.Zones = cfg.Zones[:1]
		maps.DeleteFunc(cfg.Attribution.StaticPower, func(zone power.Kind, _ config.StaticPowerConfig) bool { return zone == power.DRAM })
	}
	if sim.settings&fewerSeries != 0 {
		cfg.Series.Processes.Max = 3
	}
	if sim.stored() {
		cfg.Storage = storageID.String()
	}
	require.NoError(sim.tb, cfg.Validate())
	return cfg
}

// shortest returns the shortest interval. In a shorter one the CPU time of a package may stand
// still, and energy is pending. With steal, less than half of the interval is the machine's own.
func (sim *restarts) shortest() time.Duration {
	if sim.life.Steal > 0 {
		return 200 * time.Millisecond
	}
	return 50 * time.Millisecond
}

// modelWatts is the power of the machine where it is modeled.
const modelWatts = 50

// start starts the receiver.
func (sim *restarts) start() {
	if err := sim.life.Render(); err != nil {
		sim.fail("render: %w", err)
		return
	}
	set := receivertest.NewNopSettings(metadata.Type)
	set.Logger = zap.NewNop()
	sim.running = sim.settings
	sim.otherZones = sim.otherZones || sim.running&fewerZones != 0
	s, err := newEnergyScraper(sim.config(), set)
	require.NoError(sim.tb, err)
	sim.starts++
	s.now = sim.life.Host.Now
	s.state.KernelClocks = func() (boot, suspended time.Duration) { return sim.life.Host.Uptime, sim.life.Host.Suspended }
	s.output.next = nextConsumer{sim, s.delivered}
	if sim.exact() && (sim.seed%6 != 0 || sim.starts%3 > 0) {
		kernel := hostsim.NewKernel(sim.life.Machine)
		sim.faults.Kernel = kernel
		s.node.Probes.Open = func(o cpu.Options) (*cpu.Reader, error, error) {
			return cpu.NewReader(cpu.NewSimulatedBPF(o, kernel, kernel.Now), o), nil, nil
		}
	}
	sim.s, sim.cut = s, false
	sim.backend.observe()
	sim.store.forget()
	sim.backend.started(sim.store.usable())
	sim.starting = true
	require.NoError(sim.tb, s.start(context.Background(), sim))
	sim.store.settle()
	sim.starting = false
	sim.backend.stamp()
	sim.store.opened()
}

// GetExtensions implements component.Host.
func (sim *restarts) GetExtensions() map[component.ID]component.Component {
	return map[component.ID]component.Component{storageID: sim.store}
}

// Report implements componentstatus.Reporter.
func (*restarts) Report(*componentstatus.Event) {}

// stop stops the receiver. Of one that was killed, it only gives back what the test's process has of it.
func (sim *restarts) stop() {
	if err := sim.life.Render(); err != nil {
		sim.fail("render: %w", err)
	}
	sim.backend.observe()
	if err := sim.s.shutdown(context.Background()); err != nil {
		sim.fail("shutdown: %w", err)
	}
	sim.store.release(sim.scrapes%2 == 0)
	sim.s, sim.cut, sim.dying = nil, false, noCrash
	sim.faults.Kernel = nil
	sim.life.OnEnd(nil)
	sim.backend.ended()
}

// kill kills the receiver at a moment.
func (sim *restarts) kill(when crash) {
	sim.fired[crashes[when]]++
	if sim.store.hung != nil {
		sim.fired[killedWrite]++
	}
	if sim.dying = when; when != betweenTwo {
		sim.collect()
	}
	sim.cut = true
	sim.stop()
}

// simulateRestarts runs a history and returns the first rule that was broken. It waits for hanging stores in a synctest
// bubble.
func simulateRestarts(t *testing.T, seed uint64, events []hostsim.Event) (sim *restarts, err error) {
	synctest.Test(t, func(t *testing.T) { sim, err = simulateInBubble(t, seed, events) })
	return sim, err
}

func simulateInBubble(tb testing.TB, seed uint64, events []hostsim.Event) (sim *restarts, err error) {
	sim = newRestarts(tb, seed)
	defer func() {
		if sim.s != nil {
			sim.cut = true
			sim.stop()
		}
		simulations.Delete(sim.life.Host.Root())
		require.NoError(tb, os.RemoveAll(sim.dir))
	}()
	defer func() {
		if wrong := recover(); wrong != nil {
			sim.rule, err = "nothing panics", fmt.Errorf("panic: %v\n%s", wrong, debug.Stack())
		}
	}()
	sim.start()
	for i, e := range events {
		if *simSeed != 0 {
			tb.Logf("%v event %d: %v %s", sim.life.Now(), i, e, actNames[e.Act])
		}
		sim.apply(e)
		sim.meet()
		if sim.wrong != nil {
			return sim, fmt.Errorf("event %d (%+v): %w", i, e, sim.wrong)
		}
	}
	sim.end()
	return sim, sim.wrong
}

func (sim *restarts) apply(e hostsim.Event) {
	up := sim.s != nil
	switch {
	case e.Act == hostsim.Advance:
		sim.life.Step(max(intervals[e.A%uint32(len(intervals))], sim.shortest()))
		if up && e.B%3 == 0 {
			sim.window()
		} else if up {
			sim.collect()
		}
	case e.Act == actStop && up:
		sim.life.Step(sim.shortest())
		sim.fired["stopped"]++
		sim.stop()
	case e.Act == actCrash && up:
		sim.life.Step(max(time.Duration(e.B%12_000)*time.Millisecond, sim.shortest()))
		sim.kill(crash(1 + e.A%uint32(numCrashes-1)))
	case e.Act == actStart && !up:
		sim.wait(e.B)
		sim.start()
	case e.Act == actBoot:
		if up {
			sim.kill(betweenTwo)
		}
		sim.boot(int(e.A % numBoots))
	case e.Act == actStore:
		sim.store.happen(e)
	case e.Act == actSettings:
		if change := uint32(1) << (e.A % numSettings); change != fewerZones || !sim.modeled() { // which has one
			sim.settings ^= change
		}
	case e.Act >= actStop:
	case e.Act >= hostsim.FirstFault:
		sim.fault(e)
	default:
		sim.life.Apply(e)
	}
}

// wait lets time pass while the receiver is down, in some cases hours.
func (sim *restarts) wait(b uint32) {
	switch b % 8 {
	case 0:
		sim.life.Step(time.Duration(b/8%20_000) * time.Second)
		sim.fired["down for hours"]++
	case 1, 2, 3:
		sim.life.Step(time.Duration(b/8%100) * time.Second)
	case 4:
		sim.life.Step(time.Duration(b/8%1000) * time.Second)
	default: // started again at once, not at the time of the last reading
		sim.life.Step(time.Millisecond)
	}
}

// fault applies a fault. Those that hide energy from the meters are of faulty histories only.
func (sim *restarts) fault(e hostsim.Event) {
	switch e.Act {
	case hostsim.MeterLate, hostsim.MeterFails, hostsim.MeterRejects, hostsim.MeterVanishes, hostsim.MeterReplaced:
		return // there is no slow meter
	case hostsim.Suspend:
		if !sim.faulty() {
			e.B |= 1 // counters go on
		}
	case hostsim.Steal, hostsim.ClockStep, hostsim.ExitMidScan, hostsim.Refuse, hostsim.EndsLate, hostsim.EndsLost, hostsim.ListFails:
	default:
		if !sim.faulty() {
			return
		}
	}
	if e.Act == hostsim.ClockStep {
		sim.backend.stepped = true
	}
	sim.faults.Apply(e)
}

// window lets the receiver observe the machine without a collection.
func (sim *restarts) window() {
	if err := sim.life.Render(); err != nil {
		sim.fail("render: %w", err)
		return
	}
	sim.backend.observe()
	sim.s.sample()
	sim.backend.stamp()
}

// collect is a collection.
func (sim *restarts) collect() {
	if err := sim.life.Render(); err != nil {
		sim.fail("render: %w", err)
		return
	}
	sim.backend.observe()
	sim.store.collected()
	sim.scrapes++
	md, err := sim.s.scrape(context.Background())
	sim.store.settle()
	sim.backend.stamp()
	if err != nil {
		sim.fail("scrape: %w", err)
	}
	if md.ResourceMetrics().Len() == 0 {
		if err := sim.s.state.Err(); err != nil && strings.Contains(err.Error(), "withheld") {
			sim.fired[hasWaited]++
		}
		return
	}
	_ = sim.s.output.next.ConsumeMetrics(context.Background(), md)
}

// Capabilities implements consumer.Metrics.
func (*restarts) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

// ConsumeMetrics implements consumer.Metrics. Of the collections that are refused some were taken all the same.
func (sim *restarts) ConsumeMetrics(_ context.Context, md pmetric.Metrics) error {
	sim.store.settle()
	if sim.dying != noCrash && sim.dying != betweenTwo && sim.dying != afterDelivered {
		sim.cut = true
	}
	if sim.cut {
		return nil
	}
	refused := sim.faults.Refused()
	sim.backend.receive(md, !refused || sim.unlimited() && sim.running&fewerSeries == 0 && sim.scrapes%2 == 0, !refused)
	if refused || sim.dying == afterDelivered {
		return errSimRefuses
	}
	return nil
}

// end starts the receiver if it is down, lets all tasks end and delivers their final values.
func (sim *restarts) end() {
	sim.store.faults = storeFaults{}
	sim.store.release(true)
	sim.faults.Disarm()
	if sim.s == nil {
		sim.start()
	}
	sim.life.Step(time.Second)
	sim.collect()
	for len(sim.life.Tasks) > 1 {
		t := sim.life.Tasks[len(sim.life.Tasks)-1]
		if !t.Zombie {
			t.Exit()
		}
		t.Reap(false)
	}
	for range 4 {
		sim.life.Step(61 * time.Second)
		sim.collect()
	}
}

// restartStore is a storage extension that fails as files do.
type restartStore struct {
	component.StartFunc
	component.ShutdownFunc
	sim     *restarts
	values  map[string][]byte
	older   [][]byte           // states that were stored
	records map[string]*record // of states, by their text
	faults  storeFaults
	hung    chan bool // receives the result of the write that hangs, and ends it
	putBack bool      // the state is one of older
}

type storeFaults struct {
	opening, reading bool // fails at the next start
	writing          int  // fails so often
	deleting         bool // fails, too
	hanging          int  // writes hang for so many collections
}

var errStore = errors.New("no space left on device")

const numStoreActs = 10

// Faults of a store that must have occurred.
const (
	storeFull     = "store full"
	storeReadOnly = "store read-only"
	storeHangs    = "store hangs"
	storeIsLate   = "store hangs until a later collection"
	killedWrite   = "receiver killed while its store hangs"
	hasWaited     = "a collection is withheld"
)

// happen lets something happen to the store, or to the state in it.
func (s *restartStore) happen(e hostsim.Event) {
	for key, value := range s.values {
		if len(value) == 0 {
			continue
		}
		value = slices.Clone(value)
		switch e.A % numStoreActs {
		case 0:
			value[e.B%uint32(len(value))] ^= 1 << (e.B % 7)
		case 1:
			value = value[:e.B%uint32(len(value))]
		case 2:
			value = nil
		case 3:
			if s.sim.s == nil && len(s.older) > 0 { // else only a part of a state was ever stored
				value = s.older[e.B%uint32(len(s.older))]
			}
		case 4:
			value = foreignState(s.sim.tb)
		default:
			continue
		}
		if s.sim.s != nil {
			continue // the file of a running receiver is not changed
		}
		s.sim.fired["state "+[...]string{"damaged", "cut off", "deleted", "of an earlier time", "of another machine"}[e.A%numStoreActs]]++
		s.values[key], s.putBack = value, e.A%numStoreActs == 3
	}
	switch e.A % numStoreActs {
	case 5:
		s.faults.deleting = s.faults.deleting && s.faults.writing > 0
		s.faults.writing += int(1 + e.B%20)
		s.sim.fired[storeFull]++
	case 8:
		s.faults.writing += int(1 + e.B%60)
		s.faults.deleting = true
		s.sim.fired[storeReadOnly]++
	case 9:
		s.faults.hanging += int(1 + e.B%30)
	case 6:
		s.faults.reading = true
	case 7:
		s.faults.opening = true
	}
}

// foreignState is the state of a receiver on another machine.
var foreign struct {
	sync.Once
	state []byte
}

func foreignState(tb testing.TB) []byte {
	foreign.Do(func() {
		sim := newRestarts(tb, 4)
		sim.start()
		for range 5 {
			sim.life.Step(10 * time.Second)
			sim.collect()
		}
		_, foreign.state = sim.store.state()
		sim.cut = true
		sim.stop()
		simulations.Delete(sim.life.Host.Root())
	})
	return foreign.state
}

// state returns the stored state.
func (s *restartStore) state() (key string, value []byte) {
	return state.Key, s.values[state.Key]
}

// usable returns the record of the state that the next start finds, nil if it finds none that is good.
func (s *restartStore) usable() *record {
	_, value := s.state()
	r := s.records[string(value)]
	switch {
	case s.faults.opening, s.faults.reading:
		s.sim.fired["store not readable"]++
		return nil
	case r == nil:
		return nil
	case r.boot != s.sim.boots, s.isStuck():
		return nil
	}
	return r
}

// isStuck reports whether the next start can neither replace nor remove the state. A start tries each twice.
func (s *restartStore) isStuck() bool {
	return s.faults.hanging > 0 || s.faults.deleting && s.faults.writing > 2
}

// collected ends the hanging of writes after a number of collections.
func (s *restartStore) collected() {
	if s.faults.hanging > 0 {
		if s.faults.hanging--; s.faults.hanging == 0 && s.hung != nil {
			s.sim.fired[storeIsLate]++
			s.release(true)
		}
	}
}

// settle waits until a write hangs, if writes do.
func (s *restartStore) settle() {
	if s.faults.hanging > 0 {
		synctest.Wait()
	}
}

// release ends a write that hangs.
func (s *restartStore) release(succeeds bool) {
	if s.hung != nil {
		s.hung <- succeeds
		s.hung = nil
		synctest.Wait() // for the write
	}
}

// totals returns the totals of the stored state, with times by the clock of the next start.
func (s *restartStore) totals() (totals state.Totals) {
	_, value := s.state()
	host := s.sim.life.Host
	err := state.Decode(value, &training.Models{}, &totals, state.Moment{
		Boot: s.sim.bootID, At: host.Now(), Clocks: state.Clocks{Boot: host.Uptime, Suspended: host.Suspended},
	})
	require.NoError(s.sim.tb, err)
	return totals
}

// forget removes a state that cannot be distinguished from one of this boot: the state is older
// than the machine's reset to a snapshot, and the machine has since run for longer than it had
// then.
func (s *restartStore) forget() {
	for key, value := range s.values {
		r := s.records[string(value)]
		if r != nil && r.boot != s.sim.boots && r.bootID == s.sim.bootID && r.uptime <= s.sim.life.Host.Uptime {
			delete(s.values, key)
		}
	}
}

// opened ends the faults of a start.
func (s *restartStore) opened() { s.faults.opening, s.faults.reading = false, false }

// GetClient implements storage.Extension.
func (s *restartStore) GetClient(context.Context, component.Kind, component.ID, string) (storage.Client, error) {
	if s.faults.opening {
		return nil, errStore
	}
	return s, nil
}

// Get implements storage.Client.
func (s *restartStore) Get(_ context.Context, key string) ([]byte, error) {
	if s.faults.reading {
		return nil, errStore
	}
	return bytes.Clone(s.values[key]), nil
}

// Set implements storage.Client.
func (s *restartStore) Set(_ context.Context, key string, value []byte) error {
	if s.sim.cut {
		return nil
	}
	if s.faults.hanging > 0 {
		return s.hang(key, value)
	}
	r := s.sim.backend.record()
	if s.faults.writing > 0 {
		s.faults.writing--
		return errStore
	}
	switch s.sim.dying {
	case beforeStored:
		s.sim.cut = true
		return nil
	case whileStored:
		s.sim.cut = true
		s.values[key] = bytes.Clone(value[:len(value)*(s.sim.scrapes%5)/5])
		return nil
	}
	s.store(key, value, r)
	if s.sim.dying == beforeDelivered {
		s.sim.cut = true
	}
	return nil
}

// hang is a write that hangs. One of a start is lost: it would be the state that the start did not restore.
func (s *restartStore) hang(key string, value []byte) error {
	s.sim.fired[storeHangs]++
	s.hung = make(chan bool)
	if s.sim.starting {
		<-s.hung
		return errStore
	}
	r := s.sim.backend.record()
	if succeeds := <-s.hung; !succeeds {
		return errStore
	}
	s.store(key, value, r)
	return nil
}

func (s *restartStore) store(key string, value []byte, r *record) {
	s.values[key] = bytes.Clone(value)
	s.older = append(s.older, s.values[key])
	s.records[string(value)] = r
	s.putBack = false
	s.sim.fired["states stored"]++
}

// Delete implements storage.Client.
func (s *restartStore) Delete(_ context.Context, key string) error {
	if s.sim.cut {
		return nil
	}
	if s.faults.writing > 0 && s.faults.deleting {
		return errStore
	}
	delete(s.values, key)
	return nil
}

// Batch implements storage.Client.
func (s *restartStore) Batch(ctx context.Context, ops ...*storage.Operation) (err error) {
	for _, op := range ops {
		switch op.Type {
		case storage.Get:
			op.Value, err = s.Get(ctx, op.Key)
		case storage.Set:
			err = s.Set(ctx, op.Key, op.Value)
		case storage.Delete:
			err = s.Delete(ctx, op.Key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Close implements storage.Client.
func (*restartStore) Close(context.Context) error { return nil }

// historyOfRestarts returns random events with restarts.
func historyOfRestarts(seed uint64, n int) []hostsim.Event {
	w := hostsim.CommonWeights().AddFaults(1)
	w[hostsim.ZoneWrapsTwice], w[hostsim.Refuse] = 0, 2
	w[actStop], w[actCrash], w[actStart], w[actBoot], w[actStore], w[actSettings] = 4, 5, 14, 1, 4, 1
	return hostsim.NewHistory(seed, n, w)
}

// TestRestartsLoseAndInventNothing runs random histories in which the receiver restarts. With -sim.seed it runs one.
func TestRestartsLoseAndInventNothing(t *testing.T) {
	foreignState(t)
	if *simSeed != 0 {
		events, err := kept(historyOfRestarts(*simSeed, *simN), *simKeep)
		require.NoError(t, err)
		_, err = simulateRestarts(t, *simSeed, events)
		require.NoError(t, err)
		return
	}
	var mu sync.Mutex
	fired := map[string]int{}
	var next atomic.Uint64
	var failed atomic.Bool
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed := next.Add(1); seed <= uint64(*simRuns) && !failed.Load(); seed = next.Add(1) {
				all := historyOfRestarts(seed, *simN)
				sim, err := simulateRestarts(t, seed, all)
				if err != nil {
					failed.Store(true)
					keep := listed(shrink(len(all), 30*time.Second, func(indices []int) bool {
						again, err := simulateRestarts(t, seed, selected(all, indices))
						return err != nil && again.rule == sim.rule
					}))
					t.Errorf("seed %d: %v\nTo see it again: go test ./receiver -run %s -v -sim.seed=%d -sim.events=%d -sim.keep=%s",
						seed, err, t.Name(), seed, *simN, keep)
					return
				}
				mu.Lock()
				for name, count := range sim.fired {
					fired[name] += count
				}
				fired["collections"] += sim.scrapes
				fired["starts"] += sim.starts
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	if t.Failed() {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(fired)) {
		t.Logf("%8d %s", fired[name], name)
	}
	if *simRuns < someHistories {
		return
	}
	names := slices.Concat(crashes[1:], bootNames[:], []string{
		"stopped", storeFull, storeReadOnly, storeHangs, storeIsLate, killedWrite, hasWaited, expired,
	})
	for _, name := range names {
		assert.Positive(t, fired[name], "%s: what never happened proves nothing", name)
	}
}
