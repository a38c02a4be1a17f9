// SPDX-License-Identifier: Apache-2.0

package power

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// raplRange is max_energy_range_uj of a kernel with units of 61 µJ.
const raplRange units.Energy = 262_143_328_850

var epoch = time.Now() // with a monotonic reading, like samples

// after returns the sample time d after the start of the test.
func after(d time.Duration) time.Time { return epoch.Add(d) }

// step gives a new package counter the reading prev and, elapsed later, cur.
func step(cur, prev, wrapAt units.Energy, elapsed time.Duration) (units.Energy, Event) {
	c := NewCounter(MaxWatts(Package), wrapAt)
	c.Add(prev, after(0))
	return c.Add(cur, after(elapsed))
}

func expectStep(t *testing.T, cur, prev, wrapAt units.Energy, elapsed time.Duration, want units.Energy, event Event) {
	t.Helper()
	if got, e := step(cur, prev, wrapAt, elapsed); got != want || e != event {
		t.Errorf("from %d to %d of %d in %v: delta %d, event %d; want %d, %d", prev, cur, wrapAt, elapsed, got, e, want, event)
	}
}

func TestSpecificationCounterDeltas(t *testing.T) {
	for _, tc := range []struct {
		cur, prev, wrapAt, want units.Energy
		event                   Event
	}{
		{25, 20, 100, 5, NoEvent},
		{10, 90, 100, 20, Wrapped},
		{10, 20, 0, 0, Rebased},
		{7, 7, 100, 0, NoEvent},
	} {
		expectStep(t, tc.cur, tc.prev, tc.wrapAt, time.Minute, tc.want, tc.event)
	}
}

// A counter without a known range may be updated rarely by its driver. If the range is known, the time in which the
// counter stood still must not make a reset look like a wrap.
func TestACounterWithoutARangeIsJudgedByTheTimeSinceItChanged(t *testing.T) {
	for wrapAt, want := range map[units.Energy]Event{0: NoEvent, raplRange: Rebased} {
		c := NewCounter(MaxSocketWatts, wrapAt)
		c.Add(1000, after(0))
		for ms := 10; ms < 1000; ms += 10 {
			c.Add(1000, after(time.Duration(ms)*time.Millisecond))
		}
		if d, event := c.Add(1000+1000*units.Joule, after(time.Second)); event != want || (d > 0) != (want == NoEvent) {
			t.Errorf("range %d: 1 kJ after 1 s: %d, event %d; want event %d", wrapAt, d, event, want)
		}
	}
}

func TestTrap05StepBackFromAboveTheRangeIsRebased(t *testing.T) {
	expectStep(t, 10, 101, 100, time.Hour, 0, Rebased)
	expectStep(t, 10, 100, 100, time.Hour, 10, Wrapped)
}

func TestTrap05SmallStepBackIsNotAWrap(t *testing.T) {
	// With an hour, the power bound would accept each of these as a wrap.
	const back = raplRange >> 14
	expectStep(t, raplRange/2-1, raplRange/2, raplRange, time.Hour, 0, Rebased)
	expectStep(t, raplRange/2-back, raplRange/2, raplRange, time.Hour, 0, Rebased)
	expectStep(t, raplRange/2-back-1, raplRange/2, raplRange, time.Hour, raplRange-back-1, Wrapped)
}

func TestTrap05ResetToZeroIsNotAWrap(t *testing.T) {
	c := NewCounter(MaxWatts(Package), raplRange)
	c.Add(0, after(0))
	c.Add(500*units.Joule, after(10*time.Second))
	if d, e := c.Add(3*units.Joule, after(20*time.Second)); d != 0 || e != Rebased {
		t.Errorf("reset: delta %d, event %d; want 0 and Rebased", d, e)
	}
	if d, e := c.Add(5*units.Joule, after(30*time.Second)); d != 2*units.Joule || e != NoEvent {
		t.Errorf("after the reset: delta %d, event %d; want 2 J", d, e)
	}
	assert.Equal(t, 502*units.Joule, c.Total())
}

func TestTrap05ImpossiblePowerIsAReset(t *testing.T) {
	for kind, watts := range map[Kind]units.Energy{Package: 1500, Core: 1500, Uncore: 1500, DRAM: 1500, PSys: 10_000} {
		// 10 s and the slack of 10 ms.
		most := watts * units.Joule * 1001 / 100
		for _, tc := range []struct {
			prev, cur, want units.Energy
			event           Event
		}{
			{5, 5 + most, most, NoEvent},
			{5, 5 + most + 1, 0, Rebased},
			{raplRange - 5, most - 5, most, Wrapped},
			{raplRange - 5, most - 4, 0, Rebased},
		} {
			c := NewCounter(MaxWatts(kind), raplRange)
			c.Add(tc.prev, after(0))
			d, e := c.Add(tc.cur, after(10*time.Second))
			if d != tc.want || e != tc.event {
				t.Errorf("%s from %d to %d: delta %d, event %d; want %d, %d", kind, tc.prev, tc.cur, d, e, tc.want, tc.event)
			}
		}
	}
}

func TestTimeThatStandsStillOrGoesBackAdmitsTheSlackOnly(t *testing.T) {
	for _, elapsed := range []time.Duration{0, -time.Hour} {
		expectStep(t, 15*units.Joule, 0, raplRange, elapsed, 15*units.Joule, NoEvent)
		expectStep(t, 15*units.Joule+1, 0, raplRange, elapsed, 0, Rebased)
	}
}

func TestCounterTotalSaturates(t *testing.T) {
	c := NewCounter(MaxWatts(PSys), 0)
	c.Add(0, after(0))
	c.Add(math.MaxUint64/2, after(100*365*24*time.Hour))
	c.Add(math.MaxUint64, after(200*365*24*time.Hour))
	c.Add(0, after(200*365*24*time.Hour))
	if d, _ := c.Add(1000, after(201*365*24*time.Hour)); d != 0 || c.Total() != math.MaxUint64 {
		t.Errorf("delta %d, total %d; want it to stay at 2^64-1", d, c.Total())
	}
}

// A counter that only wraps is followed to the microjoule, whatever its range and pace.
func TestSumOfDeltasIsTheTrueEnergy(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		wrapAt := 1_000_000 + rng.Uint64N(uint64(raplRange))
		truth := rng.Uint64N(wrapAt)
		first, now := truth, time.Duration(0)
		c := NewCounter(MaxWatts(Package), units.Energy(wrapAt))
		c.Add(units.Energy(truth%wrapAt), after(now))
		wraps, wrapped := 0, 0
		for range 200 {
			elapsed := time.Duration(rng.Int64N(int64(15 * time.Minute)))
			now += elapsed
			// Less than a whole range without the part that looks like a small step back, and below the power bound.
			most := min(wrapAt-wrapAt>>14-1, MaxSocketWatts*uint64(elapsed)/1000)
			before := truth
			truth += rng.Uint64N(most + 1)
			if truth/wrapAt > before/wrapAt {
				wraps++
			}
			if _, e := c.Add(units.Energy(truth%wrapAt), after(now)); e == Wrapped {
				wrapped++
			} else if e != NoEvent {
				t.Fatalf("seed %d: event %d from %d to %d of %d", seed, e, before, truth, wrapAt)
			}
			require.Equal(t, truth-first, uint64(c.Total()), seed)
		}
		if wraps == 0 || wraps != wrapped {
			t.Fatalf("seed %d: %d wraps seen of %d", seed, wrapped, wraps)
		}
	}
}

func TestACounterWrapsAfterItsWholeRangeAtTheHighestPower(t *testing.T) {
	for _, tc := range []struct {
		kind   Kind
		wrapAt units.Energy
		want   time.Duration
	}{
		{Package, 262_143_328_850, 174_762_219 * time.Microsecond}, // in units of 61 µJ
		{DRAM, 65_712_999_613, 43_808_666 * time.Microsecond},      // in units of 15.3 µJ
		{Core, 262_143_328_850, 174_762_219 * time.Microsecond},
		{PSys, 262_143_328_850, 26_214_332 * time.Microsecond},
		{Package, 1_500_000_000, time.Second},
		{Package, 1_000_000_000, 666_666 * time.Microsecond},
		{Package, 0, 0},
		// No counter is that small. These ranges are mistakes, and must not shorten the windows.
		{Package, 999_999_999, 0},
		{PSys, 100, 0},
		{Package, 1, 0},
		// Longer than a Duration.
		{Package, math.MaxUint64, math.MaxInt64 / 1000 * time.Microsecond},
	} {
		raw := Raw{Range: tc.wrapAt, MaxWatts: MaxWatts(tc.kind)}
		assert.Equal(t, tc.want, raw.wrapsAfter(), "%v, %v", tc.kind, tc.wrapAt)
	}
}

func FuzzCounter(f *testing.F) {
	const second = int64(time.Second)
	f.Add(uint64(100), uint64(20), uint64(25), uint64(90), uint64(10), 60*second, false)
	f.Add(uint64(0), uint64(20), uint64(10), uint64(0), uint64(1), second, false)
	f.Add(uint64(raplRange), uint64(raplRange)-1, uint64(3), uint64(2), uint64(1), second, true)
	f.Add(uint64(math.MaxUint64), uint64(math.MaxUint64), uint64(0), uint64(math.MaxUint64), uint64(0), int64(math.MaxInt64), true)
	f.Add(uint64(100), uint64(101), uint64(1), uint64(100), uint64(0), -second, false)
	f.Fuzz(func(t *testing.T, wrapAt, a, b, c, d uint64, elapsed int64, psys bool) {
		kind := DRAM
		if psys {
			kind = PSys
		}
		counter := NewCounter(MaxWatts(kind), units.Energy(wrapAt))
		at := after(0)
		most := new(big.Int).Mul( // nJ
			new(big.Int).SetUint64(MaxWatts(kind)),
			new(big.Int).SetUint64(uint64(max(elapsed, 0))+uint64(10*time.Millisecond)))
		for i, raw := range []uint64{a, b, c, d} {
			before := counter.Total()
			delta, event := counter.Add(units.Energy(raw), at)
			if counter.Total() < before || counter.Total()-before != delta {
				t.Fatalf("reading %d: total went from %d to %d with a delta of %d", i, before, counter.Total(), delta)
			}
			if (i == 0) != (event == Appeared) {
				t.Fatalf("reading %d: event %d", i, event)
			}
			if (event == Rebased || event == Appeared) && delta != 0 {
				t.Fatalf("reading %d: event %d with a delta of %d", i, event, delta)
			}
			used := new(big.Int).Mul(new(big.Int).SetUint64(uint64(delta)), big.NewInt(1000))
			if used.Cmp(most) > 0 {
				t.Fatalf("reading %d: delta %d is over the bound for %d ns", i, delta, elapsed)
			}
			at = at.Add(time.Duration(elapsed))
		}
	})
}
