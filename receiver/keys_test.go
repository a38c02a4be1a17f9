// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/filter"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
	"github.com/energyreceiver/energyreceiver/internal/window"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// keyedNode is the shared node with processes on CPUs of 3, 1 and 1 GHz that have resident memory.
func keyedNode(t *testing.T, edit func(*config.AttributionConfig)) *testNode {
	n := sharedNode(t, edit)
	n.host.Clocks = map[int]int64{0: 3_000_000, 1: 1_000_000, 2: 1_000_000}
	n.openClocks()
	for i, pid := range []int{10, 20, 30, 40} {
		n.host.Processes[pid].LastCPU = i
		n.host.Processes[pid].Resident = int64(100 * (i + 1))
	}
	return n
}

// openClocks makes the clock rates of the simulated host measurable.
func (n *testNode) openClocks() {
	n.machine.OpenWeigher = openClocks(n.host)
}

// openClocks returns a function that opens weighers, also of the clock rates of a simulated host.
func openClocks(h *hostsim.Host) func(window.Key, *window.KeyOptions) (window.Weigher, error) {
	return func(key window.Key, o *window.KeyOptions) (window.Weigher, error) {
		if key != window.KeyFrequency {
			return window.OpenWeigher(key, o)
		}
		return weigh.SimulatedClock(func() map[int]int64 { return h.Clocks }, o.FrequencyExponent)
	}
}

// 600 J in 10 s, of which 240 J are active: A and B run for 1 s, c for 2 s, etcd sleeps.
func TestActiveEnergyIsSharedByEachKey(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(*config.AttributionConfig)
		want   figures
		logged []string
	}{
		"CPU time":        {edit: func(*config.AttributionConfig) {}, want: figures{60, 60, 120, 0, 240}},
		"frequency":       {edit: func(a *config.AttributionConfig) { a.Weight = allWeight(config.WeightFrequency) }, want: figures{120, 40, 80, 0, 240}},
		"frequency²":      {edit: func(a *config.AttributionConfig) { a.Weight = allWeight(config.WeightFrequencySquared) }, want: figures{180, 20, 40, 0, 240}},
		"memory":          {edit: func(a *config.AttributionConfig) { a.Weight = allWeight(config.WeightMemory) }, want: figures{24, 48, 72, 96, 240}},
		"memory_cpu_time": {edit: func(a *config.AttributionConfig) { a.Weight = allWeight(config.WeightMemoryCPUTime) }, want: figures{240. / 9, 480. / 9, 1440. / 9, 0, 240}},
		"of its zone alone": {
			edit: func(a *config.AttributionConfig) {
				a.Weight = map[power.Kind]config.Weight{config.AllZones: config.WeightMemory, power.Package: config.WeightCPUTime}
			},
			want: figures{60, 60, 120, 0, 240},
		},
	} {
		n := keyedNode(t, c.edit)
		n.host.Cgroups["/system.slice/docker-"+idA+".scope"] = 0
		n.start()
		n.run(600*joule, map[int]int64{10: 100, 20: 100, 30: 200})
		requireFigures(t, c.want, n.figures("active"), name)
		assert.Equal(t, c.logged, n.logged(), name)

		before := n.figures("active")
		n.run(600*joule, map[int]int64{10: 100, 20: 100, 30: 200})
		requireFigures(t, c.want, n.figures("active").less(before), name)
	}
}

// fakeWeigher is a weigher that counts calls of Forget.
type fakeWeigher struct {
	forgotten int
}

func (*fakeWeigher) Weigh(time.Time, []*weigh.Share) (bool, error) { return false, nil }
func (m *fakeWeigher) Forget()                                     { m.forgotten++ }
func (*fakeWeigher) Name() string                                  { return "made up" }
func (*fakeWeigher) Close() error                                  { return nil }

// When the CPU time source is replaced, counts since the last scan are dropped.
func TestWorkFromBeforeTheBaselineIsDiscarded(t *testing.T) {
	n := keyedNode(t, func(a *config.AttributionConfig) { a.Weight = allWeight(config.WeightCycles) })
	m := &fakeWeigher{}
	n.machine.OpenWeigher = func(window.Key, *window.KeyOptions) (window.Weigher, error) { return m, nil }
	source := new(failingSource)
	n.reads(&source.Procfs, source)
	n.start()
	assert.Equal(t, 1, m.forgotten)
	n.run(600*joule, map[int]int64{10: 100})
	assert.Equal(t, 1, m.forgotten)
	n.replaceSource(source)
	assert.Equal(t, 2, m.forgotten)
}

// A zombie's memory is freed. Its last known memory counts until the source reports its end.
func TestAZombieHoldsNoMemory(t *testing.T) {
	n := keyedNode(t, func(a *config.AttributionConfig) { a.Weight = allWeight(config.WeightMemory) })
	n.start()
	n.host.Processes[40].State = 'Z'
	n.run(600*joule, map[int]int64{10: 100, 20: 100, 30: 200})
	requireFigures(t, figures{40, 80, 120, 0, 240}, n.figures("active"))
}

// As seen from a cgroup namespace whose position in the host's tree cannot be found.
func TestInvisibleCgroupsAreReportedOnlyIfAKeyNeedsThem(t *testing.T) {
	exact := (*testNode).openExact
	for name, c := range map[string]struct {
		edit   func(*config.AttributionConfig)
		with   func(*testNode)
		logged []string
	}{
		"counters of short-lived processes": {logged: []string{"Degraded containers' cgroups"}},
		"not with an exact source":          {with: exact},
		"requests":                          {func(a *config.AttributionConfig) { a.Idle = config.IdleRequested }, exact, []string{"Degraded containers' cgroups"}},
		"hardware events": {
			func(a *config.AttributionConfig) { a.Weight = allWeight(config.WeightCycles) }, exact, []string{"Degraded weight cycles"},
		},
		"excluded": {
			func(a *config.AttributionConfig) { a.Exclude.Cgroup = []filter.Config{{Strict: "/x"}} }, exact,
			[]string{"Degraded containers' cgroups"},
		},
		"not where others are excluded": {
			edit: func(a *config.AttributionConfig) { a.Exclude.ExecutableName = []filter.Config{{Strict: "x"}} }, with: exact,
		},
	} {
		n := sharedNode(t, func(a *config.AttributionConfig) {
			if c.edit != nil {
				c.edit(a)
			}
		})
		n.host.Processes[10].Cgroup = "0::/../docker-" + idA + ".scope"
		if c.with != nil {
			c.with(n)
		}
		n.start()
		for range 3 {
			n.run(600*joule, map[int]int64{10: 100})
		}
		assert.ElementsMatch(t, c.logged, n.logged(), name)
	}
}

// It held its memory for 4 of 10 s.
func TestMemoryCountsForAsLongAsItIsHeld(t *testing.T) {
	n := keyedNode(t, func(a *config.AttributionConfig) { a.Weight = allWeight(config.WeightMemory) })
	born := n.host.Processes[30]
	delete(n.host.Processes, 30)
	n.host.Processes[40].Resident = 0
	n.start()
	born.Start = int64((n.host.Uptime + 6*time.Second) / (10 * time.Millisecond))
	n.host.Processes[30] = born
	n.run(600*joule, map[int]int64{10: 100, 20: 100, 30: 200})
	requireFigures(t, figures{240. * 100 / 420, 240. * 200 / 420, 240. * 120 / 420, 0, 240}, n.figures("active"))
}

func TestAnUnavailableKeyFallsBackToCPUTimeAndOneLineIsLogged(t *testing.T) {
	for _, key := range []config.Weight{config.WeightFrequency, config.WeightCycles, config.WeightInstructions, config.WeightCacheMisses} {
		n := keyedNode(t, func(a *config.AttributionConfig) { a.Weight = allWeight(key) })
		clear(n.host.Clocks)
		n.start()
		for range 3 {
			n.run(600*joule, map[int]int64{10: 100, 20: 100, 30: 200})
		}
		requireFigures(t, figures{180, 180, 360, 0, 720}, n.figures("active"), key)
		lines := n.logs.FilterMessage("Collection degraded").All()
		require.Len(t, lines, 1, key)
		assert.Equal(t, "weight "+string(key), lines[0].ContextMap()["condition"])
		assert.Contains(t, lines[0].ContextMap()["error"], "CPU time is used instead: ")
		require.Len(t, n.status, 1)
		assert.Equal(t, componentstatus.StatusRecoverableError, n.status[0].Status())
	}
}

func TestAKeyIsUsedOnceItBecomesAvailable(t *testing.T) {
	n := keyedNode(t, func(a *config.AttributionConfig) { a.Weight = allWeight(config.WeightFrequency) })
	clocks := n.host.Clocks
	n.host.Clocks = nil
	n.start()
	n.run(600*joule, map[int]int64{10: 100, 20: 100, 30: 200})
	n.host.Clocks = clocks
	for range 6 { // a minute
		before := n.figures("active")
		n.run(600*joule, map[int]int64{10: 100, 20: 100, 30: 200})
		if len(n.logs.FilterMessage("Collection recovered").All()) > 0 {
			requireFigures(t, figures{120, 40, 80, 0, 240}, n.figures("active").less(before))
			break
		}
		requireFigures(t, figures{60, 60, 120, 0, 240}, n.figures("active").less(before))
	}
	weighed := n.logs.FilterMessage("Attribution weight selected").All()
	require.Len(t, weighed, 1)
	assert.Equal(t, "clock rate by APERF and MPERF", weighed[0].ContextMap()["source"])
	assert.Equal(t, componentstatus.StatusOK, n.status[len(n.status)-1].Status())
}

// watched is a weigher whose shares are checked.
type watched struct {
	window.Weigher
	look func([]*weigh.Share)
}

func (w watched) Weigh(now time.Time, shares []*weigh.Share) (measured bool, err error) {
	w.look(shares)
	return w.Weigher.Weigh(now, shares)
}

// Short-lived children count at the CPU and cgroup of their parent.
func TestShortLivedClaimsHaveTheCPUOfTheirParent(t *testing.T) {
	n := keyedNode(t, func(a *config.AttributionConfig) { a.Weight = allWeight(config.WeightFrequency) })
	weighed, open := 0, n.machine.OpenWeigher
	n.machine.OpenWeigher = func(key window.Key, o *window.KeyOptions) (window.Weigher, error) {
		w, err := open(key, o)
		return watched{w, func(shares []*weigh.Share) {
			for _, share := range shares {
				assert.NotEqual(t, int32(-1), share.LastCPU)
				weighed++
			}
		}}, err
	}
	n.start()
	n.run(600*joule, map[int]int64{10: 100, 20: 100, 30: 200})
	before := n.figures("active")
	// 100 ticks of a are of its children, which ended. 200 ticks of c are its last slice.
	n.host.Run(10*time.Second, nil)
	n.host.CPU.User += 400
	n.host.CPU.Idle -= 400
	n.host.Processes[10].CUser += 100
	n.host.Processes[20].User += 100
	n.host.Processes[1].CUser += n.host.Processes[30].User + 200
	delete(n.host.Processes, 30)
	n.host.Zones["intel-rapl:0"].Energy += 600 * joule
	n.scrape()
	// The last slice of c counts at its 1 GHz, the children of a at the 3 GHz of a's CPU.
	requireFigures(t, figures{120, 40, 80, 0, 240}, n.figures("active").less(before))
	assert.Positive(t, weighed)
}

// An ended process held its last known memory until its end.
func TestMemoryOfEndedProcessesCounts(t *testing.T) {
	n := keyedNode(t, func(a *config.AttributionConfig) { a.Weight = allWeight(config.WeightMemoryCPUTime) })
	n.start()
	n.run(600*joule, map[int]int64{10: 100, 20: 100, 30: 200})
	before := n.figures("active")
	n.host.Run(10*time.Second, map[int]int64{10: 100, 20: 100})
	n.host.CPU.User += 200
	n.host.CPU.Idle -= 200
	n.host.Processes[1].CUser += n.host.Processes[30].User + 200
	delete(n.host.Processes, 30)
	n.host.Zones["intel-rapl:0"].Energy += 600 * joule
	n.scrape()
	requireFigures(t, figures{240. / 9, 480. / 9, 1440. / 9, 0, 240}, n.figures("active").less(before))
}
