// SPDX-License-Identifier: Apache-2.0

package account

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

const second, kWh = uint64(time.Second), uint64(3_600_000_000_000)

// ramp is a rate that is the end of the interval in seconds, in units: which interval was asked for
// shows in the rate. It is known from the second known on.
type ramp struct{ known uint64 }

// Mean implements signal.Signal: 1,000 for each second of the end of the interval, and 1 for each of its beginning.
func (r ramp) Mean(from, until time.Time) (signal.Mean, bool) {
	return signal.Mean{Rate: signal.Rate(until.Unix()*1000 + from.Unix())}, uint64(from.Unix()) >= r.known
}

// newTestAccounts returns accounts that follow from the second 100 on, with a rate that is known from a second on.
func newTestAccounts(known uint64, edit ...func(*Options)) *Accounts {
	o := Options{PUE: 1, MaxSeries: 100, Since: time.Unix(100, 0)}
	o.Signal = ramp{known}
	for _, f := range edit {
		f(&o)
	}
	a := New(o)
	a.Begin(time.Unix(100, 0))
	return a
}

// observe observes a point with times in seconds and energy in kWh, and returns the emissions.
func observe(t *testing.T, a *Accounts, series, start, at, energy uint64) (emissions int64, from uint64, outcome Reason) {
	t.Helper()
	a.Begin(time.Unix(int64(at), 0))
	s, outcome := a.Observe(&Point{Series: series, Origin: 1, Start: start * second, At: at * second, Energy: energy * kWh})
	if s == nil {
		return 0, 0, outcome
	}
	emissions, from, _ = s.Total()
	return emissions, from / second, outcome
}

func TestEnergyHasTheRateOfItsInterval(t *testing.T) {
	a := newTestAccounts(0)
	emissions, from, _ := observe(t, a, 1, 105, 110, 2)
	assert.Equal(t, int64(2*110_105), emissions)
	assert.Equal(t, uint64(105), from)
	emissions, from, _ = observe(t, a, 1, 105, 120, 5)
	assert.Equal(t, int64(2*110_105+3*120_110), emissions)
	assert.Equal(t, uint64(105), from)
}

func TestASeriesThatBeginsHasTheIntervalOfTheOthers(t *testing.T) {
	a := newTestAccounts(0)
	a.Open(1, 102*second)
	observe(t, a, 1, 102, 110, 1)
	observe(t, a, 1, 102, 120, 1)
	emissions, from, _ := observe(t, a, 2, 117, 120, 1)
	assert.Equal(t, int64(120_110), emissions)
	assert.Equal(t, uint64(117), from, "its start time")
	emissions, _, _ = observe(t, a, 3, 102, 120, 1)
	assert.Equal(t, int64(120_110), emissions, "there was nothing of it in the interval before")
	emissions, _, _ = observe(t, a, 4, 122, 130, 1)
	assert.Equal(t, int64(130_120), emissions, "before any other of the collection")
}

func TestASlowMeterDoesNotChangeTheIntervalOfTheOthers(t *testing.T) {
	a := newTestAccounts(0)
	a.Open(1, 102*second)
	for _, c := range []struct{ meter, others uint64 }{{107, 110}, {118, 120}} {
		a.Begin(time.Unix(int64(c.others), 0))
		for series, at := range []uint64{c.meter, c.others, c.others} {
			_, outcome := a.Observe(&Point{Series: uint64(series), Origin: 1, Start: 102 * second, At: at * second, Energy: kWh * (at - 102)})
			require.Equal(t, Counted, outcome)
		}
	}
	s, _ := a.Observe(&Point{Series: 9, Origin: 1, Start: 119 * second, At: 120 * second, Energy: kWh})
	emissions, _, _ := s.Total()
	assert.Equal(t, int64(120_110), emissions)
	emissions, _, _ = a.Lookup(0).Total()
	assert.Equal(t, int64(5*107_102+11*118_107), emissions)
	emissions, _, _ = a.Lookup(1).Total()
	assert.Equal(t, int64(8*110_102+10*120_110), emissions)
}

func TestASeriesThatBeginsHasTheShortestInterval(t *testing.T) {
	a := newTestAccounts(0)
	a.Open(1, 102*second)
	for _, p := range []struct{ series, at uint64 }{{1, 110}, {2, 110}, {2, 120}, {1, 130}, {2, 130}} {
		observe(t, a, p.series, 102, p.at, p.at)
	}
	emissions, _, _ := observe(t, a, 3, 125, 130, 1)
	assert.Equal(t, int64(130_120), emissions, "not that of series 1, which is read less often")
}

func TestEnergyOfBeforeDoesNotCount(t *testing.T) {
	a := newTestAccounts(0)
	emissions, from, _ := observe(t, a, 1, 50, 110, 1000)
	assert.Zero(t, emissions)
	assert.Equal(t, uint64(110), from)
	emissions, from, _ = observe(t, a, 1, 50, 120, 1001)
	assert.Equal(t, int64(120_110), emissions)
	assert.Equal(t, uint64(110), from)
	emissions, from, _ = observe(t, a, 2, 0, 120, 1000)
	assert.Zero(t, emissions, "the start is not known")
	assert.Equal(t, uint64(120), from)
}

func TestACounterThatBeginsAnewBeginsAnotherSum(t *testing.T) {
	a := newTestAccounts(0)
	observe(t, a, 1, 105, 110, 5)
	emissions, from, outcome := observe(t, a, 1, 115, 120, 7)
	assert.Equal(t, Counted, outcome)
	assert.Equal(t, int64(7*120_110), emissions, "though its value is larger")
	assert.Equal(t, uint64(115), from)
}

func TestWhatIsInconsistentDoesNotCount(t *testing.T) {
	a := newTestAccounts(0)
	before, from, _ := observe(t, a, 1, 105, 110, 5)
	emissions, since, outcome := observe(t, a, 1, 105, 120, 4)
	assert.Equal(t, Inconsistent, outcome, "less, but the same start time")
	assert.Equal(t, []any{before, from}, []any{emissions, since})
	emissions, _, outcome = observe(t, a, 1, 107, 130, 50)
	assert.Equal(t, Inconsistent, outcome, "another start time, from before the last point: two write the same series")
	assert.Equal(t, before, emissions)
	emissions, _, outcome = observe(t, a, 1, 107, 140, 51)
	assert.Equal(t, Counted, outcome)
	assert.Equal(t, before+140_130, emissions)
}

func TestAPointThatComesAgainChangesNothing(t *testing.T) {
	a := newTestAccounts(0)
	observe(t, a, 1, 105, 110, 5)
	once, _, _ := observe(t, a, 1, 105, 120, 6)
	again, _, outcome := observe(t, a, 1, 105, 120, 6)
	assert.Equal(t, Counted, outcome)
	assert.Equal(t, once, again)
	_, _, outcome = observe(t, a, 1, 105, 110, 5)
	assert.Equal(t, OutOfOrder, outcome)
	next, _, _ := observe(t, a, 1, 105, 130, 7)
	assert.Equal(t, once+130_120, next)
}

func TestEnergyWithoutARateIsMissed(t *testing.T) {
	a := newTestAccounts(120)
	a.Open(1, 102*second)
	a.Begin(time.Unix(110, 0))
	s, _ := a.Observe(&Point{Series: 1, Origin: 1, Start: 102 * second, At: 110 * second, Energy: 5 * kWh})
	assert.Equal(t, 5*kWh, a.Missed)
	_, _, ok := s.Total()
	assert.False(t, ok, "no rate was ever known")
	observe(t, a, 1, 102, 120, 6)
	emissions, from, _ := observe(t, a, 1, 102, 130, 8)
	assert.Zero(t, a.Missed)
	assert.Equal(t, int64(2*130_120), emissions)
	assert.Equal(t, uint64(120), from, "since when the rate is known")
}

func TestValuesStandStillWhileThereIsNoRate(t *testing.T) {
	gap := &gap{}
	a := newTestAccounts(0, func(o *Options) { o.Signal = gap })
	before, from, _ := observe(t, a, 1, 105, 110, 5)
	gap.unknown = true
	still, since, _ := observe(t, a, 1, 105, 120, 6)
	assert.Equal(t, []any{before, from}, []any{still, since})
	assert.Equal(t, kWh, a.Missed)
	gap.unknown = false
	after, since, _ := observe(t, a, 1, 105, 130, 8)
	assert.Equal(t, before+2*130_120, after)
	assert.Equal(t, from, since)
}

type gap struct {
	ramp
	unknown bool
}

func (g *gap) Mean(from, until time.Time) (signal.Mean, bool) {
	m, _ := g.ramp.Mean(from, until)
	return m, !g.unknown
}

// moving is a rate that is another one each time it is asked for.
type moving struct{ asked int64 }

func (m *moving) Mean(_, _ time.Time) (signal.Mean, bool) {
	m.asked++
	return signal.Mean{Rate: signal.Rate(m.asked)}, true
}

func TestAnIntervalHasOneRate(t *testing.T) {
	a := newTestAccounts(0, func(o *Options) { o.Signal = &moving{} })
	a.Open(1, 102*second)
	for series := range uint64(50) { // in batches of their own
		emissions, _, _ := observe(t, a, series, 102, 110, 1)
		require.Equal(t, int64(1), emissions)
	}
	for series := range uint64(50) {
		emissions, _, _ := observe(t, a, series, 102, 120, 2)
		require.Equal(t, int64(1+2), emissions)
	}
}

func TestSeriesBeyondTheLimitAreNotFollowed(t *testing.T) {
	a := newTestAccounts(0, func(o *Options) { o.MaxSeries = 2 })
	observe(t, a, 1, 105, 110, 1)
	observe(t, a, 2, 105, 110, 1)
	_, _, outcome := observe(t, a, 3, 105, 110, 1)
	assert.Equal(t, Full, outcome)
	assert.Equal(t, 2, a.Len())
	observe(t, a, 1, 105, 120, 2)
	a.Forget(time.Unix(115, 0))
	assert.Equal(t, 1, a.Len())
	emissions, from, _ := observe(t, a, 3, 105, 130, 5)
	assert.Zero(t, emissions, "what it used while it was not followed is not known")
	assert.Equal(t, uint64(130), from)
	emissions, _, _ = observe(t, a, 3, 105, 140, 6)
	assert.Equal(t, int64(140_130), emissions)
}

func TestASeriesThatWasForgottenIsNotCountedTwice(t *testing.T) {
	a := newTestAccounts(0)
	observe(t, a, 1, 105, 110, 100)
	observe(t, a, 2, 105, 110, 1)
	observe(t, a, 2, 105, 5000, 2)
	a.Forget(time.Unix(4000, 0))
	assert.Equal(t, 1, a.Len())
	emissions, from, _ := observe(t, a, 1, 105, 5000, 101)
	assert.Zero(t, emissions)
	assert.Equal(t, uint64(5000), from)

	observe(t, a, 2, 105, 9000, 3)
	a.Forget(time.Unix(8000, 0))
	emissions, from, _ = observe(t, a, 1, 8950, 9000, 4)
	assert.Equal(t, int64(4*9_005_000), emissions, "its counter began anew")
	assert.Equal(t, uint64(8950), from)
}

func TestTheMemoryOfForgottenSeriesIsBounded(t *testing.T) {
	a := newTestAccounts(0, func(o *Options) { o.MaxSeries = 5 })
	for i := range uint64(1000) {
		observe(t, a, i, 105, 110+i, 1)
		if i%5 == 4 {
			a.Forget(time.Unix(int64(111+i), 0))
		}
		require.LessOrEqual(t, len(a.forgotten), 5)
		require.LessOrEqual(t, len(a.origins), 5)
	}
	emissions, _, _ := observe(t, a, 1, 105, 2000, 2)
	assert.Zero(t, emissions, "whatever began before is not counted")
}

func TestManyForgottenSeriesDoNotKeepLaterOnesFromCounting(t *testing.T) {
	a := newTestAccounts(0, func(o *Options) { o.MaxSeries = 5 })
	forgetAll := func(at int64) {
		a.Begin(time.Unix(at, 0))
		a.Forget(time.Unix(at, 0))
	}
	for i := range uint64(5) {
		observe(t, a, 10+i, 105, 110, 1)
	}
	forgetAll(200)
	observe(t, a, 1, 150, 160, 1)
	forgetAll(2000)
	emissions, _, _ := observe(t, a, 2, 1995, 2005, 3)
	assert.Equal(t, int64(3*2_006_995), emissions, "it began before the others were too many, but after they ended")

	for i := range uint64(10) {
		a.Begin(time.Unix(3000, 0))
		a.Observe(&Point{Series: 20 + i, Origin: 2, At: 1e9 * second, Energy: kWh})
		forgetAll(3001)
	}
	emissions, _, _ = observe(t, a, 3, 3995, 4000, 1)
	assert.Equal(t, int64(4_003_995), emissions, "the clock of the others is wrong")
}

func TestACounterWhoseStartIsNotKnownCountsFromItsFirstPointOn(t *testing.T) {
	a := newTestAccounts(0)
	before, _, _ := observe(t, a, 1, 105, 110, 5)
	require.NotZero(t, before)
	emissions, from, outcome := observe(t, a, 1, 120, 120, 1_000_000)
	assert.Equal(t, Inconsistent, outcome, "the start time is that of the point")
	assert.Zero(t, emissions)
	assert.Equal(t, uint64(120), from)
	emissions, from, outcome = observe(t, a, 1, 120, 130, 1_000_002)
	assert.Equal(t, Counted, outcome)
	assert.Equal(t, int64(2*130_120), emissions)
	assert.Equal(t, uint64(120), from)
}

func TestACounterWithoutStartTimes(t *testing.T) {
	a := newTestAccounts(0)
	var got []any
	for _, p := range []struct{ at, energy uint64 }{{110, 1000}, {120, 1002}, {130, 7}, {140, 8}} {
		emissions, from, outcome := observe(t, a, 1, 0, p.at, p.energy)
		assert.Equal(t, uint64(110), from)
		got = append(got, emissions, outcome)
	}
	sum := int64(2 * 120_110)
	assert.Equal(t, []any{int64(0), Counted, sum, Counted, sum, Inconsistent, sum + 140_130, Counted}, got,
		"where it is less, nobody knows what of it was used since the point before")
}

func TestAStartTimeMayDrift(t *testing.T) {
	a := newTestAccounts(0)
	for i := range uint64(100) {
		start := 105*second + i*50_000_000
		_, outcome := a.Observe(&Point{Series: 1, Origin: 1, Start: start, At: (200 + i) * second, Energy: i * kWh})
		require.Equal(t, Counted, outcome, "a clock that is set right little by little")
	}
}
