// SPDX-License-Identifier: Apache-2.0

package power

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

const watt = 1_000_000 // µW

// powerReading is one call of addPower and its result.
type powerReading struct {
	microwatts int64
	average    time.Duration
	at         time.Duration
	energy     units.Energy
	event      Event
}

func TestPowersAreIntegrated(t *testing.T) {
	const s, j = time.Second, units.Joule
	for name, tc := range map[string]struct {
		readings   []powerReading
		unmeasured time.Duration
	}{
		"the first reading is the baseline, whatever it averaged over": {
			[]powerReading{{100 * watt, time.Minute, 0, 0, Appeared}}, 0,
		},
		"powers of a moment change evenly": {[]powerReading{
			{100 * watt, 0, 0, 0, Appeared}, {200 * watt, 0, 10 * s, 1500 * j, NoEvent}, {0, 0, 11 * s, 100 * j, NoEvent},
		}, 0},
		"an average stands for its time, and the rest changes evenly": {[]powerReading{
			{100 * watt, s, 0, 0, Appeared}, {200 * watt, s, 10 * s, 200*j + 9*150*j, NoEvent},
		}, 0},
		"an average reaches back to the reading before, and no further": {[]powerReading{
			{100 * watt, time.Minute, 0, 0, Appeared}, {200 * watt, time.Minute, 5 * s, 1000 * j, NoEvent},
			{300 * watt, 5 * s, 10 * s, 1500 * j, NoEvent},
		}, 0},
		"an average of a negative time is a power of a moment": {[]powerReading{
			{100 * watt, -s, 0, 0, Appeared}, {200 * watt, -s, 10 * s, 1500 * j, NoEvent},
		}, 0},
		"nothing is assumed about a gap": {[]powerReading{
			{100 * watt, 0, 0, 0, Appeared}, {100 * watt, 0, 60 * s, 6000 * j, NoEvent}, {100 * watt, 0, 121 * s, 0, Gap},
			{100 * watt, 0, 122 * s, 100 * j, NoEvent},
		}, 61 * s},
		"but what the sensor averaged over": {[]powerReading{
			{100 * watt, 0, 0, 0, Appeared}, {50 * watt, 60 * s, 100 * s, 3000 * j, Gap},
			{50 * watt, 200 * s, 200 * s, 5000 * j, NoEvent},
		}, 40 * s},
		"an impossible power counts as not made": {[]powerReading{
			{-1, 0, -s, 0, Rejected}, {100 * watt, 0, 0, 0, Appeared}, {-1, 0, s, 0, Rejected},
			{math.MinInt64, s, 2 * s, 0, Rejected}, {1500*watt + 1, 0, 3 * s, 0, Rejected}, {math.MaxInt64, 0, 4 * s, 0, Rejected},
			{200 * watt, 0, 10 * s, 1500 * j, NoEvent},
		}, 0},
		"the highest possible power is not": {[]powerReading{
			{1500 * watt, 0, 0, 0, Appeared}, {1500 * watt, 0, s, 1500 * j, NoEvent},
		}, 0},
		"a gap of impossible powers is a gap": {[]powerReading{
			{100 * watt, 0, 0, 0, Appeared}, {-1, 0, 40 * s, 0, Rejected}, {100 * watt, 0, 80 * s, 0, Gap},
		}, 80 * s},
		"of two readings of one moment the later one holds": {[]powerReading{
			{100 * watt, 0, 0, 0, Appeared}, {300 * watt, 0, 0, 0, NoEvent}, {100 * watt, 0, 10 * s, 2000 * j, NoEvent},
		}, 0},
		"a clock that was set back takes one interval": {[]powerReading{
			{100 * watt, 0, time.Hour, 0, Appeared}, {200 * watt, 0, 0, 0, Rebased}, {200 * watt, 0, 10 * s, 2000 * j, NoEvent},
		}, 0},
		"fractions of a microjoule are carried": {[]powerReading{
			{1, 0, 0, 0, Appeared}, {1, 0, s / 2, 0, NoEvent}, {1, 0, s, 1, NoEvent}, {2, 0, 2 * s, 1, NoEvent},
			{2, 0, 2*s + s/4, 1, NoEvent},
		}, 0},
	} {
		i := newIntegrator(MaxSocketWatts, time.Minute)
		for n, r := range tc.readings {
			energy, event := i.addPower(r.microwatts, r.average, after(r.at))
			assert.Equal(t, r.energy, energy, "%s: reading %d", name, n)
			assert.Equal(t, r.event, event, "%s: reading %d", name, n)
		}
		assert.Equal(t, tc.unmeasured, i.unmeasured, name)
	}
}

func TestAnIntegratorSaturates(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	i := newIntegrator(math.MaxUint64, math.MaxInt64) // no bound
	i.addPower(math.MaxInt64, 0, after(0))
	energy, _ := i.addPower(math.MaxInt64, 0, after(century))
	assert.Equal(t, units.Energy(math.MaxUint64), energy)
	i = newIntegrator(MaxPlatformWatts, 0)
	for n := range 5 {
		i.addPower(watt, 0, after(0).Add(time.Duration(n)*century))
	}
	assert.Equal(t, time.Duration(math.MaxInt64), i.unmeasured)
}

// powerOracle is the integral of readings, exact and as plain as possible. It takes no impossible ones.
type powerOracle struct {
	halves     *big.Int // of a µW ns
	power      int64
	at         time.Duration
	seen       bool
	unmeasured time.Duration
}

func (o *powerOracle) add(power int64, average, at, gap time.Duration) {
	elapsed := at - o.at
	if o.seen && elapsed > 0 {
		covered := max(0, min(average, elapsed))
		product := func(sum *big.Int, d time.Duration) { o.halves.Add(o.halves, sum.Mul(sum, big.NewInt(int64(d)))) }
		product(new(big.Int).Mul(big.NewInt(2), big.NewInt(power)), covered)
		if rest := elapsed - covered; elapsed > gap {
			o.unmeasured += rest
		} else {
			product(new(big.Int).Add(big.NewInt(power), big.NewInt(o.power)), rest)
		}
	}
	o.power, o.at, o.seen = power, at, true
}

// total returns the energy in whole microjoules.
func (o *powerOracle) total() uint64 {
	whole := new(big.Int).Quo(o.halves, big.NewInt(2e9))
	if !whole.IsUint64() {
		return math.MaxUint64
	}
	return whole.Uint64()
}

// The total is the exact integral, to the microjoule, over any number of readings.
func TestAnIntegratorIsExact(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		most := uint64(1) << rng.IntN(40)
		gap := time.Duration(1) << rng.IntN(45)
		i, oracle := newIntegrator(most, gap), &powerOracle{halves: new(big.Int)}
		now, rejected, total := time.Duration(0), 0, units.Energy(0)
		for range 300 {
			now += time.Duration(rng.Int64N(int64(gap) + int64(gap)/8 + 1))
			average := time.Duration(rng.Int64N(int64(gap)+1)) - gap/8
			power := rng.Int64N(int64(most)*1_100_000) - int64(most)*50_000
			energy, event := i.addPower(power, average, after(now))
			total = units.AddSaturating(total, energy)
			if possible := power >= 0 && power <= int64(most)*1_000_000; possible {
				oracle.add(power, average, now, gap)
			} else {
				rejected++
			}
			if (event == Rejected) != (power < 0 || power > int64(most)*1_000_000) {
				t.Fatalf("seed %d: %d µW of at most %d W: event %d", seed, power, most, event)
			}
			if uint64(total) != oracle.total() || i.unmeasured != oracle.unmeasured {
				t.Fatalf("seed %d: %d µJ and %v unmeasured, exactly %d and %v", seed, total, i.unmeasured, oracle.total(), oracle.unmeasured)
			}
		}
		if rejected == 0 {
			t.Fatalf("seed %d: nothing was rejected", seed)
		}
	}
}
