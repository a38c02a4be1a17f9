// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// restart replaces the engine by one that continues its state, after edits of that.
func (b *bench) restart(edit ...func(*State)) {
	var s State
	b.e.State(&s)
	for _, f := range edit {
		f(&s)
	}
	b.restore(&s)
}

func (b *bench) restore(s *State) {
	b.e = New(b.e.cfg, s.At)
	b.e.Restore(s)
	for i := range b.iv.Zones {
		b.iv.Zones[i].Total = 0
	}
}

func TestAProcessThatHadASeriesHasItAgainWithoutEarningIt(t *testing.T) {
	b := newBench(t, Config{Limits: limited(identity.ProcessEntity, Limit{MinEnergy: 10 * units.Joule})})
	known, small := b.open(1), b.open(2)
	b.collect(map[attribution.Claimant]int{known: 15, small: 1})
	start, knownOwner, smallOwner := b.find(identity.ProcessEntity, "1").Start, b.e.Owner(known), b.e.Owner(small)
	b.restart()
	require.True(t, b.find(identity.ProcessEntity, "1").Ended(), "until it is opened")
	assert.True(t, b.e.Continues(&knownOwner))
	assert.False(t, b.e.Continues(&smallOwner))
	b.open(1)
	b.open(2)
	b.collect(nil)
	assert.Equal(t, []string{"p1"}, b.live(identity.ProcessEntity))
	assert.Equal(t, 15*units.Joule, b.energy(identity.ProcessEntity, "1"))
	assert.Equal(t, start, b.find(identity.ProcessEntity, "1").Start)
}

func TestAProcessOfTheDowntimeStartsWhenItWasCreated(t *testing.T) {
	b := newBench(t, Config{})
	b.collect(nil)
	state, created := b.at, b.at.Add(time.Second/2)
	b.restart()
	owner := identity.Owner{Process: identity.Process{PID: 1}, Workload: identity.Workload{Container: identity.Container{ID: "a"}}}
	b.observe(units.Joule, 1, 1, attribution.Claim{Claimant: b.e.Open(owner, created), CPU: 1})
	assert.True(t, created.Equal(b.find(identity.ProcessEntity, "1").Start))
	assert.True(t, state.Equal(b.find(identity.ContainerEntity, "a").Start), "an older process may be in the container")
}

func TestSeriesThatEndAfterARestartWithALowerLimitAreKept(t *testing.T) {
	b := newBench(t, Config{})
	use := map[attribution.Claimant]int{}
	for pid := range int32(8) {
		use[b.open(1+pid)] = 5
	}
	b.collect(use)
	b.e.cfg.Limits = limited(identity.ProcessEntity, Limit{Max: 2})
	b.restart()
	id := b.open(1)
	b.collect(map[attribution.Claimant]int{id: 4})
	b.e.Close(id)
	assert.Equal(t, 9*units.Joule, b.energy(identity.ProcessEntity, "1"), "the next consumer has the first 5")
	assert.Zero(t, b.e.Ledger().Dropped)
}

func TestProcessesBeforeARestartAreNotKnownToCarryIdleEnergy(t *testing.T) {
	b := newBench(t, Config{Rules: attribution.Rules{Idle: attribution.IdleEqual}})
	b.open(1)
	b.restart()
	b.open(2)
	b.observe(80*units.Joule, 1, 2)
	assert.Equal(t, 40*units.Joule, b.e.Ledger().Kinds[pkg].UnattributedIdle)
	b.observe(20*units.Joule, 1, 2)
	assert.Equal(t, 40*units.Joule, b.e.Ledger().Kinds[pkg].UnattributedIdle, "the new process carries it from then on")
}

func TestAStateThatStartsOverKeepsTheEnergySinceThen(t *testing.T) {
	b := newBench(t, Config{})
	b.collect(map[attribution.Claimant]int{b.open(1): 30})
	b.restart((*State).StartOver)
	require.Nil(t, b.find(identity.ProcessEntity, "1"))
	b.observe(8*units.Joule, 1, 2, attribution.Claim{Claimant: b.open(1), CPU: 1})
	l := b.e.Ledger()
	assert.Equal(t, 8*units.Joule, l.Zones[0].Energy)
	assert.Equal(t, 4*units.Joule, l.Kinds[pkg].Active)
	assert.Equal(t, 4*units.Joule, l.Kinds[pkg].Idle)
	assert.Equal(t, 4*units.Joule, b.energy(identity.ProcessEntity, "1"))
}

// The second of the engines begins with the same state, as after a crash.
func TestTotalsStartOverWithAStartThatWasNotEmitted(t *testing.T) {
	b := newBench(t, Config{})
	b.collect(nil)
	var s State
	b.e.State(&s)
	created := b.at.Add(time.Second / 2)
	for range 2 {
		last := s.At
		s.StartOver()
		b.restore(&s)
		b.observe(units.Joule, 1, 1, attribution.Claim{Claimant: b.e.Open(identity.Owner{Process: identity.Process{PID: 1}}, created), CPU: 1})
		start := b.find(identity.ProcessEntity, "1").Start
		assert.True(t, start.After(last) && start.Before(created), "other starts may have been emitted since")
		l := b.e.Ledger()
		assert.Equal(t, [2]time.Time{start, start}, [2]time.Time{l.Zones[0].Start, l.Kinds[pkg].Start})
	}
}

func TestRestoredSeriesAreSettledAndThoseThatStartOverAreNot(t *testing.T) {
	for settled, edit := range map[bool]func(*State){true: func(*State) {}, false: (*State).StartOver} {
		b := newBench(t, Config{})
		b.collect(map[attribution.Claimant]int{b.open(1): 30})
		b.restart(edit)
		b.collect(map[attribution.Claimant]int{b.open(1): 4, b.open(2): 4})
		l, a := b.e.Ledger(), b.find(identity.ProcessEntity, "1")
		assert.Equal(t, [...]bool{settled, settled, settled, settled}, [...]bool{
			l.Settled(&l.Zones[0].Lifetime), l.Settled(&l.Kinds[pkg].Lifetime), l.Settled(&a.Lifetime), l.SettledIn(a, pkg),
		})
		assert.False(t, l.SettledIn(b.find(identity.ProcessEntity, "2"), pkg), "it is new")
		assert.Equal(t, b.e.baseline.Before(l.SettledAt), settled)
	}
}

func TestTheTimeOfARestartDoesNotTrain(t *testing.T) {
	b, m := newNoting(t, 0)
	b.restart()
	b.observe(units.Joule, 1, 2)
	assert.Empty(t, m.training())
	b.observe(units.Joule, 1, 2)
	assert.Len(t, m.training(), 1)
}
