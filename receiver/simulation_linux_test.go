// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit/emittest"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

var (
	simSeed    = flag.Uint64("sim.seed", 0, "the `seed` of the one history to simulate, 0 for several")
	simN       = flag.Int("sim.events", 400, "how many events a history has")
	simRuns    = flag.Int("sim.histories", someHistories, "how many histories to simulate")
	simSeconds = flag.Int("sim.seconds", 12, "for how many seconds a thousand processes are born in each")
	simKeep    = flag.String("sim.keep", "", "the events of the history to keep, as `from-to,...`; empty is all")
)

// simulation runs the receiver on a simulated host, and checks invariants after every interval.
type simulation struct {
	life   *hostsim.Life
	faults *hostsim.Faults
	kernel *hostsim.Kernel // nil with procfs
	slow   *slowPlatform   // nil where powercap is the only meter
	other  *otherOracle    // nil where other is not attributed
	cards  *simCards       // nil without GPUs
	s      *energyScraper
	exact  bool
	clocks bool // CPU clocks are read

	meters    map[string]*oracle // by zone id
	bases     map[int]units.Energy
	delivered [attribution.MaxKinds]units.Energy
	seen      map[string]*seenSeries
	taken     map[string]pcommon.Timestamp // of the last point that the consumer took, by what a series is but for its start
	// takenBefore is the latest point of the collections before that the consumer took, latest that of all.
	takenBefore, latest pcommon.Timestamp
	// passed is the time since the interval before.
	passed time.Duration
	zeros  map[string]bool // of which series there was a zero point and no value yet that the consumer took
	// deliveredCPU is the CPU time in the accounts of processes that were removed.
	deliveredCPU map[simProcess]units.CPUTime
	sums         map[string]int64 // of ended series, by metric and zone
	// gauges are the resources of the power series that the consumer has. lastIn is the last collection with each
	// resource.
	gauges    map[string]string
	lastIn    map[string]int
	collected int
	intervals int
	baseline  time.Time // the first stamp
	// onDemand ends windows on demand after some intervals.
	onDemand  bool
	ran       time.Duration // CPU time of all tasks until then
	claimed   units.CPUTime // since then
	untraced  units.CPUTime // the most that an exact source says it did not find since then
	wrong     error
	rule      string // the rule that was broken
	trusted   bool   // earlier workloads are not remembered
	faultless bool   // the history has no faults
	charged   int    // accounts of processes with energy of a GPU, over all intervals
}

type seenSeries struct {
	metric, identity, zone string
	start, at              pcommon.Timestamp
	value                  int64 // µJ
	delivered              int64 // the last acknowledged value
	in                     int   // the last collection with this series
	sent                   bool  // and it was acknowledged
	taken                  bool  // a value of it was acknowledged
}

// oracle is the specification's rule for one counter, implemented a second time as plainly as possible.
type oracle struct {
	total, last uint64
	at          time.Time
	seen        bool
	max         uint64
}

// groupings are the values of processes::group_by.
var groupings = [...]config.GroupBy{"", config.GroupByPID, config.GroupByProgram}

func (o *oracle) add(raw uint64, at time.Time) {
	var delta uint64
	switch {
	case !o.seen:
	case raw >= o.last:
		delta = raw - o.last
	case o.last <= o.max && o.last-raw > o.max/16384:
		delta = o.max - o.last + raw
	}
	if o.seen && float64(delta)/1e6 > 1500*(at.Sub(o.at).Seconds()+0.01) {
		delta = 0
	}
	o.total += delta
	o.last, o.at, o.seen = raw, at, true
}

// simulations are the running simulations, each a faultyFiles, by a directory of theirs.
var simulations sync.Map

// faultyFiles decides what a read of a file returns.
type faultyFiles interface {
	read(path string, got []byte, err error) ([]byte, error)
}

var installReader = sync.OnceFunc(func() {
	kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		for root := path; len(root) > 1; root = filepath.Dir(root) {
			if sim, ok := simulations.Load(root); ok {
				return sim.(faultyFiles).read(path, got, err)
			}
		}
		return got, err
	})
})

func (sim *simulation) read(path string, got []byte, err error) ([]byte, error) {
	return sim.faults.Read(path, got, err)
}

type simHost struct{}

func (simHost) GetExtensions() map[component.ID]component.Component { return nil }
func (simHost) Report(*componentstatus.Event)                       {}

// newSimulation starts the receiver on a host. It uses procfs or the host's CPU clocks if the seed is odd, and
// otherwise a simulated BPF source.
func newSimulation(tb testing.TB, seed uint64) (sim *simulation, stop func()) {
	installReader()
	root := treeDir(tb)
	curve, err := model.Linear(0, 60)
	require.NoError(tb, err)
	machine := hostsim.NewMachine(root,
		&hostsim.Socket{CPUs: 2, Threads: int(1 + seed/2%2), Siblings: 1.2, Idle: 20, DRAMIdle: 3, Curve: curve, Frequency: schedutil},
		&hostsim.Socket{CPUs: 2, Idle: 15, DRAMIdle: 2, Curve: curve})
	machine.LimitPIDs(64)
	sim = &simulation{
		life:   hostsim.NewLife(machine),
		exact:  seed%2 == 0,
		clocks: seed%4 == 3,
		meters: map[string]*oracle{},

		faultless: seed%5 == 0,
		bases:     map[int]units.Energy{},
		seen:      map[string]*seenSeries{},
		taken:     map[string]pcommon.Timestamp{},
		zeros:     map[string]bool{},

		deliveredCPU: map[simProcess]units.CPUTime{},
		sums:         map[string]int64{},
		gauges:       map[string]string{},
		lastIn:       map[string]int{},
	}
	sim.faults = hostsim.NewFaults(sim.life)
	sim.faults.OnRead = sim.observeRead
	cfg := simpleConfig()
	cfg.RootPath = root
	cfg.Meters.Use = only(config.MeterPowercap)
	cfg.Series.Processes = byPID(config.ProcessSeriesConfig{MinEnergy: float64(seed / 2 % 3), Max: [...]int{0, 4, 20}[seed/6%3]})
	cfg.Series.Processes.GroupBy = groupings[seed/4%3]
	if seed%4 > 0 {
		cfg.Series.Containers.Max = 2
		cfg.Series.Pods.Max, cfg.Series.VMs.Max = 1, 1
	}
	cfg.Metrics.ProcessCPUTime.Enabled = true
	if seed/2%3 > 0 {
		cfg.Zones = append(slices.Clone(cfg.Zones), power.Platform)
		if seed/2%3 > 1 {
			cfg.Zones = append(cfg.Zones, power.Other)
		}
	}
	if seed%3 > 0 { // otherwise the default rules
		weight := config.Weights[seed/4%uint64(len(config.Weights))]
		dram := config.Weights[seed/28%uint64(len(config.Weights))]
		if weight.Exponent() > 0 && dram.Exponent() > 0 {
			dram = weight
		}
		cfg.Attribution = config.AttributionConfig{
			StaticPower: simulatedStatic(seed/3, map[power.Kind]float64{power.Package: 40, power.DRAM: 5, power.Platform: 90, power.Other: 45}),
			Idle:        [...]config.IdleRule{config.IdleNone, config.IdleEqual, config.IdleRequested, config.IdleUsed, config.IdleEqualContainers}[seed/5%5],
			Preset:      config.PresetKepler,
			Weight:      map[power.Kind]config.Weight{config.AllZones: weight, power.DRAM: dram},
			SMTWeight:   [...]float64{0.6, 0, 0.5}[seed/4%3],
			Tuning:      config.StaticTuning{Rest: 0.5, Base: time.Minute, Samples: 1},
		}
	}
	cfg.Attribution.Scope = [...]config.Scope{config.ScopeNode, config.ScopeZone}[seed/7%2]
	if seed%7 == 3 {
		cfg.Attribution = config.AttributionConfig{}
		cfg.CollectionInterval = 100 * time.Millisecond // the preset makes no windows: they would be of this machine's time
	}
	machine.IRQ, cfg.Attribution.Interrupts = float64(seed/5%3)/10, [...]config.InterruptRule{config.InterruptsShared, config.InterruptsUnattributed}[seed/11%2]
	require.NoError(tb, cfg.Validate())
	set := receivertest.NewNopSettings(metadata.Type)
	set.Logger = zap.NewNop()
	sim.s, err = newEnergyScraper(cfg, set)
	require.NoError(tb, err)
	sim.s.now = machine.Host.Now
	if seed/7%2 == 0 {
		sim.s.node.Probes.OpenClock = func(_ string, exponent int) (*weigh.ByRate, error) {
			return weigh.SimulatedClock(func() map[int]int64 { return machine.Host.Clocks }, exponent)
		}
	}
	sim.onDemand = seed%3 != 1
	if sim.exact {
		sim.kernel = hostsim.NewKernel(machine)
		sim.kernel.Spreads = true
		sim.faults.Kernel = sim.kernel
		sim.s.node.Probes.Open = func(o cpu.Options) (*cpu.Reader, error, error) {
			if seed/18%2 == 0 {
				o.Window = cpu.TickWindow / 2 // the node's CPU time is that of the scans
			}
			return cpu.NewReader(cpu.NewSimulatedBPF(o, sim.kernel, sim.kernel.Now), o), nil, nil
		}
	}
	if sim.clocks {
		sim.s.node.Probes.Open = openAs(func(o cpu.Options) cpu.Source { return cpu.NewSimulatedClocks(o, machine.Host.CPUClock) })
	}
	if slices.Contains(cfg.Zones, power.Platform) {
		sim.addSlowMeter(seed, slices.Contains(cfg.Zones, power.Other))
	}
	if !slices.Contains(cfg.Zones, power.Other) { // otherwise its oracle would have to know when each card was read
		sim.addCards(seed)
	}
	sim.addMeters()
	require.NoError(tb, machine.Render())
	simulations.Store(root, sim)
	require.NoError(tb, sim.s.start(context.Background(), simHost{}))
	if sim.s.ledger.Begun() {
		sim.baseline, sim.ran = sim.s.ledger.Claims.Last().Stamp, machine.Ran()
	}
	sim.checkLedgers()
	return sim, func() {
		simulations.Delete(root)
		require.NoError(tb, sim.s.shutdown(context.Background()))
		require.NoError(tb, os.RemoveAll(root))
	}
}

// addSlowMeter has the receiver read a slow meter of the whole machine beside powercap.
func (sim *simulation) addSlowMeter(seed uint64, other bool) {
	sim.slow = &slowPlatform{
		lateMeter: lateMeter{
			zone: power.Zone{
				ID: slowID, Name: slowID, Kind: power.Platform, Method: power.Measured, Domain: units.NodeCPUs, MaxWatts: power.MaxPlatformWatts,
			},
			state: sim.faults.Slow, every: int(1 + seed/6%4), power: seed/3%2 == 0,
		},
		life: sim.life, scale: [...]float64{1, 0.98}[seed/5%2], beside: [...]float64{0, 50, 50}[seed/10%3],
	}
	sim.slow.energy = sim.slow.shown
	sim.meters[slowID] = &sim.slow.seen
	if other {
		sim.other = &otherOracle{parts: map[time.Time]units.Energy{}}
		sim.meters[string(power.Other)] = &sim.other.seen
	}
}

// addMeters has the receiver read the meters of the simulation beside powercap.
func (sim *simulation) addMeters() {
	var beside []power.Member
	if sim.slow != nil {
		beside = append(beside, power.Member{Name: "slow", Meter: sim.slow})
	}
	if sim.cards != nil {
		beside = append(beside, power.Member{Name: "gpu", Meter: sim.cards, Only: power.GPU})
	}
	open := sim.s.meters.OpenSet
	sim.s.meters.OpenSet = func(ctx context.Context, cfg *Config, host component.Host, set component.TelemetrySettings) (*power.Set, error) {
		powercap, err := open(ctx, cfg, host, set)
		if err != nil {
			return nil, err
		}
		members := beside
		for _, m := range powercap.Status() {
			members = append(members, m.Member)
		}
		zones := power.NewSet(members...)
		zones.Remainder = powercap.Remainder
		return zones, nil
	}
}

// observeDerived updates the oracles of what is not read from files.
func (sim *simulation) observeDerived() {
	l := sim.s.ledger
	if !l.Claims.Last().ReadAt.Equal(sim.life.Host.Now()) {
		return
	}
	if sim.cards != nil {
		for _, c := range sim.cards.cards {
			c.observe()
		}
	}
	if sim.slow == nil {
		return
	}
	sim.slow.observe()
	if sim.other == nil {
		return
	}
	if err := sim.other.observe(l.Claims.Last().Readings, sim.s.meters.Set.Remainder.Deficit(), sim.faultless); err != nil {
		sim.fail("other is the whole without its parts: %w", err)
	}
}

// simulate runs a history and returns the first rule that was broken.
func simulate(tb testing.TB, seed uint64, events []hostsim.Event) (sim *simulation, err error) {
	sim, stop := newSimulation(tb, seed)
	defer stop()
	defer func() {
		if wrong := recover(); wrong != nil {
			sim.rule, err = "nothing panics", fmt.Errorf("panic: %v\n%s", wrong, debug.Stack())
		}
	}()
	for i, e := range events {
		if *simSeed != 0 {
			tb.Logf("%v event %d: %v", sim.life.Now(), i, e)
		}
		switch {
		case e.Act == hostsim.Advance:
			sim.advance(e)
		case e.Act >= hostsim.FirstFault:
			sim.faults.Apply(e)
		default:
			sim.life.Apply(e)
		}
		if sim.wrong != nil {
			return sim, fmt.Errorf("event %d (%+v): %w", i, e, sim.wrong)
		}
	}
	sim.end()
	return sim, sim.wrong
}

var intervals = [...]time.Duration{
	time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, 10 * time.Second, 10 * time.Second,
	10 * time.Second, time.Minute, 10 * time.Minute,
}

// advance lets an interval pass and makes the receiver observe it: as a window, or as the last one of a collection.
func (sim *simulation) advance(e hostsim.Event) {
	sim.passed = intervals[e.A%uint32(len(intervals))]
	sim.life.Step(sim.passed)
	if err := sim.life.Render(); err != nil {
		sim.fail("render: %w", err)
		return
	}
	if e.B%3 == 0 {
		sim.shrink()
		sim.s.sample()
		sim.intervals++
		sim.checkLedgers()
	} else {
		sim.collect()
	}
	if sim.onDemand && e.A/16%3 != 0 && sim.s.endWindow(context.Background()) {
		sim.intervals++
		sim.checkLedgers()
	}
}

var errSimRefuses = errors.New("refused")

func (sim *simulation) collect() {
	sim.shrink()
	md, err := sim.s.scrape(context.Background())
	if err != nil {
		sim.fail("scrape: %w", err)
	}
	sim.intervals++
	sim.checkLedgers()
	if md.ResourceMetrics().Len() == 0 {
		return // nothing could be measured, and the collector sends nothing
	}
	consume := nextConsumer{sim, func(d delivery) { sim.noteRemoved(func() { sim.s.delivered(d) }) }}
	_ = consume.ConsumeMetrics(context.Background(), md)
}

// shrink frees memory between scans, as after a burst of processes. No result may change.
func (sim *simulation) shrink() {
	if l, table := sim.s.ledger, sim.s.node.CPU.Table(); l.Begun() && table.Scans()%3 == 0 {
		l.Claims.Shrink(table)
	}
}

// Capabilities implements consumer.Metrics.
func (*simulation) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

// ConsumeMetrics implements consumer.Metrics.
func (sim *simulation) ConsumeMetrics(_ context.Context, md pmetric.Metrics) error {
	refused := sim.faults.Refused()
	sim.collected++
	sim.receive(md, !refused)
	if refused {
		return errSimRefuses
	}
	sim.balance()
	return nil
}

func (sim *simulation) fail(format string, args ...any) {
	if sim.wrong == nil {
		sim.wrong, sim.rule = fmt.Errorf(format, args...), format
	}
}

// observeRead updates the oracle of a counter with the value that the receiver has read.
func (sim *simulation) observeRead(path string, got []byte, err error) {
	id, ok := strings.CutSuffix(path, "/energy_uj")
	if !ok || err != nil || !strings.HasSuffix(string(got), "\n") {
		return
	}
	raw, err := strconv.ParseUint(strings.TrimSpace(string(got)), 10, 64)
	if err != nil {
		return
	}
	id = filepath.Base(id)
	o := sim.meters[id]
	if o == nil {
		o = &oracle{max: 262_143_328_850}
		sim.meters[id] = o
	}
	o.add(raw, sim.life.Host.Now())
}

// checkLedgers checks that the parts add up to the whole, to the microjoule.
func (sim *simulation) checkLedgers() {
	if l := sim.s.ledger; l != nil {
		ledger := l.Engine.Ledger()
		sim.observeDerived()
		var zones [attribution.MaxKinds]units.Energy
		for i := range ledger.Zones {
			z := &ledger.Zones[i]
			id := l.Claims.Zones()[i].ID
			if z.Present {
				base, ok := sim.bases[i]
				if !ok {
					base = units.Energy(sim.meters[id].total) - z.Energy
					if z.Energy != 0 {
						sim.fail("zone %s begins with %d µJ", id, z.Energy)
					}
					sim.bases[i] = base
				}
				// The next scan observes what a failed scan has read.
				observed := l.Claims.Last().ReadAt.Equal(sim.life.Host.Now())
				if observed && z.Energy+base != units.Energy(sim.meters[id].total) {
					sim.fail("zone %s has %d µJ, its meter counted %d", id, z.Energy, units.Energy(sim.meters[id].total)-base)
				}
			}
			if kind := slices.Index(l.Kinds, power.Class{Zone: l.Claims.Zones()[i].Kind, Method: l.Claims.Zones()[i].Method}); kind >= 0 {
				zones[kind] += z.Energy
			}
		}
		var processes, containers, pods [attribution.MaxKinds]units.Energy
		processes = sim.delivered
		byPod := map[string]units.Energy{}
		for a := range ledger.Accounts {
			for kind := range attribution.MaxKinds {
				energy := a.Amounts(kind).Energy
				switch a.Entity {
				case identity.ProcessEntity, identity.ProgramEntity:
					processes[kind] += energy
				case identity.ContainerEntity:
					containers[kind] += energy
					byPod[a.Owner.Pod.UID] += energy
				case identity.PodEntity:
					pods[kind] += energy
				}
			}
		}
		for kind := range l.Kinds {
			k := &ledger.Kinds[kind]
			if got := k.Active + k.Idle + ledger.Deferred(kind); got != zones[kind] {
				sim.fail("%s: active, idle and waiting are %d µJ, the zones %d", l.Kinds[kind], got, zones[kind])
			}
			if got := processes[kind] + k.Unattributed; got != k.Active {
				sim.fail("%s: processes and unattributed are %d µJ, active %d", l.Kinds[kind], got, k.Active)
			}
			if k.Unattributed > k.Active {
				sim.fail("%s: unattributed %d of %d µJ", l.Kinds[kind], k.Unattributed, k.Active)
			}
		}
	}
	sim.checkInterval()
	if sim.s.ledger.Begun() {
		sim.checkCards()
	}
}

// checkInterval checks that in the last interval no process was given more time than it used.
func (sim *simulation) checkInterval() {
	l := sim.s.ledger
	if l == nil || !l.Claims.Last().ReadAt.Equal(sim.life.Host.Now()) {
		return // nothing was observed
	}
	iv := l.Claims.Interval()
	node := &iv.Domains[0]
	if node.Busy > node.Total {
		sim.fail("busy %v of %v", time.Duration(node.Busy), time.Duration(node.Total))
	}
	if iv.Elapsed < 0 {
		sim.fail("elapsed %v", iv.Elapsed)
	}
	for _, c := range node.Claims {
		sim.claimed += c.CPU
	}
	if sim.byBPF() {
		sim.untraced += sim.s.node.CPU.Table().Unseen.Untraced
	}
	sim.checkDomains(iv)
	if *simSeed != 0 && testing.Verbose() {
		fmt.Printf("%v: busy %v of %v, unattributed %v, claims %+v, ran %v\n", sim.life.Now(), time.Duration(node.Busy), time.Duration(node.Total),
			time.Duration(node.Unattributed), node.Claims, sim.life.Ran()-sim.ran)
	}
	used := maps.Clone(sim.deliveredCPU)
	for a := range l.Engine.Ledger().Accounts {
		if a.Entity == identity.ProcessEntity && !a.Other {
			used[processOf(a)] += a.CPU
		}
	}
	if fired := sim.faults.Fired; fired[syscall.ENOENT.Error()]+fired[syscall.ESRCH.Error()] > 0 && sim.rounding() > 0 {
		return // procfs had to count it as ended, so it may have been given the time of others
	}
	for p, cpu := range used {
		t := sim.life.Find(int(p.pid))
		if t == nil || p.started != t.Born/hostsim.Tick {
			continue // its end is inferred by procfs, and late with BPF
		}
		if cpu > units.CPUTime(t.Used+sim.rounding()) {
			sim.fail("process %d has %v of CPU time, it used %v", t.PID, time.Duration(cpu), t.Used)
		}
	}
}

// checkDomains checks that the packages' claims add up to the node's.
func (sim *simulation) checkDomains(iv *attribution.Interval) {
	topology := sim.s.node.CPU.Topology()
	if topology == nil {
		return
	}
	packages := iv.Domains[1 : 1+len(topology.Domains())]
	total := func(usages ...attribution.Usage) map[attribution.Claimant]attribution.Claim {
		claims := map[attribution.Claimant]attribution.Claim{}
		for _, u := range usages {
			for _, c := range u.Claims {
				all := claims[c.Claimant]
				all.CPU += c.CPU
				for i, weight := range c.Weights {
					all.Weights[i] += weight
				}
				claims[c.Claimant] = all
			}
		}
		return claims
	}
	if node, divided := total(iv.Domains[0]), total(packages...); !maps.Equal(node, divided) {
		sim.fail("the node's claims are %v, and those of all packages %v", node, divided)
	}
	var unattributed units.CPUTime
	for i := range packages {
		u := &packages[i]
		if unattributed += u.Unattributed; u.Busy > u.Total {
			sim.fail("package %d is busy for %v of %v", i, time.Duration(u.Busy), time.Duration(u.Total))
		}
	}
	if all := iv.Domains[0].Unattributed; unattributed != all {
		sim.fail("of %v unattributed the packages have %v", time.Duration(all), time.Duration(unattributed))
	}
}

type simProcess struct {
	pid     int32
	started time.Duration // in ticks
}

func processOf(a *attribution.Account) simProcess {
	return simProcess{a.Owner.Process.PID, a.Owner.Process.Start / hostsim.Tick}
}

// rounding returns how much more a process may seem to have used than it did: user and system time are counted in
// ticks.
func (sim *simulation) rounding() time.Duration {
	if sim.byBPF() {
		return 0
	}
	return 2 * hostsim.Tick
}

// byBPF reports whether procfs has not replaced BPF.
func (sim *simulation) byBPF() bool { return sim.s.node.CPU.Exact() }

// checkClaims compares all claims with the CPU time of all tasks.
func (sim *simulation) checkClaims() {
	ran, fired := units.CPUTime(sim.life.Ran()-sim.ran), sim.faults.Fired
	most := ran + units.CPUTime(len(sim.life.Programs))*units.CPUTime(sim.rounding())
	// If procfs does not show the cgroup of a process, or that the process still runs, its time may
	// also be inferred, and time of unscanned intervals may be counted twice: from its parent's
	// child time, and from its cgroup's counter.
	if blind := !sim.byBPF() && fired["reads that fail"]+fired["short read"] > 0; sim.claimed > most && !blind {
		sim.fail("%v were claimed, and %v ran", time.Duration(sim.claimed), time.Duration(ran))
	}
	// The time of process exits that were missed, or reported after the wait for them has ended, is
	// unclaimed, and BPF reports it as such.
	if sim.byBPF() && sim.claimed+sim.untraced < ran {
		sim.fail("of %v that ran, %v were claimed, and at most %v untraced",
			time.Duration(ran), time.Duration(sim.claimed), time.Duration(sim.untraced))
	}
}

// noteRemoved calls accepted and keeps the CPU time of the accounts that it removes.
func (sim *simulation) noteRemoved(accepted func()) {
	l := sim.s.ledger
	before := map[*attribution.Account]attribution.Account{}
	if l != nil {
		for a := range l.Engine.Ledger().Accounts {
			if a.Entity.OfProcesses() && a.Ended() {
				before[a] = *a
			}
		}
	}
	accepted()
	if l == nil {
		return
	}
	for a := range l.Engine.Ledger().Accounts {
		delete(before, a)
	}
	for _, a := range before {
		if a.Entity == identity.ProcessEntity {
			sim.deliveredCPU[processOf(&a)] += a.CPU
		}
		for kind := range attribution.MaxKinds {
			energy := a.Amounts(kind).Energy
			sim.delivered[kind] += energy
		}
	}
}

var workloadMetrics = map[string]bool{
	"process.energy": true, "container.energy": true, "k8s.pod.energy": true, "vm.energy": true, "system.energy": true,
	"system.unattributed.energy": true, "hw.energy": true, "hw.host.energy": true,
}

// receive compares a collection with the earlier ones.
func (sim *simulation) receive(md pmetric.Metrics, accepted bool) {
	if err := emittest.Duplicate(md); err != nil {
		sim.fail("one series, one point: %w", err)
	}
	sim.takenBefore = sim.latest
	watts := map[string]float64{}
	for _, rm := range md.ResourceMetrics().All() {
		created := sim.checkExists(rm.Resource().Attributes())
		var resource strings.Builder
		for k, v := range rm.Resource().Attributes().All() {
			resource.WriteString(k + "=" + v.AsString() + ",")
		}
		if accepted {
			sim.lastIn[resource.String()] = sim.collected
		}
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if strings.HasSuffix(m.Name(), ".power") {
				sim.readPower(m, resource.String(), accepted, watts)
			}
			if !workloadMetrics[m.Name()] {
				continue
			}
			for i, p := range m.Sum().DataPoints().All() {
				if emittest.IsZeroPoint(m.Sum().DataPoints(), i) {
					sim.readZero(m.Name(), resource.String(), p)
					continue
				}
				sim.readPoint(m.Name(), resource.String(), p, accepted)
				sim.checkStart(m.Name(), p.StartTimestamp().AsTime(), created)
			}
		}
	}
	for zone, sum := range watts {
		if sum > 1e-6 {
			sim.fail("%s: processes have %v W more than the node", zone, sum)
		}
	}
	if !accepted {
		return
	}
	for series, resource := range sim.gauges {
		if sim.lastIn[resource] < sim.collected {
			sim.fail("the end of %s was not sent", series)
		}
	}
	for _, s := range sim.seen {
		if s.in < sim.collected && s.sent && s.in >= 0 && !strings.HasPrefix(s.metric, "hw.") && !sim.absent(s.zone) {
			// The resource is gone, so its values are final.
			sim.sums[s.metric+s.zone] += s.delivered
			s.in = -1
			s.value, s.delivered = 0, 0
		}
	}
}

// absent reports whether all zones of a kind are gone, as the slow meter's may be: their series
// continue once they are back. The zone is as in seenSeries.
func (sim *simulation) absent(zone string) bool {
	fields := strings.Fields(zone)
	if len(fields) == 0 {
		return false
	}
	l, kind := sim.s.ledger, power.Kind(fields[0])
	i := slices.Index(l.Kinds, power.Class{Zone: kind, Method: power.Measured})
	return (kind == power.Platform || kind == power.Other || kind == power.GPU) && l.Engine.Ledger().Kinds[i].Ended()
}

// forget forgets the series whose end was acknowledged. They may come back.
func (sim *simulation) forget() {
	sim.faults.Forget()
	clear(sim.deliveredCPU)
	clear(sim.taken)
	maps.DeleteFunc(sim.seen, func(_ string, s *seenSeries) bool { return s.in == -1 })
	maps.DeleteFunc(sim.lastIn, func(_ string, in int) bool { return in < sim.collected })
}

// readPower keeps the power series that the consumer has. It adds the power of processes and subtracts the node's, by
// zone and state.
func (sim *simulation) readPower(m pmetric.Metric, resource string, accepted bool, watts map[string]float64) {
	for _, p := range m.Gauge().DataPoints().All() {
		series, zone, idle := m.Name()+" "+resource, "", false
		for k, v := range p.Attributes().All() {
			series += k + "=" + v.AsString() + ","
			switch k {
			case "energy.zone":
				zone = v.AsString()
			case "energy.state":
				idle = v.AsString() == "idle"
			}
		}
		switch ended := p.Flags().NoRecordedValue(); {
		case accepted && ended:
			delete(sim.gauges, series)
		case accepted:
			sim.gauges[series] = resource
		}
		if idle {
			zone += ", idle"
		}
		switch m.Name() {
		case "process.power":
			watts[zone] += p.DoubleValue()
		case "system.power":
			watts[zone] -= p.DoubleValue()
		}
	}
}

// readZero checks that the zero point of a series is later than all that the consumer has of series
// with its attributes.
func (sim *simulation) readZero(metric, resource string, p pmetric.NumberDataPoint) {
	identity, _ := identify(metric, resource, p)
	if taken, at := sim.taken[identity], p.Timestamp(); at <= taken {
		sim.fail("%s: a zero point of %v, and the consumer has one of %v", identity, at.AsTime(), taken.AsTime())
	}
	sim.zeros[identity+p.StartTimestamp().String()] = true
}

// identify returns what distinguishes the series of a point, but for its start, and its zone and state.
func identify(metric, resource string, p pmetric.NumberDataPoint) (identity, zone string) {
	identity = metric + " " + resource
	for k, v := range p.Attributes().All() {
		identity += k + "=" + v.AsString() + ","
		if k == "energy.zone" || k == "energy.state" {
			zone += " " + v.AsString()
		}
	}
	return identity, zone
}

// checkZero checks that the first value of a series that the consumer takes follows a zero point, if there is a
// millisecond for it since its zone began.
func (sim *simulation) checkZero(s *seenSeries, key string, value int64) {
	if fits := sim.passed > time.Millisecond && s.at/1e6 > max(s.start, sim.takenBefore)/1e6+1; fits && !s.taken && !sim.zeros[key] && value > 0 {
		sim.fail("%s begins with %d µJ and no zero point", s.identity, value)
	}
	s.taken, sim.taken[s.identity], sim.latest = true, s.at, max(sim.latest, s.at)
	delete(sim.zeros, key)
}

func (sim *simulation) readPoint(metric, resource string, p pmetric.NumberDataPoint, accepted bool) {
	identity, zone := identify(metric, resource, p)
	value := int64(math.Round(p.DoubleValue() * 1e6))
	start, at := p.StartTimestamp(), p.Timestamp()
	switch {
	case start > at:
		sim.fail("%s starts %v after %v", identity, start.AsTime(), at.AsTime())
	case p.DoubleValue() < 0 || math.IsNaN(p.DoubleValue()):
		sim.fail("%s is %v", identity, p.DoubleValue())
	}
	key := identity + start.String()
	s := sim.seen[key]
	if s == nil {
		s = &seenSeries{metric: metric, identity: identity, zone: zone, start: start}
		sim.seen[key] = s
	}
	switch {
	case s.in == -1:
		sim.fail("%s is back after its end was acknowledged", identity)
	case value < s.value:
		sim.fail("%s went from %d µJ to %d", identity, s.value, value)
	case at < s.at || at == s.at && value != s.value:
		sim.fail("%s: a point of %v after one of %v", identity, at.AsTime(), s.at.AsTime())
	}
	s.at, s.in = at, sim.collected
	s.value = value
	if s.sent = accepted; accepted {
		s.delivered = value
		sim.checkZero(s, key, value)
	}
}

var byProcess = regexp.MustCompile(`^(worker-\d+|sh|qemu-system-x86(_64)?)-\d+-\d+$`)

// checkStart rejects series that start too early: before the process was created or anything was measured, as far as
// the wall clock is right.
func (sim *simulation) checkStart(metric string, start, created time.Time) {
	if sim.faults.Fired["clock step"]+sim.faults.Fired["suspend"] > 0 {
		return
	}
	if start.Before(sim.baseline) || start.Add(hostsim.Tick).Before(created) {
		sim.fail("%s starts %v, before %v or %v", metric, start, sim.baseline, created)
	}
}

// checkExists rejects resources that never existed. It returns the creation time of a process.
func (sim *simulation) checkExists(attributes pcommon.Map) time.Time {
	has := func(name string, known map[string]bool) {
		if v, ok := attributes.Get(name); ok && !known[v.Str()] {
			sim.fail("there never was a %s %s", name, v.Str())
		}
	}
	has("container.id", sim.life.Containers)
	has("k8s.pod.uid", sim.life.Pods)
	// A virtual machine whose arguments were truncated is identified by its process, and one that was moved into a
	// container by either from there.
	if v, ok := attributes.Get("vm.id"); ok {
		container, id, inside := strings.Cut(v.Str(), "/")
		if !inside {
			id = container
		}
		if inside && !sim.life.Containers[container] || !sim.life.VMs[id] && !byProcess.MatchString(id) {
			sim.fail("there never was a vm.id %s", v.Str())
		}
	}
	pid, ok := attributes.Get("process.pid")
	if !ok {
		return time.Time{}
	}
	name, _ := attributes.Get("process.executable.name")
	created, _ := attributes.Get("process.creation.time")
	at, err := time.Parse(time.RFC3339Nano, created.Str())
	if err != nil {
		sim.fail("process.creation.time %q: %w", created.Str(), err)
	}
	p := hostsim.Program{PID: int(pid.Int()), Start: int64(at.Sub(sim.life.Host.Booted) / hostsim.Tick), Name: name.Str()}
	if !sim.life.Programs[p] && !sim.trusted {
		sim.fail("there never was a process %+v", p)
	}
	return at
}

// balance checks that the consumer's energy of all processes adds up to the node's.
func (sim *simulation) balance() {
	have := maps.Clone(sim.sums)
	for _, s := range sim.seen {
		have[s.metric+s.zone] += s.delivered
	}
	for _, kind := range sim.s.cfg.Zones {
		zone := " " + string(kind)
		for _, state := range []string{" active", " idle"} {
			processes, unattributed := have["process.energy"+zone+state], have["system.unattributed.energy"+zone+state]
			if sim.s.node.Rules.Idle == config.IdleNone {
				if state == " idle" {
					continue // unattributed
				}
				processes, unattributed = have["process.energy"+zone], have["system.unattributed.energy"+zone]
			}
			if node := have["system.energy"+zone+state]; processes+unattributed != node {
				sim.fail("%s: the consumer has %d µJ of processes and %d unattributed, and %d%s", kind, processes, unattributed, node, state)
			}
		}
	}
}

// end lets all tasks end and delivers their final values. Nothing may remain afterwards.
func (sim *simulation) end() {
	if sim.wrong != nil {
		return
	}
	sim.faults.Disarm()
	for len(sim.life.Tasks) > 1 {
		t := sim.life.Tasks[len(sim.life.Tasks)-1]
		if !t.Zombie {
			t.Exit()
		}
		t.Reap(false)
	}
	sim.life.Each(func(c *hostsim.Container) { sim.life.RemoveCgroup(c.Cgroup) })
	for range 9 { // a slow meter has news every fourth time
		sim.life.Step(61 * time.Second)
		if err := sim.life.Render(); err != nil {
			sim.fail("render: %w", err)
		}
		sim.collect()
	}
	if !sim.s.ledger.Begun() {
		sim.fail("nothing could be measured without faults")
		return
	}
	sim.checkClaims()
	for a := range sim.s.ledger.Engine.Ledger().Accounts {
		if a.Entity == identity.ProgramEntity || a.Owner.Unit.Name == "init.scope" { // programs fade, and init goes on
			continue
		}
		if pid := a.Owner.Process.PID; !a.Other && pid != 1 {
			sim.fail("an account is left: %+v", *a)
		}
	}
	if _, n := sim.s.ledger.Claims.Held(); n > 0 {
		sim.fail("%d containers are left", n)
	}
}

// kept returns the events of a history that a list like "0-10,15" selects.
func kept(events []hostsim.Event, list string) ([]hostsim.Event, error) {
	if list == "" {
		return events, nil
	}
	if list == "none" {
		return nil, nil
	}
	var out []hostsim.Event
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		i, err := strconv.Atoi(from)
		if err != nil {
			return nil, err
		}
		j, err := strconv.Atoi(to)
		if err != nil || i < 0 || j < i || j >= len(events) {
			return nil, fmt.Errorf("no events %s among %d", part, len(events))
		}
		out = append(out, events[i:j+1]...)
	}
	return out, nil
}

// listed formats indices as kept reads them.
func listed(indices []int) string {
	if len(indices) == 0 {
		return "none"
	}
	var parts []string
	for i := 0; i < len(indices); {
		j := i
		for j+1 < len(indices) && indices[j+1] == indices[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, strconv.Itoa(indices[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", indices[i], indices[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// shrink removes events from a history of n events while it still fails, and returns the indices of the rest.
func shrink(n int, budget time.Duration, fails func(indices []int) bool) []int {
	indices := make([]int, n)
	for i := range indices {
		indices[i] = i
	}
	until := time.Now().Add(budget)
	for size := len(indices) / 2; size > 0; size /= 2 {
		for from := 0; from < len(indices) && time.Now().Before(until); {
			without := slices.Concat(indices[:from], indices[min(from+size, len(indices)):])
			if fails(without) {
				indices = without
			} else {
				from += size
			}
		}
	}
	return indices
}

// selected returns the events with these indices.
func selected(events []hostsim.Event, indices []int) (some []hostsim.Event) {
	for _, i := range indices {
		some = append(some, events[i])
	}
	return some
}

func history(seed uint64, n int) []hostsim.Event {
	w := hostsim.CommonWeights()
	if seed%5 > 0 { // see simulation.faultless
		w = w.AddFaults(1)
	}
	return hostsim.NewHistory(seed, n, w)
}

// TestNothingIsLostWhateverHappens runs random histories with random faults. With -sim.seed it runs one.
func TestNothingIsLostWhateverHappens(t *testing.T) {
	if *simSeed != 0 {
		events, err := kept(history(*simSeed, *simN), *simKeep)
		require.NoError(t, err)
		_, err = simulate(t, *simSeed, events)
		require.NoError(t, err)
		return
	}
	descriptors := openFiles(t)
	fired, n := simulateMany(t, *simRuns, *simN)
	assert.LessOrEqual(t, openFiles(t), descriptors, "descriptors are left open")
	t.Logf("%d intervals, %d accounts of processes with energy of a GPU", n, fired[chargedOfCards])
	if *simRuns >= someHistories {
		assert.Positive(t, fired[chargedOfCards])
	}
	for act := hostsim.FirstFault; act.String() != ""; act++ {
		t.Logf("%8d %s", fired[act.String()], act)
		if *simRuns >= manyHistories {
			assert.GreaterOrEqual(t, fired[act.String()], 100, "%s: what never happened proves nothing", act)
		}
	}
	for _, err := range hostsim.Errors {
		t.Logf("%8d %s", fired[err.Error()], err)
		if *simRuns >= manyHistories {
			assert.GreaterOrEqual(t, fired[err.Error()], 100, "%s: what never happened proves nothing", err)
		}
	}
}

const (
	// someHistories are enough for every event to occur once.
	someHistories = 24
	// manyHistories are enough for each fault to occur a hundred times.
	manyHistories = 2000
)

func openFiles(t *testing.T) int {
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(files)
}

// simulateMany runs histories with the seeds from 1 on. It returns the faults that occurred, and the number of
// intervals.
func simulateMany(t *testing.T, histories, events int) (fired map[string]int, intervals int) {
	var mu sync.Mutex
	fired = map[string]int{}
	var next atomic.Uint64
	var failed atomic.Bool
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed := next.Add(1); seed <= uint64(histories) && !failed.Load(); seed = next.Add(1) {
				all := history(seed, events)
				sim, err := simulate(t, seed, all)
				if err != nil {
					failed.Store(true)
					keep := listed(shrink(len(all), 30*time.Second, func(indices []int) bool {
						again, err := simulate(t, seed, selected(all, indices))
						return err != nil && again.rule == sim.rule
					}))
					t.Errorf("seed %d: %v\nTo see it again: go test ./receiver -run %s -v -sim.seed=%d -sim.events=%d -sim.keep=%s",
						seed, err, t.Name(), seed, events, keep)
					return
				}
				mu.Lock()
				for name, count := range sim.faults.Fired {
					fired[name] += count
				}
				fired[chargedOfCards] += sim.charged
				intervals += sim.intervals
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return fired, intervals
}

// TestMemoryIsFlatUnderAThousandBirthsASecond creates and ends a thousand processes a second, in intervals of a second.
// A third of them are seen by a scan, the others live between two scans.
func TestMemoryIsFlatUnderAThousandBirthsASecond(t *testing.T) {
	for _, exact := range []bool{false, true} {
		t.Run(fmt.Sprintf("exact=%t", exact), func(t *testing.T) {
			seed := uint64(1)
			if exact {
				seed = 2
			}
			sim, stop := newSimulation(t, seed)
			defer stop()
			sim.life.MaxTasks = 2000
			sim.life.LimitPIDs(32768)
			born := uint32(0)
			second := func() {
				for range 1000 {
					born++
					act := hostsim.Flicker
					if born%3 == 0 {
						act = hostsim.Fork
					}
					sim.life.Apply(hostsim.Event{Act: act, A: 4 * born, B: 40_000 + born%500})
				}
				for i := 0; len(sim.life.Tasks) > 400 && i < 1000; i++ {
					sim.life.Apply(hostsim.Event{Act: hostsim.Exit, A: born, B: 2})
				}
				sim.life.Step(time.Second)
				require.NoError(t, sim.life.Render())
				sim.collect()
				clear(sim.life.Programs)
				sim.forget()
			}
			sim.trusted = true
			heap := func() uint64 {
				runtime.GC()
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			for range *simSeconds / 2 {
				second()
			}
			before := heap()
			for range *simSeconds / 2 {
				second()
			}
			after := heap()
			require.NoError(t, sim.wrong)
			t.Logf("%d births: %.1f MiB, then %.1f MiB", born, float64(before)/(1<<20), float64(after)/(1<<20))
			assert.Less(t, float64(after), 1.1*float64(before)+1<<18)
		})
	}
}

// simulatedStatic returns the static power models of a seed.
func simulatedStatic(seed uint64, watts map[power.Kind]float64) map[power.Kind]config.StaticPowerConfig {
	if model := config.StaticModelNames[seed%uint64(len(config.StaticModelNames))]; model != config.StaticFixed {
		return allStatic(model)
	}
	return fixedPower(watts)
}

// schedutil is the clock rate that the kernel's default governor requests, relative to the highest, with a minimum of
// 40 % (Documentation/scheduler/schedutil.rst: 1.25 times the utilization).
func schedutil(utilization float64) float64 { return min(max(1.25*utilization, 0.4), 1) }
