// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/allocs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

func powerOf(z *Zone, microwatts int64) Shown {
	return Shown{Zone: z, IsPower: true, Power: microwatts}
}

func counterOf(z *Zone, e units.Energy) Shown { return Shown{Zone: z, Counter: e} }

// polled returns the accounts of a poller.
func polled() *accounts { return &accounts{longestGap: time.Minute, late: true} }

// reported returns a total of an epoch, as a hypervisor reports it.
func reported(z *Zone, epoch string, total units.Energy) Shown {
	return Shown{Zone: z, Epoch: epoch, Counter: total}
}

func (as *accounts) takeAfter(d time.Duration, s Shown) Reading { return as.take(&s, after(d)).read() }

func TestACounterThatStandsStillIsAnError(t *testing.T) {
	as, zone := polled(), platform("plug")
	as.maxUnchanged = 10 * time.Second
	as.takeAfter(0, counterOf(zone, 1000))
	moved := as.takeAfter(time.Second, counterOf(zone, 1100))
	for second := time.Duration(2); second < 30; second++ {
		s := counterOf(zone, 1100)
		if second == 20 {
			s.Err = errBroken // time continues to pass
		}
		r := as.takeAfter(second*time.Second, s)
		assert.Equal(t, moved.At, r.At)
		assert.Equal(t, second > 11, r.Err != nil, second)
		if second != 20 && r.Err != nil {
			assert.Equal(t, errNotUpdated, r.Err)
		}
	}
	r := as.takeAfter(time.Minute, counterOf(zone, 4000))
	assert.NoError(t, r.Err)
	assert.Equal(t, units.Energy(3000), r.Total, "energy during the failure")
	as.maxUnchanged = 0
	assert.NoError(t, as.takeAfter(1000*time.Hour, counterOf(zone, 4000)).Err)
}

func TestARejectedPowerBetweenValidPowersLosesNoEnergy(t *testing.T) {
	as, zone := polled(), platform("acpi")
	as.takeAfter(0, powerOf(zone, 100*watt))
	for i, bad := range []int64{math.MaxUint32 * 1000, -5 * watt, math.MinInt64, math.MaxInt64} {
		r := as.takeAfter(time.Duration(i+1)*time.Second, powerOf(zone, bad))
		assert.EqualError(t, r.Err, "4294967295 mW is impossible", "the first error, until there is a valid power")
		assert.Equal(t, Rejected, r.Event)
		assert.Equal(t, int64(i+1), r.Rejected)
	}
	r := as.takeAfter(5*time.Second, powerOf(zone, 300*watt))
	assert.Equal(t, Reading{Zone: zone, Total: 5 * 200 * units.Joule, At: after(5 * time.Second), Rejected: 4, polled: true}, r)
	assert.EqualError(t, as.takeAfter(6*time.Second, powerOf(zone, -1*watt)).Err, "-1000 mW is impossible")
}

func TestEventsBetweenTwoReadsAreCounted(t *testing.T) {
	as, zone := polled(), platform("acpi")
	as.takeAfter(0, powerOf(zone, 100*watt))
	for i := range 10 {
		as.take(&Shown{Zone: zone, IsPower: true, Power: -1}, after(time.Duration(i+1)*10*time.Second))
	}
	r := as.takeAfter(110*time.Second, powerOf(zone, 100*watt))
	assert.Equal(t, Reading{Zone: zone, At: after(110 * time.Second), Event: Rejected, Rejected: 10, Gaps: 1, Unmeasured: 110 * time.Second, polled: true}, r)
}

func TestAZoneThatIsReadInAnotherWayTakesThePlaceOfTheZoneWithItsID(t *testing.T) {
	as, counter, power := polled(), platform("redfish:1"), platform("redfish:1")
	as.takeAfter(0, counterOf(counter, 100))
	as.takeAfter(time.Second, counterOf(counter, 150))
	as.takeAfter(2*time.Second, powerOf(power, 20*watt))
	assert.Equal(t, 20*units.Joule, as.takeAfter(3*time.Second, powerOf(power, 20*watt)).Total)
	assert.Len(t, as.all, 1)
}

func TestACounterThatStandsStillHasNewsIfItIsReadAtOnce(t *testing.T) {
	as, zone := &accounts{}, platform("plug")
	as.takeAfter(0, counterOf(zone, 1))
	assert.Equal(t, after(time.Second), as.takeAfter(time.Second, counterOf(zone, 1)).At)
	as = polled()
	as.takeAfter(0, counterOf(zone, 1))
	assert.Equal(t, after(0), as.takeAfter(time.Second, counterOf(zone, 1)).At)
}

// A counter that is gone for a while counts what powers added meanwhile. That must not be added twice.
func TestAZoneMayReportPowersWhileItsCounterIsGone(t *testing.T) {
	const j = units.Joule
	as, zone := polled(), platform("bmc")
	var r Reading
	take := func(second int, s Shown, want units.Energy, event Event) {
		t.Helper()
		at := time.Duration(second) * time.Second
		if r = as.takeAfter(at, s); r.Total != want || r.Event != event || !r.At.Equal(after(at)) || r.Err != nil {
			t.Errorf("second %d: %+v, want %d µJ and event %d", second, r, want, event)
		}
	}
	power := func(watts int64) Shown { return powerOf(zone, watts*watt) }
	energy := func(joules units.Energy) Shown { return counterOf(zone, joules*j) }
	take(0, power(100), 0, Appeared)
	take(10, power(100), 1000*j, NoEvent)
	take(20, energy(50_000), 1000*j, Appeared) // the energy since the last power is not known
	assert.Equal(t, 10*time.Second, r.Unmeasured)
	take(30, energy(51_000), 2000*j, NoEvent)
	take(40, power(200), 2000*j, Gap) // that of a moment
	take(50, power(200), 4000*j, NoEvent)
	take(60, power(200), 6000*j, NoEvent)
	take(70, energy(58_000), 9000*j, NoEvent) // all that it counted since 30
	take(80, energy(59_000), 10_000*j, NoEvent)
	take(90, power(500), 10_000*j, Gap)
	take(100, power(500), 15_000*j, NoEvent)
	take(110, energy(62_000), 15_000*j, NoEvent) // less than the powers: 2 kJ ahead
	take(120, energy(63_000), 15_000*j, NoEvent)
	take(130, energy(65_000), 16_000*j, NoEvent)
	take(140, power(500), 16_000*j, Gap)
	take(150, power(500), 21_000*j, NoEvent)
	take(160, energy(10), 21_000*j, Rebased) // says nothing of what was before
	take(170, energy(110), 21_100*j, NoEvent)
}

func TestTheRawCounterHasWhatPowersAdded(t *testing.T) {
	as, zone := polled(), platform("bmc")
	raw := as.takeAfter(0, powerOf(zone, 2*watt)).Raw
	assert.True(t, raw.IsZero(), "there was no counter")
	as.takeAfter(time.Second, counterOf(zone, 100*units.Joule))
	as.takeAfter(2*time.Second, powerOf(zone, 2*watt))
	raw = as.takeAfter(3*time.Second, powerOf(zone, 2*watt)).Raw
	assert.Equal(t, Raw{Energy: 102 * units.Joule, MaxWatts: MaxPlatformWatts, At: after(time.Second)}, raw)
}

func TestAZoneWithoutABoundHasThatOfItsKind(t *testing.T) {
	as, zone := polled(), &Zone{ID: "vdd", Kind: Package}
	for i, rejected := range []int64{0, 1} {
		r := as.takeAfter(time.Duration(i)*time.Second, powerOf(zone, (MaxSocketWatts+int64(i))*watt))
		assert.Equal(t, rejected, r.Rejected)
	}
}

func TestATotalSaturates(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	as, zone := polled(), &Zone{ID: "psys", Kind: PSys}
	var r Reading
	for i, raw := range []units.Energy{0, math.MaxUint64 / 2, math.MaxUint64, 0, 1000} {
		r = as.takeAfter(time.Duration(i)*(century/2), counterOf(zone, raw))
	}
	assert.Equal(t, units.Energy(math.MaxUint64), r.Total)
}

func TestAReportedTotalOfAnotherMomentIsNews(t *testing.T) {
	as, zone := polled(), &Zone{ID: "vm", Kind: Package, Method: Reported, MaxWatts: MaxPlatformWatts}
	const j = units.Joule
	for _, c := range []struct {
		second time.Duration
		epoch  string
		total  units.Energy // reported
		want   units.Energy
		at     time.Duration
		event  Event
		err    error
	}{
		{0, "a", 100 * j, 0, 0, Appeared, nil},
		{0, "a", 100 * j, 0, 0, NoEvent, nil},
		{1, "a", 100 * j, 0, 1, NoEvent, nil},
		{2, "a", 150 * j, 50 * j, 2, NoEvent, nil},
		{3, "b", 5000 * j, 50 * j, 3, Rebased, nil},
		{4, "b", 5003 * j, 53 * j, 4, NoEvent, nil},
		{5, "b", 7, 53 * j, 5, Rebased, nil},
		{6, "b", 1 << 60, 53 * j, 5, Rebased, errImpossible},
		{6, "b", 1 << 60, 53 * j, 5, NoEvent, errImpossible},
		{7, "b", 1<<60 + 3, 53*j + 3, 7, NoEvent, nil},
		{8, "", 9, 53*j + 3, 8, Rebased, nil}, // another program
		{9, "", 10, 53*j + 4, 9, NoEvent, nil},
	} {
		r := as.takeAfter(c.second*time.Second, reported(zone, c.epoch, c.total))
		want := Reading{Zone: zone, Total: c.want, At: after(c.at * time.Second), Err: c.err, Event: c.event, polled: true}
		if r.Raw.Epoch != c.epoch && c.err == nil {
			t.Errorf("second %d: %+v", c.second, r.Raw)
		}
		r.Raw = Raw{}
		assert.Equal(t, want, r)
	}
}

func TestATransientCounterHasNoRawValueButARange(t *testing.T) {
	as, zone := &accounts{}, &Zone{ID: "rapl", Kind: Package}
	shown := Shown{Zone: zone, Transient: true, Range: 65_536 * units.Joule}
	as.takeAfter(0, shown)
	shown.Counter = 70_000 * units.Joule
	r := as.takeAfter(time.Minute, shown)
	assert.Equal(t, 70_000*units.Joule, r.Total)
	assert.True(t, r.Raw.IsZero())
	assert.Equal(t, 43*time.Second, r.Raw.wrapsAfter().Truncate(time.Second))
}

func TestAResetIsReportedBeforeOtherEventsOfTheSameTime(t *testing.T) {
	as, zone := polled(), platform("bmc")
	var a *account
	for i, s := range []Shown{counterOf(zone, 100), counterOf(zone, 5), powerOf(zone, watt)} { // Appeared, Rebased, Gap
		a = as.take(&s, after(time.Duration(i)*time.Second))
	}
	assert.Equal(t, Rebased, a.read().Event)
	assert.Equal(t, NoEvent, a.read().Event)
}

// shower is a Source that answers at once.
type shower struct {
	answer Answer
	err    error
	closed int
}

func (s *shower) Answer(context.Context, Sample) (Answer, error) { return s.answer, s.err }
func (s *shower) Close() error                                   { s.closed++; return errBroken }

func TestDirectReturnsTheZonesOfTheAnswer(t *testing.T) {
	a, b := platform("a"), platform("b")
	s := &shower{answer: Answer{Shown: []Shown{counterOf(b, 5), {Zone: a, Err: errBroken}}}}
	m := Direct("powercap", s)
	readings, err := m.Read(t.Context(), Sample{At: after(0)})
	require.NoError(t, err)
	want := []Reading{{Zone: b, At: after(0), Event: Appeared}, {Zone: a, Err: errBroken}}
	want[0].Raw = Raw{Energy: 5, MaxWatts: MaxPlatformWatts, At: after(0)}
	assert.Equal(t, want, readings)
	s.answer = Answer{Shown: []Shown{counterOf(b, 8)}, Warning: fs.ErrPermission}
	readings, err = m.Read(t.Context(), Sample{At: after(time.Second)})
	require.ErrorIs(t, err, fs.ErrPermission)
	require.Len(t, readings, 1)
	assert.Equal(t, units.Energy(3), readings[0].Total)
	s.err = errBroken
	_, err = m.Read(t.Context(), Sample{At: after(time.Second)})
	require.ErrorIs(t, err, errBroken)
	at := time.Second
	s.err = nil
	assert.Zero(t, allocs.Count(100, func() {
		at += time.Second
		_, _ = m.Read(context.Background(), Sample{At: after(at)})
	}))
	require.ErrorIs(t, m.Close(), errBroken)
	require.NoError(t, m.Close())
	assert.Equal(t, 1, s.closed)
	_, err = m.Read(t.Context(), Sample{})
	require.EqualError(t, err, "powercap meter: file already closed")
}

func FuzzAccount(f *testing.F) {
	f.Add(uint64(1000), int64(100*watt), uint64(2000), int64(200*watt), int64(time.Second), int64(10*time.Second))
	f.Add(uint64(math.MaxUint64), int64(-1), uint64(0), int64(math.MaxInt64), int64(-1), int64(-time.Hour))
	f.Add(uint64(0), int64(0), uint64(math.MaxUint64), int64(math.MinInt64), int64(math.MaxInt64), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, raw1 uint64, power1 int64, raw2 uint64, power2, average, elapsed int64) {
		as, zone := polled(), platform("any")
		at, before := after(0), Reading{}
		powers := func(p int64) Shown {
			return Shown{Zone: zone, IsPower: true, Power: p, Average: time.Duration(average)}
		}
		for i, s := range []Shown{
			counterOf(zone, units.Energy(raw1)), powers(power1), powers(power2), counterOf(zone, units.Energy(raw2)),
			{Zone: zone, Err: errBroken}, powerOf(zone, power1), counterOf(zone, units.Energy(raw1)),
		} {
			r := as.take(&s, at).read()
			if r.Total < before.Total || r.Unmeasured < before.Unmeasured || r.Err != nil && !r.At.Equal(before.At) {
				t.Fatalf("shown %d: from %+v to %+v", i, before, r)
			}
			before, at = r, at.Add(time.Duration(elapsed))
		}
	})
}

// FuzzReportedTotals has reports of any totals in any epochs at any times. The data are groups of ten
// bytes: the epoch, the seconds since the previous report, and the total.
func FuzzReportedTotals(f *testing.F) {
	report := func(epoch, seconds byte, total uint64) []byte {
		return binary.LittleEndian.AppendUint64([]byte{epoch, seconds}, total)
	}
	f.Add(slices.Concat(report(0, 10, 5e6), report(0, 10, math.MaxInt64), report(0, 10, 6e6), report(0, 10, math.MaxUint64)))
	f.Add(slices.Concat(report(0, 10, 0), report(0, 1, 17e11), report(0, 1, 34e11), report(0, 1, 51e11)))
	f.Add(slices.Concat(report(0, 10, 0), report(0, 1, 17e11), report(1, 1, 0), report(1, 1, 17e11), report(0, 1, 0), report(0, 1, 17e11)))
	f.Fuzz(func(t *testing.T, data []byte) {
		as, zone := polled(), &Zone{ID: "vm", Kind: Package, Method: Reported, MaxWatts: MaxPlatformWatts}
		elapsed, before := time.Duration(0), Reading{}
		for ; len(data) >= 10; data = data[10:] {
			elapsed += time.Duration(data[1]) * time.Second
			r := as.takeAfter(elapsed, reported(zone, string('a'+data[0]%2), units.Energy(binary.LittleEndian.Uint64(data[2:]))))
			require.GreaterOrEqual(t, r.Total, before.Total)
			require.LessOrEqual(t, float64(r.Total), MaxPlatformWatts*1e6*(elapsed+reportSlack).Seconds(), "after %v", elapsed)
			if r.Err != nil {
				require.Equal(t, before.Total, r.Total)
			}
			before = r
		}
	})
}

var errBroken = errors.New("broken")
