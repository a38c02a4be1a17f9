// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// shared is a node with the processes 1 and 2 in container A, 3 in B, and 4 in none.
type shared struct {
	engine    *ledger.Ledger
	claimants []attribution.Claimant
	at        time.Time
	energy    units.Energy
}

func newShared(rules attribution.Rules) *shared {
	n := openShared(rules)
	n.interval(0, 0)
	return n
}

// openShared returns a node before its first interval.
func openShared(rules attribution.Rules) *shared {
	n := &shared{at: time.Unix(1, 0)}
	n.engine = ledger.New(ledger.Config{Rules: rules}, n.at)
	for i, container := range []string{"A", "A", "B", ""} {
		n.claimants = append(n.claimants, n.open(i+1, container))
	}
	return n
}

func (n *shared) open(pid int, container string) attribution.Claimant {
	return n.engine.Open(identity.Owner{
		Process:  identity.Process{PID: int32(pid), Executable: "p"},
		Workload: identity.Workload{Container: identity.Container{ID: container}},
	}, n.at)
}

// interval observes 10 s in which a third of the node's CPU time is busy. used is CPU seconds by
// process.
func (n *shared) interval(watts units.Energy, cpu ...units.CPUTime) {
	n.energy += watts * units.Joule * 10
	n.at = n.at.Add(10 * time.Second)
	iv := attribution.Interval{
		At: n.at, Elapsed: 10 * time.Second,
		Domains: []attribution.Usage{{Busy: 10 * units.Second, Total: 30 * units.Second}},
		Zones:   []attribution.ZoneReading{{Total: n.energy, OK: true}},
	}
	node := &iv.Domains[0]
	for i, c := range cpu {
		if c > 0 {
			node.Claims = append(node.Claims, attribution.Claim{Claimant: n.claimants[i], CPU: c * units.Second})
		}
	}
	n.engine.Observe(&iv)
}

// joules returns the active and the idle energy of each series.
func (n *shared) joules() (active, idle map[string]float64) {
	active, idle = map[string]float64{}, map[string]float64{}
	for a := range n.engine.Ledger().Accounts {
		name := a.Owner.Container.ID
		switch {
		case a.Other:
			name = "other"
		case a.Entity == identity.ProcessEntity:
			name = strconv.Itoa(int(a.Owner.Process.PID))
		}
		active[name], idle[name] = a.Amounts(0).Energy.Joules(), a.Amounts(0).Idle.Joules()
	}
	return active, idle
}

func rulesOf(idle attribution.IdleAllocation) attribution.Rules {
	var rules attribution.Rules
	rules.Idle = idle
	return rules
}

// 60 W for 10 s, a third of it active: 400 J are idle.
func TestIdleEnergyFollowsTheIdleAllocation(t *testing.T) {
	for _, c := range []struct {
		name string
		rule attribution.IdleAllocation
		want map[string]float64
	}{
		{"none", attribution.IdleNone, map[string]float64{"1": 0, "2": 0, "3": 0, "4": 0, "A": 0, "B": 0, "other": 0}},
		{"equal", attribution.IdleEqual, map[string]float64{"1": 100, "2": 100, "3": 100, "4": 100, "A": 200, "B": 100, "other": 0}},
		{"equal containers", attribution.IdleEqualContainers,
			map[string]float64{"1": 100, "2": 100, "3": 200, "4": 0, "A": 200, "B": 200, "other": 0}},
		{"requested", attribution.IdleRequested,
			map[string]float64{"1": 150, "2": 150, "3": 100, "4": 0, "A": 300, "B": 100, "other": 0}},
		{"used", attribution.IdleUsed, map[string]float64{"1": 50, "2": 50, "3": 100, "4": 200, "A": 100, "B": 100, "other": 0}},
	} {
		n := newShared(rulesOf(c.rule))
		for i, size := range []uint64{1536, 1536, 512, 0} {
			n.engine.SetRequest(n.claimants[i], size)
		}
		n.interval(60, 1, 1, 2, 4)
		active, idle := n.joules()
		assert.Equal(t, c.want, idle, c.name)
		assert.Equal(t, map[string]float64{"1": 25, "2": 25, "3": 50, "4": 100, "A": 50, "B": 50, "other": 0}, active, c.name)
		k := n.engine.Ledger().Kinds[0]
		assert.Equal(t, 400*units.Joule, k.Idle, c.name)
		assert.Zero(t, k.UnattributedIdle, c.name)
	}
}

// The excluded process 4 used 4 of 10 s busy, of 30 s in all. A fifth of 60 W is active, and shared
// by the other three.
func TestEnergyOfExcludedProcessesIsStatic(t *testing.T) {
	n := newShared(rulesOf(attribution.IdleEqual))
	n.engine.Exclude(n.claimants[3])
	n.interval(60, 1, 1, 2, 4)
	active, idle := n.joules()
	assert.Equal(t, map[string]float64{"1": 30, "2": 30, "3": 60, "4": 0, "A": 60, "B": 60, "other": 0}, active)
	assert.InDelta(t, 480, n.engine.Ledger().Kinds[0].Idle.Joules(), 0)
	assert.InDelta(t, 160, idle["1"], 0)
	assert.Zero(t, idle["4"])
}

// The base of 48 W was trained while the excluded process ran, and includes it.
func TestTrainedStaticPowerIncludesExcludedProcesses(t *testing.T) {
	n := newShared(attribution.Rules{
		Models: [attribution.MaxKinds]attribution.StaticPowerModel{static.NewBase(0.01, 10*time.Second)},
	})
	assert.Equal(t, attribution.Provisional, n.engine.Ledger().Kinds[0].Model)
	n.engine.Exclude(n.claimants[3])
	n.interval(48, 0, 0, 0, 10)
	assert.Equal(t, attribution.Trained, n.engine.Ledger().Kinds[0].Model)
	n.interval(60, 1, 1, 2, 6)
	active, _ := n.joules()
	assert.Equal(t, map[string]float64{"1": 30, "2": 30, "3": 60, "4": 0, "A": 60, "B": 60, "other": 0}, active)
	t.Attr("control-plane", fmt.Sprintf("%g, %g, %g; %g J", active["1"], active["2"], active["3"], active["4"]))
}

// 60 W for 10 s, a third of it active: 400 J are idle. Container B no longer has a process.
func TestACompletedContainerHasNoIdleEnergy(t *testing.T) {
	n := newShared(rulesOf(attribution.IdleEqualContainers))
	n.engine.Close(n.claimants[2])
	n.interval(60, 1, 1)
	_, idle := n.joules()
	assert.InDelta(t, 400, idle["A"], 0)
	assert.Zero(t, idle["B"])
	t.Attr("completed", fmt.Sprintf("%g, %g J", idle["A"], idle["B"]))
}

// 60 W for 10 s, a third of it active and all of that by process 4: 400 J are idle.
func TestAContainerWithAnExcludedProcessHasAFullShare(t *testing.T) {
	n := newShared(rulesOf(attribution.IdleEqualContainers))
	n.engine.Exclude(n.claimants[0])
	n.engine.Exclude(n.claimants[0])
	n.interval(60, 0, 0, 0, 10)
	_, idle := n.joules()
	want := map[string]float64{"1": 0, "2": 200, "3": 200, "4": 0, "A": 200, "B": 200, "other": 0}
	assert.Equal(t, want, idle)
	n.engine.Stop(n.claimants[0])
	n.interval(60, 0, 0, 0, 10)
	_, idle = n.joules()
	for name := range want {
		want[name] *= 2
	}
	assert.Equal(t, want, idle, "and when that process has ended")
}

// 12 of 60 W are static. The excluded process 4 used 4 of 10 s busy, so 288 of the remaining 480 J
// are active.
func TestFixedStaticPowerDoesNotChargeOthersForTheExcluded(t *testing.T) {
	n := newShared(attribution.Rules{
		Models: [attribution.MaxKinds]attribution.StaticPowerModel{static.Fixed{Power: 12 * units.Joule}},
	})
	n.engine.Exclude(n.claimants[3])
	n.interval(60, 1, 1, 4, 4)
	active, _ := n.joules()
	assert.Equal(t, map[string]float64{"1": 48, "2": 48, "3": 192, "4": 0, "A": 96, "B": 192, "other": 0}, active)
	assert.InDelta(t, 312, n.engine.Ledger().Kinds[0].Idle.Joules(), 0)
	n.interval(60, 0, 0, 0, 10)
	again, _ := n.joules()
	assert.Equal(t, active, again, "nor where only they run")
}

func TestAContainerOfThousandsOfProcessesHasNoLessThanOneOfOne(t *testing.T) {
	n := newShared(rulesOf(attribution.IdleEqualContainers))
	for pid := range 9000 {
		n.open(100+pid, "A")
	}
	n.interval(60)
	_, idle := n.joules()
	assert.InDelta(t, 200, idle["A"], 0.02)
	assert.InDelta(t, 200, idle["B"], 0.02)
}

// Sizes are capped at 1<<20: a quarter of a million containers of that size do not overflow.
func TestAHugeRequestIsCutOff(t *testing.T) {
	n := newShared(rulesOf(attribution.IdleRequested))
	for i, size := range []uint64{1 << 20, 1 << 20, math.MaxUint64, 0} {
		n.engine.SetRequest(n.claimants[i], size)
	}
	n.interval(60)
	_, idle := n.joules()
	assert.InDelta(t, 200, idle["A"], 1e-6)
	assert.InDelta(t, 200, idle["B"], 1e-6)
}
