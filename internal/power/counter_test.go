// SPDX-License-Identifier: Apache-2.0

package power

import (
	"fmt"
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

func TestSpecificationCounterDeltas(t *testing.T) {
	const (
		back = raplRange >> 14                    // with an hour, the power bound accepts each of these as a wrap
		most = 1500 * 10_010 * units.Joule / 1000 // in 10 s and the slack of 10 ms
	)
	var deltas []units.Energy
	for _, tc := range []struct {
		cur, prev, wrapAt units.Energy
		elapsed           time.Duration
		want              units.Energy
		event             Event
	}{
		{25, 20, 100, time.Minute, 5, NoEvent},
		{10, 90, 100, time.Minute, 20, Wrapped},
		{10, 20, 0, time.Minute, 0, Rebased},
		{7, 7, 100, time.Minute, 0, NoEvent},
		{10, 101, 100, time.Hour, 0, Rebased},
		{10, 100, 100, time.Hour, 10, Wrapped},
		{raplRange/2 - 1, raplRange / 2, raplRange, time.Hour, 0, Rebased},
		{raplRange/2 - back, raplRange / 2, raplRange, time.Hour, 0, Rebased},
		{raplRange/2 - back - 1, raplRange / 2, raplRange, time.Hour, raplRange - back - 1, Wrapped},
		{3 * units.Joule, 500 * units.Joule, raplRange, 10 * time.Second, 0, Rebased},
		{most - 5, raplRange - 5, raplRange, 10 * time.Second, most, Wrapped},
		{most - 4, raplRange - 5, raplRange, 10 * time.Second, 0, Rebased},
		{15 * units.Joule, 0, raplRange, 0, 15 * units.Joule, NoEvent},
		{15*units.Joule + 1, 0, raplRange, 0, 0, Rebased},
		{15 * units.Joule, 0, raplRange, -time.Hour, 15 * units.Joule, NoEvent},
		{15*units.Joule + 1, 0, raplRange, -time.Hour, 0, Rebased},
	} {
		c := newCounter(MaxWatts(Package), tc.wrapAt, "")
		c.add(tc.prev, after(0))
		got, e := c.add(tc.cur, after(tc.elapsed))
		deltas = append(deltas, got)
		assert.Equal(t, tc.want, got, tc)
		assert.Equal(t, tc.event, e, tc)
		next, e := c.add(tc.cur+5, after(max(tc.elapsed, 0)+time.Second))
		assert.Equal(t, units.Energy(5), next, "%v: the next step is from the last value", tc)
		assert.Equal(t, NoEvent, e, tc)
	}
	t.Attr("wraparound", fmt.Sprint(deltas[1:3]))
}

// A counter without a known range may be updated rarely by its driver. If the range is known, the time in which the
// counter stood still must not make a reset look like a wrap.
func TestACounterWithoutARangeIsJudgedByTheTimeSinceItChanged(t *testing.T) {
	for wrapAt, want := range map[units.Energy]Event{0: NoEvent, raplRange: Rebased} {
		c := newCounter(MaxSocketWatts, wrapAt, "")
		c.add(1000, after(0))
		c.add(1000, after(990*time.Millisecond))
		d, event := c.add(1000+1000*units.Joule, after(time.Second))
		assert.Equal(t, want, event, "1 kJ after 1 s, range %d", wrapAt)
		assert.Equal(t, want == NoEvent, d > 0)
	}
}

// A counter that only wraps is followed to the microjoule, whatever its range and pace.
func TestSumOfDeltasIsTheTrueEnergy(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		wrapAt := 1_000_000 + rng.Uint64N(uint64(raplRange))
		truth := rng.Uint64N(wrapAt)
		first, now := truth, time.Duration(0)
		c := newCounter(MaxWatts(Package), units.Energy(wrapAt), "")
		c.add(units.Energy(truth%wrapAt), after(now))
		total := uint64(0)
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
			d, e := c.add(units.Energy(truth%wrapAt), after(now))
			if total += uint64(d); e == Wrapped {
				wrapped++
			} else if e != NoEvent {
				t.Fatalf("seed %d: event %d from %d to %d of %d", seed, e, before, truth, wrapAt)
			}
			require.Equal(t, truth-first, total, seed)
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
		{PSys, 262_143_328_850, 26_214_332 * time.Microsecond},
		{Package, 1_000_000_000, 666_666 * time.Microsecond},
		{Package, 0, 0},
		// No counter is that small. These ranges are mistakes, and must not shorten the windows.
		{Package, 999_999_999, 0},
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
		counter := newCounter(MaxWatts(kind), units.Energy(wrapAt), "")
		at := after(0)
		most := new(big.Int).Mul( // nJ
			new(big.Int).SetUint64(MaxWatts(kind)),
			new(big.Int).SetUint64(uint64(max(elapsed, 0))+uint64(10*time.Millisecond)))
		for i, raw := range []uint64{a, b, c, d} {
			delta, event := counter.add(units.Energy(raw), at)
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
