// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/test/allocs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// noting is a static power model that notes portions.
type noting struct {
	portions []attribution.Portion
	static   units.Energy // per second
}

func (m *noting) Active(p attribution.Portion) units.Energy {
	m.portions = append(m.portions, p)
	return p.Above(units.Energy(units.MulDiv(uint64(m.static), uint64(p.Elapsed), uint64(time.Second))))
}

// training returns the busy time of each portion with which a model is trained.
func (m *noting) training() (busy []units.CPUTime) {
	for _, p := range m.portions {
		if !p.Partial {
			busy = append(busy, p.Busy)
		}
	}
	return busy
}

func newNoting(t testing.TB, static units.Energy) (*bench, *noting) {
	m := &noting{static: static}
	b := newBench(t, Config{Rules: attribution.Rules{Models: [attribution.MaxKinds]attribution.StaticPowerModel{pkg: m}}})
	return b, m
}

// pass advances by a time. The zone has a reading that is so old, or none if the age is negative.
func (b *bench) pass(d, age time.Duration, energy units.Energy, busy units.CPUTime, claims ...attribution.Claim) {
	b.at = b.at.Add(d)
	b.iv.At, b.iv.Elapsed = b.at, d
	b.node.Busy, b.node.Total, b.node.Claims = busy, units.CPUTime(d), claims
	if len(b.iv.Zones) > 0 {
		b.iv.Zones[0].Total += energy
		b.iv.Zones[0].OK, b.iv.Zones[0].Age = age >= 0, max(age, 0)
	}
	b.e.Observe(&b.iv)
}

// A meter is polled every 15 s, and the intervals have 10 s. The processor is busy for 1 s in the
// second interval and for 4 s in the third.
func TestAPortionIsOfTheTimeOfItsReading(t *testing.T) {
	b, m := newNoting(t, 100*units.Joule)
	const s = units.CPUTime(time.Second)
	b.pass(10*time.Second, -1, 0, 0)
	b.pass(10*time.Second, 5*time.Second, 1500*units.Joule, s)
	b.pass(10*time.Second, 0, 1900*units.Joule, 4*s)
	b.pass(10*time.Second, -1, 0, 0)
	b.pass(10*time.Second, 5*time.Second, 1500*units.Joule, 0)
	b.pass(10*time.Second, 0, 1500*units.Joule, 0)
	require.Len(t, m.portions, 4)
	for i, want := range []units.CPUTime{s / 2, s/2 + 4*s, 0, 0} {
		assert.Equal(t, 15*time.Second, m.portions[i].Elapsed, "portion %d", i)
		assert.Equal(t, want, m.portions[i].Busy, "portion %d", i)
		assert.Equal(t, 15*s, m.portions[i].Total, "portion %d", i)
	}
	k := b.e.Ledger().Kinds[pkg]
	assert.Equal(t, 400*units.Joule, k.Active)
	assert.Zero(t, b.e.Ledger().Kinds[pkg].Deferred)
	assert.Equal(t, time.Minute, b.e.Ledger().Zones[0].RecentTime)
}

// The meter is 5 s late. Processes 1 and 2 run for 4 s each, one after the other.
func TestUsageIsAttributedTheEnergyOfItsOwnTime(t *testing.T) {
	b, _ := newNoting(t, 0)
	const second, lag = time.Second, 5 * time.Second
	for i := range 30 {
		used := i - 5 // second of the energy that is read now
		var energy units.Energy
		if used >= 10 && used < 18 {
			energy = 100 * units.Joule
		}
		var claims []attribution.Claim
		busy := units.CPUTime(0)
		if i >= 10 && i < 18 {
			pid := int32(1 + (i-10)/4)
			if (i-10)%4 == 0 {
				b.open(pid)
			}
			busy = units.CPUTime(second)
			claims = []attribution.Claim{{Claimant: attribution.Claimant(pid - 1), CPU: busy}}
		}
		b.pass(second, lag, energy, busy, claims...)
		if i == 18 {
			b.e.Close(0) // before any of its last energy was read
			b.e.Close(1)
		}
	}
	assert.Equal(t, 400*units.Joule, b.energy(identity.ProcessEntity, "1"))
	assert.Equal(t, 400*units.Joule, b.energy(identity.ProcessEntity, "2"))
	assert.Zero(t, b.e.Ledger().Kinds[pkg].Unattributed)
	assert.True(t, b.find(identity.ProcessEntity, "1").Ended(), "it ends with its last energy")
	t.Attr("late-meter", b.joules(identity.ProcessEntity, "1", "2")+" J")
	requireConserved(t, b.e, byKind{})
}

// A reading says nothing of a later time than the one before. Its energy is deferred.
func TestAReadingOfNoLaterTimeIsDeferred(t *testing.T) {
	b, m := newNoting(t, 0)
	b.pass(time.Second, time.Second, 10*units.Joule, 0)
	assert.Empty(t, m.portions)
	assert.Equal(t, 10*units.Joule, b.e.Ledger().Kinds[pkg].Deferred)
	b.pass(time.Second, time.Second, 10*units.Joule, 0)
	require.Len(t, m.portions, 1)
	assert.Equal(t, 20*units.Joule, m.portions[0].Energy)
	assert.Equal(t, time.Second, m.portions[0].Elapsed)
}

// newPolled returns a bench whose zone has the static power of 100 W and readings with an age.
func newPolled(t testing.TB) *bench {
	b, _ := newNoting(t, 100*units.Joule)
	b.pass(time.Second+readAge, readAge, 100*units.Joule, 0)
	return b
}

const readAge = time.Millisecond

// active returns the active energy so far.
func (b *bench) active() float64 { return b.e.Ledger().Kinds[pkg].Active.Joules() }

// What one portion lacks to its static energy, the next one has in excess.
func TestADeficitIsSubtractedFromTheNextExcess(t *testing.T) {
	for name, c := range map[string]struct {
		joules []units.Energy // of seconds
		active float64
	}{
		"exact":                        {[]units.Energy{100, 100}, 0},
		"less, then more":              {[]units.Energy{90, 110, 100}, 5},         // half of the excess is left
		"more, then less":              {[]units.Energy{110, 90, 100}, 10},        // the first one is not known to be an error
		"a deficit has a maximum":      {[]units.Energy{0, 0, 300}, 200 - 23.438}, // of a quarter of a second
		"a deficit is forgotten":       {append([]units.Energy{0}, append(seconds(96, 100), 1000)...), 899.952},
		"static power that is 2 W off": {append(seconds(60, 98), 150), 50 - 23.438},
	} {
		b := newPolled(t)
		for _, j := range c.joules {
			b.pass(time.Second, readAge, j*units.Joule, 0)
		}
		assert.InDelta(t, c.active, b.active(), 0.001, name)
	}
}

// A reading after a failure of an hour leaves no deficit, and one after four minutes no more than a
// quarter of the static energy of a second.
func TestALongPortionDoesNotTakeTheEnergyAfterIt(t *testing.T) {
	for failure, most := range map[time.Duration]float64{time.Hour: 0, 4 * time.Minute: 25} {
		b := newPolled(t)
		for passed := time.Duration(0); passed < failure; passed += time.Minute {
			b.pass(time.Minute, -1, 0, 0)
		}
		for i := range 24 {
			b.pass(time.Second, readAge, 150*units.Joule*units.Energy(min(i, 1)), 0)
			if i > 0 {
				assert.GreaterOrEqual(t, b.active(), 25*float64(i), "%v, window %d", failure, i)
			}
		}
		assert.InDelta(t, 23*50, b.active(), most, "%v", failure)
	}
}

// The static power is 3 W too high and the machine uses 105 W every fourth second. Without deficits
// the active energy is 1,250 J.
func TestADeficitLeavesBursts(t *testing.T) {
	for age, want := range map[time.Duration]float64{0: 1250, readAge: 625} {
		b := newPolled(t)
		b.pass(time.Second-readAge+age, age, 100*units.Joule, 0) // without the time of the age
		before := b.active()
		for range 250 {
			for _, watts := range []units.Energy{97, 97, 97, 105} {
				b.pass(time.Second, age, watts*units.Joule, 0)
			}
		}
		assert.InDelta(t, want, b.active()-before, 1, "age %v", age)
	}
}

func TestNoiseOfAnIdleMachineIsHardlyActive(t *testing.T) {
	for _, poll := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, 15 * time.Second} {
		rng := rand.New(rand.NewPCG(1, 2))
		b := newPolled(t)
		for range 5000 {
			b.pass(poll, readAge, units.Energy(100*poll.Seconds()*(1+0.03*rng.NormFloat64())*1e6), 0)
		}
		part := b.active() / b.e.Ledger().Zones[0].Energy.Joules()
		t.Logf("poll %v: %.2f %%", poll, 100*part)
		assert.LessOrEqual(t, part, 0.01, poll)
	}
}

// A machine uses 100 W. A process uses it in the first 10 s of the receiver, and another one after
// that. The first reading of the meter is of a time before.
func TestEnergyOfTheTimeBeforeTheReceiverIsUnattributed(t *testing.T) {
	for _, lag := range []time.Duration{5 * time.Second, 2 * time.Minute} {
		b, m := newNoting(t, 0)
		first, second := b.open(1), b.open(2)
		b.iv.Zones[0].Zone = 1
		for i := range 300 {
			by := first
			if i >= 10 {
				by = second
			}
			b.pass(time.Second, lag, 100*units.Joule, units.CPUTime(time.Second), attribution.Claim{Claimant: by, CPU: units.CPUTime(time.Second)})
		}
		assert.InDelta(t, 1000e6, float64(b.energy(identity.ProcessEntity, "1")), 10, "lag %v", lag)
		assert.InDelta(t, 100e6*(lag-time.Second).Seconds(), float64(b.e.Ledger().Kinds[pkg].Unattributed), 20, "lag %v", lag)
		assert.True(t, m.portions[0].Partial)
		assert.Equal(t, lag, m.portions[0].Elapsed)
		assert.False(t, m.portions[1].Partial)
		requireConserved(t, b.e, byKind{})
	}
}

// A zone that is no longer read has no static energy of the time that its meter did not measure.
func TestUnmeasuredTimeOfAnEndedZoneHasNoStaticEnergy(t *testing.T) {
	b, m := newNoting(t, 100*units.Joule)
	b.iv.Zones[0].Unmeasured = 7 * time.Second
	b.pass(10*time.Second, -1, 350*units.Joule, 0)
	b.iv.Zones = nil
	b.pass(10*time.Second, -1, 0, 0)
	require.Len(t, m.portions, 1)
	assert.Equal(t, 3*time.Second, m.portions[0].Elapsed)
	assert.True(t, m.portions[0].Partial)
}

// seconds returns n seconds of the same energy in joules.
func seconds(n int, joules units.Energy) (all []units.Energy) {
	for range n {
		all = append(all, joules)
	}
	return all
}

// The energy of a time that a meter did not measure is not there, so no static energy is subtracted
// for it.
func TestNoStaticEnergyIsSubtractedForTimeWithoutMeasurement(t *testing.T) {
	b, m := newNoting(t, 100*units.Joule)
	b.iv.Zones[0].Unmeasured = 7 * time.Second
	b.pass(10*time.Second, 0, 350*units.Joule, 0)
	b.iv.Zones[0].Unmeasured = 0
	b.pass(10*time.Second, 0, 1000*units.Joule, 0)
	require.Len(t, m.portions, 2)
	assert.Equal(t, 3*time.Second, m.portions[0].Elapsed)
	assert.True(t, m.portions[0].Partial)
	assert.Equal(t, 10*time.Second, m.portions[1].Elapsed)
	assert.False(t, m.portions[1].Partial)
	assert.Equal(t, 50*units.Joule, b.e.Ledger().Kinds[pkg].Active)
}

// The third usage has no total, so it also trains no model.
func TestABusyTimeThatIsAssumedDoesNotTrain(t *testing.T) {
	b, m := newNoting(t, 0)
	for _, u := range []attribution.Usage{{Busy: 1, Total: 10}, {Busy: 10, Total: 10, Assumed: true}, {}, {Busy: 10, Total: 10, Assumed: true}, {Busy: 2, Total: 10}} {
		b.node.Assumed = u.Assumed
		b.observe(units.Joule, u.Busy, u.Total)
	}
	assert.Equal(t, []units.CPUTime{1, 2}, m.training())
	assert.InDelta(t, 5, b.active(), 0)
}

// The usage that waits for a late meter is not lost with a restart, and none is attributed twice.
func TestUsageThatWaitsForALateMeterSurvivesARestart(t *testing.T) {
	const second, lag = time.Second, 5 * time.Second
	m := &noting{}
	cfg := Config{Rules: attribution.Rules{Models: [attribution.MaxKinds]attribution.StaticPowerModel{pkg: m}}}
	b := newBench(t, cfg)
	p := b.open(1)
	for range 10 {
		b.pass(second, lag, 50*units.Joule, units.CPUTime(second), attribution.Claim{Claimant: p, CPU: units.CPUTime(second)})
	}
	before := b.energy(identity.ProcessEntity, "1")
	var s State
	b.e.State(&s)
	require.NotNil(t, s.Zones[0].Deferred)
	assert.Equal(t, lag, s.Zones[0].Deferred.Elapsed)
	assert.Equal(t, 5*units.CPUTime(second), s.Zones[0].Deferred.Unattributed)

	b.e = New(cfg, b.at)
	b.e.Restore(&s)
	b.iv.Zones[0].Total = 0
	p = b.open(1)
	m.portions = nil
	total := units.Energy(0)
	for range 20 {
		total += 50 * units.Joule
		b.pass(second, lag, 50*units.Joule, units.CPUTime(second), attribution.Claim{Claimant: p, CPU: units.CPUTime(second)})
		k := &b.e.Ledger().Kinds[pkg]
		assert.Equal(t, 500*units.Joule+total, k.Active+k.Idle+b.e.Ledger().Kinds[pkg].Deferred)
	}
	covered := time.Duration(0)
	for _, portion := range m.portions {
		covered += portion.Elapsed
	}
	assert.Equal(t, 20*second, covered)
	k := &b.e.Ledger().Kinds[pkg]
	assert.Equal(t, 5*50*units.Joule, k.Unattributed-(500*units.Joule-before), "the users before the restart are not known")
	assert.Equal(t, before+15*50*units.Joule, b.energy(identity.ProcessEntity, "1"))
}

func TestAttributionByALateMeterDoesNotAllocate(t *testing.T) {
	for _, window := range []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second} {
		b := newBench(t, Config{})
		var claims []attribution.Claim
		for pid := range int32(200) {
			claims = append(claims, attribution.Claim{Claimant: b.open(pid + 1), CPU: units.CPUTime(window) / 400})
		}
		i := 0
		step := func() {
			age := time.Duration(-1)
			if i++; i%3 == 0 {
				age = 5*time.Second + window/3
			}
			b.pass(window, age, units.Joule, units.CPUTime(window)/2, claims...)
		}
		for range 1000 {
			step()
		}
		assert.Zero(t, allocs.Count(300, step), window)
	}
}
