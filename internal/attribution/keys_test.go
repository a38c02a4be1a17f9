// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

type weights = [Weights]uint64

// keyed returns a bench whose only kind is shared by a key.
func keyed(t testing.TB, key AllocationKey, idle IdleAllocation) *bench {
	var rules Rules
	rules.Keys[pkg], rules.Idle = key, idle
	return newBench(t, Config{Rules: rules})
}

// Half of the time is busy, so half of the energy is active.
func (b *bench) share(energy units.Energy, claims ...Claim) {
	b.observe(2*energy, 1*units.Second, 2*units.Second, claims...)
}

func TestActiveEnergyIsSharedByTheKeyOfItsKind(t *testing.T) {
	for name, c := range map[string]struct {
		key    AllocationKey
		first  Claim
		second Claim
		want   units.Energy // of the first claimant, of 12 J
	}{
		"CPU time":                      {ByCPUTime, Claim{CPU: 300 * ms}, Claim{CPU: 100 * ms}, 9},
		"CPU time, others are not read": {ByCPUTime, Claim{CPU: 100 * ms, Weights: weights{9, 9}}, Claim{CPU: 100 * ms}, 6},
		"the first weight": {
			ByFirstWeight, Claim{CPU: 100 * ms, Weights: weights{100 * 3000, 0}}, Claim{CPU: 100 * ms, Weights: weights{100 * 1000, 0}}, 9,
		},
		"the second, who ran or not": {BySecondWeight, Claim{CPU: 400 * ms, Weights: weights{0, 1}}, Claim{Weights: weights{0, 5}}, 2},
		"weights beyond measure":     {ByFirstWeight, Claim{CPU: ms, Weights: weights{math.MaxUint64, 0}}, Claim{CPU: ms, Weights: weights{math.MaxUint64, 0}}, 6},
		"no claim has any":           {ByFirstWeight, Claim{CPU: 300 * ms}, Claim{CPU: 100 * ms}, 9},
	} {
		b := keyed(t, c.key, IdleNone)
		c.first.Claimant, c.second.Claimant = b.open(1), b.open(2)
		b.share(12*units.Joule, c.first, c.second)
		assert.Equal(t, c.want*units.Joule, b.energy(units.ProcessEntity, "1"), name)
		assert.Equal(t, (12-c.want)*units.Joule, b.energy(units.ProcessEntity, "2"), name)
		requireConserved(t, b.e, byKind{})
	}
}

// Unattributed time is a quarter of the CPU time, so it gets a quarter of the energy.
func TestUnattributedTimeHasTheAverageWeight(t *testing.T) {
	for _, key := range []AllocationKey{ByCPUTime, ByFirstWeight, BySecondWeight} {
		b := keyed(t, key, IdleUsed)
		b.node.Unattributed = 100 * ms
		b.share(12*units.Joule,
			Claim{Claimant: b.open(1), CPU: 100 * ms, Weights: weights{70, 20}}, Claim{Claimant: b.open(2), CPU: 200 * ms, Weights: weights{20, 10}})
		k := b.e.Ledger().Kinds[pkg]
		assert.Equal(t, 3*units.Joule, k.Unattributed)
		assert.Equal(t, 3*units.Joule, k.UnattributedIdle)
		requireConserved(t, b.e, byKind{})
	}
}

// A quarter of the CPU time is unattributed. A third of that weighs nothing under the second weight: 100 of 550 ms are left.
func TestUnattributedTimeWithoutWeightHasNoPartUnderItsKey(t *testing.T) {
	for key, want := range map[AllocationKey]float64{ByCPUTime: 3, ByFirstWeight: 3, BySecondWeight: 12. * 100 / 550} {
		b := keyed(t, key, IdleNone)
		b.node.Unattributed, b.node.Weightless[1] = 150*ms, 50*ms
		b.share(12*units.Joule, Claim{Claimant: b.open(1), CPU: 450 * ms, Weights: weights{9e9, 3e9}})
		assert.InDelta(t, want, b.e.Ledger().Kinds[pkg].Unattributed.Joules(), 1e-5)
		requireConserved(t, b.e, byKind{})
	}
	g := slice{}
	for range 2 {
		g.addAmounts(&Usage{Weightless: [Weights]units.CPUTime{ms, 0}}, time.Second)
	}
	assert.Equal(t, [Weights]units.CPUTime{2 * ms, 0}, g.usage.Weightless, "pending energy has that of all its intervals")
}

// The claims of the domain weigh much for the little CPU time that was used in it.
func TestUnattributedTimeHasTheAverageWeightOfAllDomains(t *testing.T) {
	for _, ran := range []units.CPUTime{0, 10 * ms} {
		b := keyed(t, ByFirstWeight, IdleNone)
		b.node.Unattributed = 100 * ms
		b.node.Averages[0] = Average{Weight: 40, CPU: 200 * ms}
		b.share(12*units.Joule, Claim{Claimant: b.open(1), CPU: ran, Weights: weights{100, 0}})
		assert.Equal(t, 2*units.Joule, b.e.Ledger().Kinds[pkg].Unattributed, "a weight of 20 of 120")
		requireConserved(t, b.e, byKind{})
	}
	g := slice{}
	for range 2 {
		g.addAmounts(&Usage{Averages: [Weights]Average{{Weight: 40, CPU: 200 * ms}}}, time.Second)
	}
	assert.Equal(t, Average{Weight: 80, CPU: 400 * ms}, g.usage.Averages[0], "pending energy has that of all its intervals")
}

func TestCPUTimeStandsInForWeightsThatNoClaimHas(t *testing.T) {
	b := keyed(t, ByFirstWeight, IdleNone)
	b.node.Unattributed = 100 * ms
	b.node.Averages[0] = Average{Weight: 40, CPU: 200 * ms}
	b.share(12*units.Joule, Claim{Claimant: b.open(1), CPU: 200 * ms})
	assert.Equal(t, 8*units.Joule, b.energy(units.ProcessEntity, "1"))
	assert.Equal(t, 4*units.Joule, b.e.Ledger().Kinds[pkg].Unattributed)
}

// Otherwise sleeping processes would get the energy of unattributed time.
func TestWeightsAreIgnoredIfOnlyUnattributedTimeRan(t *testing.T) {
	b := keyed(t, BySecondWeight, IdleNone)
	b.node.Unattributed = 100 * ms
	b.share(12*units.Joule, Claim{Claimant: b.open(1), Weights: weights{0, 20}})
	assert.Equal(t, 12*units.Joule, b.e.Ledger().Kinds[pkg].Unattributed)
}

func TestWeightsApplyIfOnlyUnattributedTimeRanThatWeighsNothing(t *testing.T) {
	b := keyed(t, BySecondWeight, IdleNone)
	b.node.Unattributed, b.node.Weightless[1] = 100*ms, 100*ms
	b.share(12*units.Joule, Claim{Claimant: b.open(1), Weights: weights{0, 20}})
	assert.Equal(t, 12*units.Joule, b.energy(units.ProcessEntity, "1"))
	assert.Zero(t, b.e.Ledger().Kinds[pkg].Unattributed)
}

func TestWeightsApplyWithoutAnyCPUTime(t *testing.T) {
	b := keyed(t, BySecondWeight, IdleNone)
	b.share(12*units.Joule, Claim{Claimant: b.open(1), Weights: weights{0, 20}}, Claim{Claimant: b.open(2), Weights: weights{0, 40}})
	assert.Equal(t, 4*units.Joule, b.energy(units.ProcessEntity, "1"))
}

func TestIdleEnergyByUseIsSharedByTheKey(t *testing.T) {
	b := keyed(t, ByFirstWeight, IdleUsed)
	b.share(12*units.Joule, Claim{Claimant: b.open(1), CPU: 100 * ms, Weights: weights{30, 0}}, Claim{Claimant: b.open(2), CPU: 100 * ms, Weights: weights{10, 0}})
	assert.Equal(t, 9*units.Joule, b.find(units.ProcessEntity, "1").Amounts(pkg).Idle)
	requireConserved(t, b.e, byKind{})
}

func TestExcludedProcessesHaveNoWeight(t *testing.T) {
	b := keyed(t, ByFirstWeight, IdleNone)
	static := b.open(1)
	b.e.Exclude(static)
	b.node.Unattributed = 100 * ms
	b.observe(24*units.Joule, 1300*ms, 2*units.Second,
		Claim{Claimant: static, CPU: 300 * ms, Weights: weights{1000, 0}}, Claim{Claimant: b.open(2), CPU: 100 * ms, Weights: weights{10, 0}})
	assert.Zero(t, b.energy(units.ProcessEntity, "1"))
	assert.Equal(t, 6*units.Joule, b.energy(units.ProcessEntity, "2"))
	assert.Equal(t, 6*units.Joule, b.e.Ledger().Kinds[pkg].Unattributed, "by CPU time, of what is not excluded")
}

// Pending energy of a zone is shared by the claims of all its intervals, with those of sleeping processes.
func TestALateZoneIsSharedByTheKeyOfAllItsIntervals(t *testing.T) {
	b := keyed(t, BySecondWeight, IdleNone)
	p, q := b.open(1), b.open(2)
	b.iv.Zones[0].OK = false
	b.share(0, Claim{Claimant: p, CPU: 100 * ms, Weights: weights{0, 30}}, Claim{Claimant: q, Weights: weights{0, 10}})
	b.share(0, Claim{Claimant: q, Weights: weights{0, 20}})
	b.iv.Zones[0].OK = true
	b.at = b.at.Add(time.Second)
	b.share(16*units.Joule, Claim{Claimant: p, CPU: 100 * ms}, Claim{Claimant: q, Weights: weights{0, 20}})
	assert.Equal(t, 6*units.Joule, b.energy(units.ProcessEntity, "1"), "30 of 80")
	assert.Equal(t, 10*units.Joule, b.energy(units.ProcessEntity, "2"))
}

// Otherwise processes that ran only in unweighed intervals would get nothing.
func TestALateZoneFallsBackToCPUTimeIfAnyIntervalIsUnweighed(t *testing.T) {
	b := keyed(t, ByFirstWeight, IdleNone)
	p, q := b.open(1), b.open(2)
	b.iv.Zones[0].OK = false
	b.node.Unweighed[0] = true
	b.share(0, Claim{Claimant: p, CPU: 900 * ms})
	b.node.Unweighed[0] = false
	b.iv.Zones[0].OK = true
	b.share(10*units.Joule, Claim{Claimant: q, CPU: 100 * ms, Weights: weights{70, 0}})
	assert.Equal(t, 9*units.Joule, b.energy(units.ProcessEntity, "1"))
	assert.Equal(t, 1*units.Joule, b.energy(units.ProcessEntity, "2"))

	b.node.Unweighed[1] = true // not the key of the kind
	b.share(10*units.Joule, Claim{Claimant: p, CPU: 900 * ms, Weights: weights{30, 0}}, Claim{Claimant: q, CPU: 100 * ms, Weights: weights{70, 0}})
	assert.Equal(t, 12*units.Joule, b.energy(units.ProcessEntity, "1"))
	b.node.Unweighed[0] = true
	b.share(10*units.Joule, Claim{Claimant: p, CPU: 900 * ms, Weights: weights{30, 0}}, Claim{Claimant: q, CPU: 100 * ms, Weights: weights{70, 0}})
	assert.Equal(t, 21*units.Joule, b.energy(units.ProcessEntity, "1"))
}

func TestUnweighedIdleEnergyIsSharedByCPUTime(t *testing.T) {
	b := keyed(t, ByFirstWeight, IdleUsed)
	b.node.Unweighed[0] = true
	b.share(12*units.Joule, Claim{Claimant: b.open(1), CPU: 300 * ms, Weights: weights{10, 0}}, Claim{Claimant: b.open(2), CPU: 100 * ms, Weights: weights{30, 0}})
	assert.Equal(t, 9*units.Joule, b.find(units.ProcessEntity, "1").Amounts(pkg).Idle)
}

func TestADroppedZoneFallsBackToCPUTimeIfAnyIntervalIsUnweighed(t *testing.T) {
	b := keyed(t, ByFirstWeight, IdleNone)
	p, q := b.open(1), b.open(2)
	b.iv.Zones[0].OK = false
	b.node.Unweighed[0] = true
	b.share(5*units.Joule, Claim{Claimant: p, CPU: 900 * ms, Weights: weights{1, 0}}, Claim{Claimant: q, CPU: 100 * ms, Weights: weights{9, 0}})
	b.node.Unweighed[0] = false
	zones := b.iv.Zones
	b.iv.Zones = nil
	b.node.Claims = nil
	b.at = b.at.Add(time.Second)
	b.iv.At = b.at
	b.e.Observe(&b.iv)
	b.iv.Zones = zones
	assert.InDelta(t, 4.5e6, float64(b.energy(units.ProcessEntity, "1")), 1)
}

func TestWeightsOfLateZonesSaturate(t *testing.T) {
	b := keyed(t, ByFirstWeight, IdleNone)
	p, q := b.open(1), b.open(2)
	b.iv.Zones[0].OK = false
	for range 3 {
		b.share(0, Claim{Claimant: p, CPU: ms, Weights: weights{math.MaxUint64 / 2, 0}}, Claim{Claimant: q, CPU: ms, Weights: weights{math.MaxUint64 / 2, 0}})
	}
	b.iv.Zones[0].OK = true
	b.share(10*units.Joule, Claim{Claimant: p, CPU: ms, Weights: weights{1, 0}})
	assert.InDelta(t, 5e6, float64(b.energy(units.ProcessEntity, "1")), 1)
	b.node.Unattributed = ms
	b.share(12*units.Joule, Claim{Claimant: p, CPU: ms, Weights: weights{math.MaxUint64, 0}}, Claim{Claimant: q, CPU: ms, Weights: weights{math.MaxUint64, 0}})
	requireConserved(t, b.e, byKind{})
}
