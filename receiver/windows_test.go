// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
)

// burst runs ten seconds on two CPUs. One process uses 20 % of a CPU steadily and another a whole CPU for two seconds.
// A busy CPU draws 10 W at its low frequency and 30 W at the high one, which it has while the second process runs. The
// package draws 10 W besides. burst returns the energy of each process.
func burst(t *testing.T, windows bool) (steady, bursting float64) {
	n := newTestNode(t)
	n.host.CPUs = 2
	n.process(10, "steady")
	n.process(20, "burst")
	n.start()
	for second := range 10 {
		used, watts := map[int]int64{10: 20}, uint64(10)
		if second < 2 {
			used[20], watts = 100, 30
		}
		ticks := uint64(used[10] + used[20])
		n.host.Run(time.Second, used)
		n.host.Zones["intel-rapl:0"].Energy += 10*joule + ticks*watts*joule/100
		require.NoError(t, n.host.Render())
		if windows && second < 9 {
			n.s.sample()
		}
	}
	n.scrape()
	assert.InDelta(t, 188, n.sum("system.energy", nil), 1e-6)
	assert.InDelta(t, 18.8, n.sum("system.power", nil), 1e-6, "the average over the collection, not the last window")
	return n.one("process.energy", pid(10)).value, n.one("process.energy", pid(20)).value
}

func TestWindowsDistinguishABurstFromSteadyUse(t *testing.T) {
	steady, bursting := burst(t, false)
	assert.InDelta(t, 18.8, steady, 1e-6)
	assert.InDelta(t, 18.8, bursting, 1e-6, "one window cannot distinguish them")
	t.Attr("one-window", fmt.Sprintf("%.6g, %.6g J", steady, bursting))
	steady, bursting = burst(t, true)
	assert.InDelta(t, 2*4.6+8*1.2, steady, 1e-5)
	assert.InDelta(t, 2*23, bursting, 1e-5)
	t.Attr("burst", fmt.Sprintf("%.6g, %.6g J", steady, bursting))
}

// failingSource is an exact source that fails from some time on.
type failingSource struct {
	*cpu.Procfs
	fail error
}

func (*failingSource) Traits() cpu.Traits {
	return cpu.Traits{Name: "failing", Traits: proc.Traits{Exact: true, ChildTimes: true}}
}
func (f *failingSource) Scan(t *proc.Table, of cpu.Request) error {
	if f.fail != nil {
		return f.fail
	}
	return f.Procfs.Scan(t, of)
}

func TestShortWindowsOnThisMachineConserveEnergy(t *testing.T) {
	cfg := simpleConfig()
	cfg.Meters.Use, cfg.CPUTime = only(), cpu.KindBPF
	cfg.Model = configoptional.Some(linear(40, 120))
	cfg.Series.Processes = byPID(config.ProcessSeriesConfig{})
	cfg.Window = 10 * time.Millisecond
	s := newScraper(t, cfg, machine.Local())
	if err := s.start(t.Context(), componenttest.NewNopHost()); err != nil {
		t.Skipf("no BPF here: %v", err)
	}
	defer func() { require.NoError(t, s.shutdown(t.Context())) }()
	began, found := time.Now(), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.node.CPU.Table().Used(nil) > 0
	}
	for time.Since(began) < 300*time.Millisecond || !found() {
		require.Less(t, time.Since(began), time.Minute, "the sampler sees processes between scrapes")
	}
	_, err := s.scrape(t.Context())
	require.NoError(t, err)
	s.mu.Lock() // the sampler is still running
	defer s.mu.Unlock()
	l := &s.attributor.Ledger.Totals
	modeled := slices.Index(s.attributor.Kinds, power.Class{Zone: power.Package, Method: power.Modeled})
	var processes, own float64
	for a := range l.Accounts {
		if a.Entity.OfProcesses() {
			processes += a.Amounts(modeled).Energy.Joules()
			if int(a.Owner.Process.PID) == os.Getpid() {
				own += a.Amounts(modeled).Energy.Joules()
			}
		}
	}
	k := l.Kinds[modeled]
	assert.InDelta(t, k.Active.Joules(), processes+k.Unattributed.Joules(), 1e-6)
	assert.Greater(t, own, 0.0)
	assert.Greater(t, k.Active.Joules()+k.Idle.Joules(), 0.3*40-1, "the model's idle power over that time, at the least")
}

func TestWindowsAreNoShorterThanTicksAllowOnceProcfsHasTakenOver(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Window = 10 * time.Millisecond })
	n.process(10, "app")
	source := new(failingSource)
	n.reads(&source.Procfs, source)
	n.start()
	source.fail = errRefused
	window := func() time.Time {
		n.host.Run(10*time.Millisecond, map[int]int64{10: 1})
		require.NoError(t, n.host.Render())
		n.s.sample()
		return n.readAt()
	}
	for range 3 {
		window()
	}
	require.True(t, n.isReplaced())
	began := n.readAt()
	for range 99 {
		require.Equal(t, began, window(), "too soon")
	}
	assert.Equal(t, time.Second, window().Sub(began))
}

func TestAProgramThatAnOlderProcessExecutesIsKnownAtTheEndOfTheCollection(t *testing.T) {
	n := newTestNode(t)
	n.host.Processes[10] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/bin/before"}
	n.start()
	n.run(100*joule, map[int]int64{10: 100})
	n.host.Processes[10].Exe = "/bin/after"
	window := func(used map[int]int64) {
		n.host.Run(time.Second, used)
		n.host.Zones["intel-rapl:0"].Energy += joule
		require.NoError(t, n.host.Render())
	}
	for range 2 {
		window(map[int]int64{10: 50})
		n.s.sample()
		window(nil) // it does not run in the last window
		n.scrape()
	}
	n.one("process.energy", pid(10), "process.executable.name=after")
}

// restingNode is a node with a power model and exact CPU times. Its windows of a second are
// extended while it is at rest.
func restingNode(t *testing.T, edit ...func(*Config)) *testNode {
	n := newTestNode(t, append([]func(*Config){modeledHost, func(c *Config) { c.Attribution.Preset = "" }}, edit...)...)
	n.openExact()
	n.host.CPUs = 2
	n.process(10, "first")
	n.process(20, "second")
	n.startsWindows(time.Second)
	n.run(0, nil) // the first collection allows longer windows
	return n
}

// second runs processes for a second and calls end. It returns 1 if the window ended, otherwise 0.
func (n *testNode) second(used map[int]int64, end func()) (windows int) {
	n.host.Run(time.Second, used)
	require.NoError(n.t, n.host.Render())
	before := n.readAt()
	if end(); n.readAt().After(before) {
		return 1
	}
	return 0
}

func TestLongerWindowsAtRestAttributeTheSameEnergy(t *testing.T) {
	rng := rand.New(rand.NewPCG(48, 2))
	longer, usual := restingNode(t), restingNode(t)
	ended, collections := 0, 20
	for range collections {
		for range 9 {
			used := map[int]int64{}
			if rng.IntN(4) == 0 {
				used[10], used[20] = rng.Int64N(100), 3+rng.Int64N(60)
			}
			ended += longer.second(used, longer.s.sample)
			usual.second(used, func() { usual.s.tick(t.Context(), betweenCollections) })
		}
		for _, n := range []*testNode{longer, usual} {
			n.host.Run(time.Second, nil)
			n.scrape()
		}
	}
	assert.Less(t, ended, 9*collections/2)
	for _, of := range []string{"10", "20", "active", "idle", "unattributed"} {
		assert.InDelta(t, usual.energy(of), longer.energy(of), 1e-3, of)
	}
}

func TestWindowsAreNoLongerUnlessTheStaticPowerIsThatOfAModel(t *testing.T) {
	static := func(watts float64) func(*Config) {
		return func(c *Config) {
			c.Attribution.StaticPower = fixedPower(map[power.Kind]float64{power.Package: watts})
		}
	}
	curve := func(idle, next float64) func(*Config) {
		return func(c *Config) {
			c.Model = configoptional.Some(config.ModelConfig{Points: []config.ModelPoint{
				{Utilization: 0, Power: idle}, {Utilization: 0.1, Power: next}, {Utilization: 1, Power: 50},
			}})
		}
	}
	nothing := func(*Config) {}
	for name, c := range map[string]struct {
		edit    func(*Config)
		windows int
	}{
		"default":                   {nothing, 0},
		"fixed, as in the model":    {static(10), 0},
		"fixed, lower":              {static(9), 5},
		"fixed, higher":             {static(11), 5},
		"trained":                   {func(c *Config) { c.Attribution.StaticPower = allStatic(config.StaticTrained) }, 5},
		"lower power at low loads":  {curve(10, 9), 5},
		"higher power at low loads": {curve(10, 20), 0},
	} {
		n, ended := restingNode(t, c.edit), 0
		for range 5 {
			ended += n.second(nil, n.s.sample)
		}
		assert.Equal(t, c.windows, ended, name)
	}
}
