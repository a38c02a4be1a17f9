// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

var (
	packages = power.Class{Zone: power.Package, Method: power.Measured}
	platform = power.Class{Zone: power.Platform, Method: power.Measured}
)

func always(power.Class) bool { return true }

// ledger returns totals of one kind.
func ledger(kind power.Class, used, active, idle units.Energy) totals {
	return totals{kinds: map[power.Class]kindTotals{kind: {used: used, active: active, idle: idle}}}
}

// interval returns a sample of a second.
func interval(cpu time.Duration, phase string) Sample {
	return Sample{Wall: time.Second, CPU: cpu, Phase: phase}
}

func result(r *record) *Result {
	var res Result
	r.result(&res, always)
	return &res
}

func TestWhatWasUsedBeforeTheCommandIsNotTheCommands(t *testing.T) {
	r := newRecord(ledger(packages, 7, 100, 200))
	r.add(interval(time.Second, ""), ledger(packages, 10, 150, 230), always)

	z := result(r).Zones[0]
	assert.Equal(t, Zone{Name: "package", Source: "measured", Used: 3, Active: 50, Idle: 30}, z)
}

func TestEnergyThatIsToldLateIsOfTheIntervalsInWhichItWasUsed(t *testing.T) {
	silent := func(power.Class) bool { return false }
	r := newRecord(totals{})
	r.add(interval(time.Second, ""), ledger(platform, 0, 0, 0), silent)
	r.add(interval(3*time.Second, ""), ledger(platform, 0, 0, 0), silent)
	r.add(interval(0, ""), ledger(platform, 8, 20, 10), always)
	r.add(interval(time.Second, ""), ledger(platform, 9, 21, 11), always)

	got := result(r)
	for i, want := range []struct{ used, node units.Energy }{{2, 10}, {6, 10}, {0, 10}, {1, 2}} {
		assert.Equal(t, want.used, got.Samples[i].Used[0], "used in %d", i)
		assert.Equal(t, want.node, got.Samples[i].NodeUsed[0], "node in %d", i)
	}
}

func TestEnergyAfterTheEndIsOfTheIntervalsThatWaitForIt(t *testing.T) {
	r := newRecord(totals{})
	r.add(interval(time.Second, ""), ledger(platform, 5, 5, 0), always)
	r.add(interval(time.Second, ""), ledger(platform, 5, 5, 0), func(power.Class) bool { return false })
	r.settle(ledger(platform, 12, 12, 0), always)

	got := result(r)
	assert.Equal(t, units.Energy(5), got.Samples[0].Used[0])
	assert.Equal(t, units.Energy(7), got.Samples[1].Used[0])
	assert.Equal(t, units.Energy(12), got.Zones[0].Used)
}

func TestEnergyWithoutCPUTimeIsDividedByTime(t *testing.T) {
	r := newRecord(totals{})
	r.samples = []Sample{{Wall: time.Second}, {Wall: 3 * time.Second}}
	r.settle(ledger(packages, 4, 8, 0), always)

	got := result(r)
	assert.Equal(t, []units.Energy{1}, got.Samples[0].Used)
	assert.Equal(t, []units.Energy{3}, got.Samples[1].Used)
}

func TestEnergyOfNoTimeIsNotLost(t *testing.T) {
	r := newRecord(totals{})
	r.add(Sample{}, ledger(packages, 4, 8, 0), always)

	assert.Equal(t, []units.Energy{4}, result(r).Samples[0].Used)
}

// Sums are exact to the microjoule whatever meters report, and whenever.
func TestSamplesAndPhasesAddUpToTheRun(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	phases := []string{"", "build", "test"}
	for range 200 {
		kinds := []power.Class{packages, platform}
		now := totals{kinds: map[power.Class]kindTotals{}}
		for _, kind := range kinds {
			now.kinds[kind] = kindTotals{used: units.Energy(rng.Uint64N(1e6)), active: 1e6}
		}
		r := newRecord(now)
		for range 1 + rng.IntN(30) {
			next := totals{kinds: map[power.Class]kindTotals{}}
			telling := map[power.Class]bool{}
			for _, kind := range kinds {
				k := now.kinds[kind]
				if telling[kind] = rng.IntN(3) == 0; telling[kind] {
					used := units.Energy(rng.Uint64N(1e9))
					k.used, k.active, k.idle = k.used+used, k.active+used+units.Energy(rng.Uint64N(1e9)), k.idle+units.Energy(rng.Uint64N(1e9))
				}
				next.kinds[kind] = k
			}
			now = next
			s := interval(time.Duration(rng.Uint64N(2e9)), phases[rng.IntN(len(phases))])
			r.add(s, now, func(k power.Class) bool { return telling[k] })
		}
		r.settle(now, always)

		got := result(r)
		for z := range got.Zones {
			var samples, node, byPhase, nodeByPhase units.Energy
			for _, s := range got.Samples {
				samples += s.Used[z]
				node += s.NodeUsed[z]
			}
			for _, p := range got.Phases {
				byPhase += p.Used[z]
				nodeByPhase += p.NodeUsed[z]
			}
			require.Equal(t, got.Zones[z].Used, samples)
			require.Equal(t, got.Zones[z].Node(), node)
			if got.Phases != nil {
				require.Equal(t, got.Zones[z].Used, byPhase)
				require.Equal(t, got.Zones[z].Node(), nodeByPhase)
			}
		}
	}
}

func TestARunWithoutMarksHasNoPhases(t *testing.T) {
	assert.Nil(t, phasesOf([]Sample{{Phase: ""}, {Phase: "none"}}, 0))
}

func TestAPhaseThatComesTwiceIsOne(t *testing.T) {
	got := phasesOf([]Sample{
		{Wall: 1, Used: []units.Energy{1}, NodeUsed: []units.Energy{10}}, {Wall: 2, Phase: "a", Used: []units.Energy{2}, NodeUsed: []units.Energy{20}},
		{Wall: 3, Phase: "b", Used: []units.Energy{3}}, {Wall: 4, CPU: 9, Phase: "a", Used: []units.Energy{4}, NodeUsed: []units.Energy{40}},
	}, 1)
	assert.Equal(t, []Phase{
		{Name: "none", Wall: 1, Used: []units.Energy{1}, NodeUsed: []units.Energy{10}},
		{Name: "a", Wall: 6, CPU: 9, Used: []units.Energy{6}, NodeUsed: []units.Energy{60}},
		{Name: "b", Wall: 3, Used: []units.Energy{3}, NodeUsed: []units.Energy{0}},
	}, got)
}
