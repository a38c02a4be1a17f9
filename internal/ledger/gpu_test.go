// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// withGPU adds a GPU to a node, whose domain is 1 and whose kind is 1, and observes 10 s in which
// it was busy for a quarter and used 40 W. ok reports whether it could be read. used is GPU seconds
// by process, negative for those that do not have it open.
func (n *shared) withGPU(ok bool, used ...int) {
	n.at, n.energy = n.at.Add(10*time.Second), n.energy+400*units.Joule
	gpu := attribution.Usage{Busy: 10 * units.Second, Total: 40 * units.Second, IdleAmongClaims: true}
	for i, seconds := range used {
		if seconds >= 0 {
			gpu.Claims = append(gpu.Claims, attribution.Claim{Claimant: n.claimants[i], CPU: units.CPUTime(seconds) * units.Second})
		}
	}
	n.engine.Observe(&attribution.Interval{
		At: n.at, Elapsed: 10 * time.Second, Domains: []attribution.Usage{{Total: 10 * units.Second}, gpu},
		Zones: []attribution.ZoneReading{{Total: n.energy, Domain: 1, OK: ok}},
	})
}

// openGPU returns a node without CPUs whose first good reading is the baseline of its GPU.
func openGPU(idle attribution.IdleAllocation) *shared {
	n := openShared(rulesOf(idle))
	for i, size := range []uint64{3000, 3000, 1000, 0} {
		n.engine.SetRequest(n.claimants[i], size)
	}
	n.withGPU(true)
	return n
}

// 300 J of each 400 J are idle. The processes 1 and 2 are in A, 3 in B, 4 in none. B requests a
// third of what A does.
func TestIdleEnergyOfAGPUGoesToThoseWhoHaveItOpen(t *testing.T) {
	const no = -1
	for _, c := range []struct {
		name     string
		rule     attribution.IdleAllocation
		used     []int
		want     map[string]float64
		nobodies float64
	}{
		{"none", attribution.IdleNone, []int{1, 0, no, no}, map[string]float64{}, 0},
		{"equal", attribution.IdleEqual, []int{9, 0, 0, no}, map[string]float64{"1": 100, "2": 100, "3": 100, "A": 200, "B": 100}, 0},
		{"equal, one", attribution.IdleEqual, []int{no, no, no, 0}, map[string]float64{"4": 300}, 0},
		{"equal, nobody", attribution.IdleEqual, []int{no, no, no, no}, map[string]float64{}, 300},
		{"containers", attribution.IdleEqualContainers, []int{9, 0, 0, 0}, map[string]float64{"1": 75, "2": 75, "3": 150, "A": 150, "B": 150}, 0},
		{"containers, none", attribution.IdleEqualContainers, []int{no, no, no, 5}, map[string]float64{}, 300},
		{"requested", attribution.IdleRequested, []int{0, no, 9, 0}, map[string]float64{"1": 225, "3": 75, "A": 225, "B": 75}, 0},
		{"used", attribution.IdleUsed, []int{2, 0, no, 4}, map[string]float64{"1": 100, "4": 200, "A": 100}, 0},
		{"used by nobody", attribution.IdleUsed, []int{0, 0, no, no}, map[string]float64{}, 300},
	} {
		n := openGPU(c.rule)
		n.withGPU(true, c.used...)
		_, idle := n.joules()
		for name, joules := range idle {
			assert.InDelta(t, c.want[name], joules, 0, "%s: %s", c.name, name)
		}
		k := n.engine.Ledger().Kinds[0]
		assert.Equal(t, 300*units.Joule, k.Idle, c.name)
		assert.InDelta(t, c.nobodies, k.UnattributedIdle.Joules(), 0, c.name)
	}
}

func TestAClaimantWithSeveralClaimsCarriesIdleEnergyOnce(t *testing.T) {
	n := openGPU(attribution.IdleEqual)
	n.claimants[1] = n.claimants[0]
	n.withGPU(true, 1, 1, 0)
	_, idle := n.joules()
	assert.InDelta(t, 150, idle["1"], 0)
	assert.InDelta(t, 150, idle["3"], 0)
}

func TestThoseWhoHaveClosedAGPUCarryNoMoreIdleEnergy(t *testing.T) {
	n := openGPU(attribution.IdleEqual)
	n.withGPU(true, 0, -1)
	n.withGPU(true, -1, 0)
	_, idle := n.joules()
	assert.InDelta(t, 300, idle["1"], 0)
	assert.InDelta(t, 300, idle["2"], 0)
}

func TestThoseWhoHadAGPUOpenWhileItCouldNotBeReadCarryIdleEnergy(t *testing.T) {
	n := openGPU(attribution.IdleEqual)
	n.withGPU(false, 0, -1)
	n.withGPU(true, -1, -1, 3)
	active, idle := n.joules()
	assert.InDelta(t, 300, idle["1"], 0)
	assert.InDelta(t, 300, idle["3"], 0)
	assert.InDelta(t, 200, active["3"], 0)
	assert.Zero(t, active["1"])
}

// An excluded process and another one use two engines at once for all of the 10 s that the GPU is
// busy: half of its active energy is static.
func TestAnExcludedUserOfAGPUIsStaticToItsShare(t *testing.T) {
	n := openGPU(attribution.IdleNone)
	n.engine.Exclude(n.claimants[0])
	n.withGPU(true, 10, -1, 10)
	active, _ := n.joules()
	assert.Zero(t, active["1"])
	assert.InDelta(t, 50, active["3"], 0)
	assert.Equal(t, 350*units.Joule, n.engine.Ledger().Kinds[0].Idle)
}
