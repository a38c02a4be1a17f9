// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/identity"
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
		assert.Equal(t, c.want*units.Joule, b.energy(identity.ProcessEntity, "1"), name)
		assert.Equal(t, (12-c.want)*units.Joule, b.energy(identity.ProcessEntity, "2"), name)
		requireConserved(t, b.e, byKind{})
	}
}

func TestExcludedProcessesHaveNoWeight(t *testing.T) {
	b := keyed(t, ByFirstWeight, IdleNone)
	static := b.open(1)
	b.e.Exclude(static)
	b.node.Unattributed = 100 * ms
	b.observe(24*units.Joule, 1300*ms, 2*units.Second,
		Claim{Claimant: static, CPU: 300 * ms, Weights: weights{1000, 0}}, Claim{Claimant: b.open(2), CPU: 100 * ms, Weights: weights{10, 0}})
	assert.Zero(t, b.energy(identity.ProcessEntity, "1"))
	assert.Equal(t, 6*units.Joule, b.energy(identity.ProcessEntity, "2"))
	assert.Equal(t, 6*units.Joule, b.e.Ledger().Kinds[pkg].Unattributed, "by CPU time, of what is not excluded")
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
	assert.InDelta(t, 5e6, float64(b.energy(identity.ProcessEntity, "1")), 1)
	b.node.Unattributed = ms
	b.share(12*units.Joule, Claim{Claimant: p, CPU: ms, Weights: weights{math.MaxUint64, 0}}, Claim{Claimant: q, CPU: ms, Weights: weights{math.MaxUint64, 0}})
	requireConserved(t, b.e, byKind{})
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
	assert.Equal(t, Average{Weight: 80, CPU: 400 * ms}, g.usage.Averages[0], "deferred energy has that of all its intervals")
}

func TestCPUTimeStandsInForWeightsThatNoClaimHas(t *testing.T) {
	b := keyed(t, ByFirstWeight, IdleNone)
	b.node.Unattributed = 100 * ms
	b.node.Averages[0] = Average{Weight: 40, CPU: 200 * ms}
	b.share(12*units.Joule, Claim{Claimant: b.open(1), CPU: 200 * ms})
	assert.Equal(t, 8*units.Joule, b.energy(identity.ProcessEntity, "1"))
	assert.Equal(t, 4*units.Joule, b.e.Ledger().Kinds[pkg].Unattributed)
}
