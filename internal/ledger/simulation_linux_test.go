// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package ledger_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/test/allocs"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

var (
	oracleSeed      = flag.Uint64("oracle.seed", 0, "the `seed` of the one history to hold against the oracle, 0 for several")
	oracleHistories = flag.Uint64("oracle.histories", 80, "how many histories to hold against the oracle")
	oracleEvents    = flag.Int("oracle.events", 400, "how many events a history has")
)

// run runs a history, and returns the first error that the oracle found.
func run(tb testing.TB, seed uint64, events []hostsim.Event) (*observer, error) {
	cfg := ledger.Config{}
	switch seed % 4 {
	case 1:
		cfg.Limits[identity.ProcessEntity].MinEnergy = units.Joule
	case 2:
		cfg.Limits[identity.ProcessEntity] = ledger.Limit{MinEnergy: 50 * units.Joule, Max: 6}
	case 3:
		cfg.Limits[identity.ProcessEntity].Max = 9
	}
	if seed%3 == 0 {
		cfg.Limits[identity.ProcessEntity].MinAge = 20 * time.Second
	}
	if seed%5 > 1 {
		cfg.Limits[identity.ContainerEntity] = ledger.Limit{MinEnergy: units.Energy(seed%2) * units.Joule, Max: 2}
		cfg.Limits[identity.PodEntity] = ledger.Limit{MinEnergy: units.Energy(seed/2%2) * units.Joule, Max: 1}
		cfg.Limits[identity.VMEntity].Max = 1
		cfg.Limits[identity.SystemdUnitEntity].Max = 2
	}
	cfg.Processes = ledger.ProcessSeries(seed / 3 % 3)
	if seed%7 > 2 {
		cfg.Limits[identity.ProgramEntity].Max = 3 + int(seed%2)
	}
	var again [attribution.MaxKinds]attribution.StaticPowerModel
	if create := otherModels[seed/8%uint64(len(otherModels))]; create != nil {
		for kind := packages; kind <= drams; kind++ {
			cfg.Rules.Models[kind], again[kind] = create(), create()
		}
	}
	cfg.Rules.Idle = attribution.IdleAllocation(seed / 2 % 5)
	var keys [attribution.MaxKinds]int
	if seed%3 > 0 {
		cfg.Rules.Keys[drams], keys[drams] = attribution.BySecondWeight, memory
	}
	if seed%3 > 1 {
		cfg.Rules.Keys[packages], keys[packages] = attribution.ByFirstWeight, work
	}
	life := newLife(tb)
	life.LimitPIDs(64)
	life.AddPlatform(30)
	n := observe(life, cfg, true)
	n.oracle.models, n.oracle.keys = again, keys
	n.keys = seed%3 > 0
	n.sockets = seed%7 > 2
	n.sizes = true
	if seed/4%2 == 1 { // memory becomes known later than packages
		for _, z := range n.zones {
			if z.kind == drams {
				z.failing = 4
			}
		}
	}
	n.scan(false)
	for i, e := range events {
		n.apply(e)
		if i%8 == 7 {
			n.engine.Shrink() // changes no totals
		}
		if n.wrong != nil {
			return n, fmt.Errorf("event %d (%v): %w", i, e, n.wrong)
		}
	}
	return n, nil
}

// otherModels are static power models, or nil for the utilization rule.
var otherModels = []func() attribution.StaticPowerModel{
	nil,
	func() attribution.StaticPowerModel { return static.Fixed{Power: 20 * units.Joule} },
	func() attribution.StaticPowerModel { return static.NewMinimum() },
	func() attribution.StaticPowerModel { return static.NewResting(0.5) },
	nil,
	func() attribution.StaticPowerModel { return static.NewBase(0.5, time.Minute) },
	func() attribution.StaticPowerModel { return static.NewRegression(1, 1) },
	func() attribution.StaticPowerModel { return static.NewCurve() },
}

// steps are the lengths of intervals. No time passes in the first one.
var steps = [...]time.Duration{
	0, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, 10 * time.Second, time.Minute,
}

// apply applies an event. Here, faults of reads are their effects on an interval.
func (n *observer) apply(e hostsim.Event) {
	zone := n.zones[e.A%uint32(len(n.zones))]
	switch e.Act {
	case hostsim.Advance:
		n.advance(e)
	case hostsim.ReadFails:
		zone.failing = 1 + int(e.B%6)
		if e.B>>8%8 == 0 {
			zone.failing *= 20
		}
		n.did["zone cannot be read"]++
	case hostsim.ReadTorn:
		zone.late = 1 + int(e.B%3)
		n.did["zone is read too late"]++
		if e.B>>8%4 == 0 {
			zone.kind = []int{packages, drams, attribution.NotAttributed}[e.B>>12%3]
			n.did["zone is of another kind"]++
		}
		if e.B>>8%4 == 1 {
			zone.domain = int(e.B >> 12 % 3)
			n.did["zone is of another domain"]++
		}
	case hostsim.ReadShort:
		if e.B>>8%2 == 0 {
			n.stopped = 1 + int(e.B%3)
			n.did["no CPU time"]++
		} else {
			n.socketStopped[e.A%2] = 1 + int(e.B%3)
			n.did["no CPU time of a socket"]++
		}
	case hostsim.ListFails:
		n.unlisted = 1 + int(e.B%2)
		n.did["no tasks"]++
	case hostsim.ExitMidScan:
		if len(n.tasks) > 0 {
			o := &n.tasks[int(e.A)%len(n.tasks)]
			o.unnamed = !o.unnamed
			n.did["unattributed"]++
		}
	case hostsim.ClockStep, hostsim.ExitsLate, hostsim.ExitsLost, hostsim.HidePID:
	default:
		if e.Act >= hostsim.FirstFault {
			n.faults.Apply(e)
		} else {
			n.life.Apply(e)
		}
	}
}

func (n *observer) advance(e hostsim.Event) {
	n.life.Step(steps[e.A%uint32(len(steps))])
	n.did["interval"]++
	endsLate := e.B%4 == 0
	n.interval.EndsCollection = e.B/4%3 > 0
	n.scan(endsLate)
	if !n.interval.EndsCollection {
		n.close()
		return
	}
	refused := n.faults.Refused()
	n.collect(!refused, n.close)
}

func historyOf(seed uint64, events int) []hostsim.Event {
	w := hostsim.CommonWeights()
	w[hostsim.Advance] = 60
	return hostsim.NewHistory(seed, events, w.AddFaults(1))
}

// shrink removes events as long as the rest still fails.
func shrink(tb testing.TB, seed uint64, events []hostsim.Event) []hostsim.Event {
	for size := len(events) / 2; size > 0; size /= 2 {
		for from := 0; from+size <= len(events); {
			without := slices.Concat(events[:from], events[from+size:])
			if _, err := run(tb, seed, without); err != nil {
				events = without
			} else {
				from += size
			}
		}
	}
	return events
}

// TestEngineAgreesWithTheOracleWhateverHappens runs random histories with faults of a machine, and
// compares every account of every interval with the oracle's. With -oracle.seed it runs one.
func TestEngineAgreesWithTheOracleWhateverHappens(t *testing.T) {
	first, last := uint64(1), *oracleHistories
	if *oracleSeed != 0 {
		first, last = *oracleSeed, *oracleSeed
	}
	did := map[string]int{}
	for seed := first; seed <= last; seed++ {
		events := historyOf(seed, *oracleEvents)
		n, err := run(t, seed, events)
		if err != nil {
			few := shrink(t, seed, events)
			_, shortest := run(t, seed, few)
			var list strings.Builder
			for _, e := range few {
				fmt.Fprintf(&list, "\n\t%v %d %d", e.Act, e.A, e.B)
			}
			t.Fatalf("seed %d, %v\nTo see it again: go test ./internal/ledger -run %s -oracle.seed=%d -oracle.events=%d\n"+
				"%d events suffice, then: %v%s", seed, err, t.Name(), seed, *oracleEvents, len(few), shortest, &list)
		}
		for name, count := range n.did {
			did[name] += count
		}
		for name, count := range n.faults.Fired {
			did[name] += count
		}
	}
	for _, name := range slices.Sorted(maps.Keys(did)) {
		t.Logf("%8d %s", did[name], name)
	}
	if *oracleSeed != 0 {
		return
	}
	for _, name := range []string{
		"interval", "short-lived", "stand-in", "unattributed", "zone cannot be read", "zone is read too late", "no CPU time", "no CPU time of a socket", "zone is of another kind", "zone is of another domain", "no tasks",
		hostsim.ZoneVanishes.String(), hostsim.ZoneReturns.String(), hostsim.Refuse.String(), hostsim.Suspend.String(),
		hostsim.CPUOffline.String(), hostsim.ZoneWrapsTwice.String(), hostsim.ZoneResets.String(),
	} {
		assert.NotZero(t, did[name], "nothing was tested with: %s", name)
	}
}

func FuzzEngineAgreesWithTheOracle(f *testing.F) {
	f.Add(uint64(1))
	f.Add(uint64(2))
	f.Fuzz(func(t *testing.T, seed uint64) {
		_, err := run(t, seed, historyOf(seed, 150))
		require.NoError(t, err)
	})
}

// Without faults, the accounts add up to the machine's energy.
func TestAccountsContainTheEnergyTheMachineUsed(t *testing.T) {
	for seed := range uint64(8) {
		life := newLife(t)
		n := observe(life, ledger.Config{}, true)
		n.scan(false)
		for _, e := range hostsim.NewHistory(seed, 300, hostsim.CommonWeights()) {
			n.apply(e)
			require.NoError(t, n.wrong)
		}
		life.Step(time.Second)
		n.scan(false)
		require.NoError(t, n.wrong)

		var used [2]float64
		for _, s := range life.Sockets {
			used[packages] += s.Energy.Package
			used[drams] += s.Energy.DRAM
		}
		for kind := range used {
			k := n.engine.Ledger().Kinds[kind]
			counters := len(life.Sockets)
			assert.InDelta(t, used[kind], float64(k.Active+k.Idle), float64(counters), "each shows whole microjoules, seed %d", seed)
			assert.NotZero(t, k.Active, "seed %d", seed)
		}
		busy, _ := life.CPUTimes()
		assert.EqualValues(t, busy, n.claimed, "CPU time, seed %d", seed)
	}
}

// crowdRules are rules to attribute a crowd by, the default first.
func crowdRules() map[string]attribution.Rules {
	rules := map[string]attribution.Rules{"default": {}}
	for name, create := range map[string]func() *static.Model{
		"minimum":    static.NewMinimum,
		"resting":    func() *static.Model { return static.NewResting(0.1) },
		"base":       func() *static.Model { return static.NewBase(0.1, time.Minute) },
		"regression": func() *static.Model { return static.NewRegression(3, 5) },
		"trained":    static.NewCurve,
	} {
		rules[name] = attribution.Rules{
			Models: [attribution.MaxKinds]attribution.StaticPowerModel{packages: create(), drams: create()},
		}
	}
	for idle, name := range map[attribution.IdleAllocation]string{
		attribution.IdleEqual: "equal", attribution.IdleEqualContainers: "equal containers",
		attribution.IdleRequested: "requested", attribution.IdleUsed: "used",
	} {
		rules[name] = attribution.Rules{Idle: idle}
	}
	rules["work and memory"] = attribution.Rules{
		Keys: [attribution.MaxKinds]attribution.Weight{packages: attribution.ByFirstWeight, drams: attribution.BySecondWeight},
	}
	return rules
}

// crowd is a machine of 100 processes in 20 containers, some of which run.
func crowd(tb testing.TB, running int, rules attribution.Rules) *observer {
	life := newLife(tb)
	for i := range 99 {
		t := life.Init().Spawn()
		t.Exec(fmt.Sprintf("/bin/%d", i))
		t.Socket = i % 2
		t.Move(fmt.Sprintf("/kubepods/burstable/pod00000000-0000-4000-9000-%012x/%064x", i%5, i%20))
		if i*running/100 != (i+1)*running/100 {
			t.Demand = 0.01 + float64(i)/1000
		}
	}
	n := observe(life, ledger.Config{Rules: rules}, false)
	n.sizes, n.keys = true, rules.Keys[packages] != attribution.ByCPUTime
	n.scan(false)
	return n
}

// step simulates and observes one interval.
func (n *observer) step() {
	n.life.Step(100 * time.Millisecond)
	n.interval.EndsCollection = true
	n.scan(false)
	n.engine.Emitted()
	n.engine.Outcome(ledger.Acknowledged)
}

func TestTheSimulationAndTheEngineAllocateNothingInTheSteadyState(t *testing.T) {
	for name, rules := range crowdRules() {
		for _, running := range []int{33, 100} {
			n := crowd(t, running, rules)
			for range 20 {
				n.step()
			}
			assert.Zero(t, allocs.Count(1000, n.step), "%d of 100 run, %s", running, name)
			if !n.keys { // otherwise sleeping processes claim as well
				assert.InDelta(t, running, len(n.interval.Domains[0].Claims), 1)
			}
		}
	}
}

// BenchmarkEngineInterval measures an interval of 100 processes, two kinds and four zones, with the
// machine's own step.
func BenchmarkEngineInterval(b *testing.B) {
	for name, rules := range crowdRules() {
		for _, running := range []int{33, 100} {
			b.Run(fmt.Sprint(running, " of 100 run, ", name), func(b *testing.B) {
				n := crowd(b, running, rules)
				b.ReportAllocs()
				for b.Loop() {
					n.step()
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "intervals/s")
			})
		}
	}
}
