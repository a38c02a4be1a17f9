package attribution

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// keyed is a bench whose only kind is shared by a key.
func keyed(t testing.TB, key Key, idle Idle) *bench {
	rules := DefaultRules()
	rules.Keys[pkg], rules.Idle = key, idle
	return newBench(t, Config{Rules: rules})
}

// Half busy, so half of the energy is active.
func (b *bench) share(energy units.Energy, claims ...Claim) {
	b.observe(2*energy, 1*units.Second, 2*units.Second, claims...)
}

func TestActiveEnergyIsSharedByTheKeyOfItsKind(t *testing.T) {
	for name, c := range map[string]struct {
		key    Key
		first  Claim
		second Claim
		want   units.Energy // the first's, of 12 J
	}{
		"CPU time":                      {nil, Claim{CPU: 300 * ms}, Claim{CPU: 100 * ms}, 9},
		"CPU time, others are not read": {nil, Claim{CPU: 100 * ms, Work: 9, Memory: 9}, Claim{CPU: 100 * ms}, 6},
		"work": {
			ByWork, Claim{CPU: 100 * ms, Work: 100 * 3000}, Claim{CPU: 100 * ms, Work: 100 * 1000}, 9,
		},
		"memory, asleep or not": {ByMemory, Claim{CPU: 400 * ms, Memory: 1}, Claim{Memory: 5}, 2},
		"work beyond measure":   {ByWork, Claim{CPU: ms, Work: math.MaxUint64}, Claim{CPU: ms, Work: math.MaxUint64}, 6},
		"nobody has any":        {ByWork, Claim{CPU: 300 * ms}, Claim{CPU: 100 * ms}, 9},
	} {
		b := keyed(t, c.key, IdleNobody)
		c.first.Claimant, c.second.Claimant = b.open(1), b.open(2)
		b.share(12*units.Joule, c.first, c.second)
		assert.Equal(t, c.want*units.Joule, b.energy(Process, "1"), name)
		assert.Equal(t, (12-c.want)*units.Joule, b.energy(Process, "2"), name)
		requireConserved(t, b.e, Amounts{})
	}
}

// They used a quarter of the CPU time, so they have a quarter of whatever else there is.
func TestTheUnownedHaveAsMuchOfAKeyAsTheOthersOnAverage(t *testing.T) {
	for _, key := range []Key{nil, ByWork, ByMemory} {
		b := keyed(t, key, IdleUsed)
		b.iv.Unowned = 100 * ms
		b.share(12*units.Joule,
			Claim{Claimant: b.open(1), CPU: 100 * ms, Work: 70, Memory: 20}, Claim{Claimant: b.open(2), CPU: 200 * ms, Work: 20, Memory: 10})
		k := b.e.Ledger().Kinds[pkg]
		assert.Equal(t, 3*units.Joule, k.Unattributed)
		assert.Equal(t, 3*units.Joule, k.UnattributedIdle)
		requireConserved(t, b.e, Amounts{})
	}
}

// Else those who sleep would have what the unowned alone have caused.
func TestWhereOnlyTheUnownedRanMemoryIsNotTheKey(t *testing.T) {
	b := keyed(t, ByMemory, IdleNobody)
	b.iv.Unowned = 100 * ms
	b.share(12*units.Joule, Claim{Claimant: b.open(1), Memory: 20})
	assert.Equal(t, 12*units.Joule, b.e.Ledger().Kinds[pkg].Unattributed)
}

func TestWhereNobodyRanMemoryIsTheKeyAllTheSame(t *testing.T) {
	b := keyed(t, ByMemory, IdleNobody)
	b.share(12*units.Joule, Claim{Claimant: b.open(1), Memory: 20}, Claim{Claimant: b.open(2), Memory: 40})
	assert.Equal(t, 4*units.Joule, b.energy(Process, "1"))
}

func TestIdleEnergyByUseIsSharedByTheKey(t *testing.T) {
	b := keyed(t, ByWork, IdleUsed)
	b.share(12*units.Joule, Claim{Claimant: b.open(1), CPU: 100 * ms, Work: 30}, Claim{Claimant: b.open(2), CPU: 100 * ms, Work: 10})
	assert.Equal(t, 9*units.Joule, b.find(Process, "1").Idle[pkg])
	requireConserved(t, b.e, Amounts{})
}

func TestTheExcludedHaveNothingOfAKey(t *testing.T) {
	b := keyed(t, ByWork, IdleNobody)
	static := b.open(1)
	b.e.Exclude(static)
	b.iv.Unowned = 100 * ms
	b.observe(24*units.Joule, 1300*ms, 2*units.Second,
		Claim{Claimant: static, CPU: 300 * ms, Work: 1000}, Claim{Claimant: b.open(2), CPU: 100 * ms, Work: 10})
	assert.Zero(t, b.energy(Process, "1"))
	assert.Equal(t, 6*units.Joule, b.energy(Process, "2"))
	assert.Equal(t, 6*units.Joule, b.e.Ledger().Kinds[pkg].Unattributed, "by CPU time, of what is not excluded")
}

// What a zone was late with is shared by all of the intervals: those who sleep in them count as well.
func TestALateZoneIsSharedByTheKeyOfAllItsIntervals(t *testing.T) {
	b := keyed(t, ByMemory, IdleNobody)
	p, q := b.open(1), b.open(2)
	b.iv.Zones[0].OK = false
	b.share(0, Claim{Claimant: p, CPU: 100 * ms, Memory: 30}, Claim{Claimant: q, Memory: 10})
	b.share(0, Claim{Claimant: q, Memory: 20})
	b.iv.Zones[0].OK = true
	b.at = b.at.Add(time.Second)
	b.share(16*units.Joule, Claim{Claimant: p, CPU: 100 * ms}, Claim{Claimant: q, Memory: 20})
	assert.Equal(t, 6*units.Joule, b.energy(Process, "1"), "30 of 80")
	assert.Equal(t, 10*units.Joule, b.energy(Process, "2"))
}
