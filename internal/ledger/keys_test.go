// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

type weights = [attribution.Weights]uint64

// keyed returns a bench whose only kind is shared by a key.
func keyed(t testing.TB, key attribution.Weight, idle attribution.IdleAllocation) *bench {
	var rules attribution.Rules
	rules.Keys[pkg], rules.Idle = key, idle
	return newBench(t, Config{Rules: rules})
}

// Half of the time is busy, so half of the energy is active.
func (b *bench) share(energy units.Energy, claims ...attribution.Claim) {
	b.observe(2*energy, 1*units.Second, 2*units.Second, claims...)
}

func TestActiveEnergyIsSharedByTheKeyOfItsKind(t *testing.T) {
	for name, c := range map[string]struct {
		key    attribution.Weight
		first  attribution.Claim
		second attribution.Claim
		want   units.Energy // of the first claimant, of 12 J
	}{
		"CPU time":                      {attribution.ByCPUTime, attribution.Claim{CPU: 300 * ms}, attribution.Claim{CPU: 100 * ms}, 9},
		"CPU time, others are not read": {attribution.ByCPUTime, attribution.Claim{CPU: 100 * ms, Weights: weights{9, 9}}, attribution.Claim{CPU: 100 * ms}, 6},
		"the first weight": {
			attribution.ByFirstWeight, attribution.Claim{CPU: 100 * ms, Weights: weights{100 * 3000, 0}}, attribution.Claim{CPU: 100 * ms, Weights: weights{100 * 1000, 0}}, 9,
		},
		"the second, who ran or not": {attribution.BySecondWeight, attribution.Claim{CPU: 400 * ms, Weights: weights{0, 1}}, attribution.Claim{Weights: weights{0, 5}}, 2},
		"weights beyond measure":     {attribution.ByFirstWeight, attribution.Claim{CPU: ms, Weights: weights{math.MaxUint64, 0}}, attribution.Claim{CPU: ms, Weights: weights{math.MaxUint64, 0}}, 6},
	} {
		b := keyed(t, c.key, attribution.IdleNone)
		c.first.Claimant, c.second.Claimant = b.open(1), b.open(2)
		b.share(12*units.Joule, c.first, c.second)
		assert.Equal(t, c.want*units.Joule, b.energy(identity.ProcessEntity, "1"), name)
		assert.Equal(t, (12-c.want)*units.Joule, b.energy(identity.ProcessEntity, "2"), name)
		requireConserved(t, b.e, byKind{})
	}
}

func TestExcludedProcessesHaveNoWeight(t *testing.T) {
	b := keyed(t, attribution.ByFirstWeight, attribution.IdleNone)
	static := b.open(1)
	b.e.Exclude(static)
	b.node.Unattributed = 100 * ms
	b.observe(24*units.Joule, 1300*ms, 2*units.Second,
		attribution.Claim{Claimant: static, CPU: 300 * ms, Weights: weights{1000, 0}}, attribution.Claim{Claimant: b.open(2), CPU: 100 * ms, Weights: weights{10, 0}})
	assert.Zero(t, b.energy(identity.ProcessEntity, "1"))
	assert.Equal(t, 6*units.Joule, b.energy(identity.ProcessEntity, "2"))
	assert.Equal(t, 6*units.Joule, b.e.Ledger().Kinds[pkg].Unattributed, "by CPU time, of what is not excluded")
}

func TestWeightsOfLateZonesSaturate(t *testing.T) {
	b := keyed(t, attribution.ByFirstWeight, attribution.IdleNone)
	p, q := b.open(1), b.open(2)
	b.iv.Zones[0].OK = false
	for range 3 {
		b.share(0, attribution.Claim{Claimant: p, CPU: ms, Weights: weights{math.MaxUint64 / 2, 0}}, attribution.Claim{Claimant: q, CPU: ms, Weights: weights{math.MaxUint64 / 2, 0}})
	}
	b.iv.Zones[0].OK = true
	b.share(10*units.Joule, attribution.Claim{Claimant: p, CPU: ms, Weights: weights{1, 0}})
	assert.InDelta(t, 5e6, float64(b.energy(identity.ProcessEntity, "1")), 1)
	b.node.Unattributed = ms
	b.share(12*units.Joule, attribution.Claim{Claimant: p, CPU: ms, Weights: weights{math.MaxUint64, 0}}, attribution.Claim{Claimant: q, CPU: ms, Weights: weights{math.MaxUint64, 0}})
	requireConserved(t, b.e, byKind{})
}

// The claims of the domain weigh much for the little CPU time that was used in it.
func TestUnattributedTimeHasTheAverageWeightOfAllDomains(t *testing.T) {
	for _, ran := range []units.CPUTime{0, 10 * ms} {
		b := keyed(t, attribution.ByFirstWeight, attribution.IdleNone)
		b.node.Unattributed = 100 * ms
		b.node.Averages[0] = attribution.Average{Weight: 40, CPU: 200 * ms}
		b.share(12*units.Joule, attribution.Claim{Claimant: b.open(1), CPU: ran, Weights: weights{100, 0}})
		assert.Equal(t, 2*units.Joule, b.e.Ledger().Kinds[pkg].Unattributed, "a weight of 20 of 120")
		requireConserved(t, b.e, byKind{})
	}
}

func TestCPUTimeStandsInForWeightsThatNoClaimHas(t *testing.T) {
	b := keyed(t, attribution.ByFirstWeight, attribution.IdleNone)
	b.node.Unattributed = 100 * ms
	b.node.Averages[0] = attribution.Average{Weight: 40, CPU: 200 * ms}
	b.share(12*units.Joule, attribution.Claim{Claimant: b.open(1), CPU: 200 * ms})
	assert.Equal(t, 8*units.Joule, b.energy(identity.ProcessEntity, "1"))
	assert.Equal(t, 4*units.Joule, b.e.Ledger().Kinds[pkg].Unattributed)
}
