// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	_ Signal = Constant(0)
	_ Signal = (*Timeline)(nil)
	_ Signal = (*Poller)(nil)
)

// noon is a moment; at(x) is x minutes after it.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(minutes float64) time.Time { return noon.Add(time.Duration(minutes * float64(time.Minute))) }

func period(from, until float64, rate Rate) Period {
	return Period{From: at(from), Until: at(until), Rate: rate}
}

func put(t testing.TB, line *Timeline, now float64, periods ...Period) {
	t.Helper()
	require.NoError(t, line.Put(at(now), periods))
}

// tell returns the mean of some minutes as text.
func tell(line Signal, from, until float64) string {
	m, ok := line.Mean(at(from), at(until))
	if !ok {
		return "unknown"
	}
	text := fmt.Sprint(m.Rate)
	if m.Estimated {
		text += " estimated"
	}
	if m.Stale {
		text += " stale"
	}
	return text
}

func TestTheRateOfAMomentIsThatOfItsPeriod(t *testing.T) {
	line := NewTimeline(10 * time.Minute)
	put(t, line, 0, period(0, 30, 100), period(30, 60, 400))
	assert.Equal(t, "100", tell(line, 0, 0))
	assert.Equal(t, "400", tell(line, 30, 30))
	assert.Equal(t, "400 stale", tell(line, 60, 60))
	assert.Equal(t, "unknown", tell(line, 70, 70))
}

func TestWhatNobodyToldIsUnknown(t *testing.T) {
	line := NewTimeline(0)
	assert.Equal(t, "unknown", tell(line, 0, 1), "nothing was told yet")
	line = NewTimeline(0)
	put(t, line, 0, period(0, 10, 100), period(20, 30, 300))
	assert.Equal(t, "unknown", tell(line, -1, 5), "before the first period")
	assert.Equal(t, "unknown", tell(line, 5, 15), "a gap")
	assert.Equal(t, "unknown", tell(line, 10, 20), "a gap")
	assert.Equal(t, "unknown", tell(line, 25, 31), "after the last period")
	assert.Equal(t, "unknown", tell(line, 5, 4), "backwards")
	assert.Equal(t, "300", tell(line, 20, 30))
	for _, year := range []int{0, 1, 1969, 2300, 9999} {
		_, ok := line.Mean(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), at(5))
		assert.False(t, ok, year)
		_, ok = line.Mean(at(5), time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))
		assert.False(t, ok, year)
	}
}

func TestARateHoldsForItsMaximumAge(t *testing.T) {
	line := NewTimeline(5 * time.Minute)
	put(t, line, 0, period(0, 10, 100), period(20, 30, 300))
	assert.Equal(t, "100", tell(line, 9, 10))
	assert.Equal(t, "100 stale", tell(line, 9, 11))
	assert.Equal(t, "100 stale", tell(line, 10, 15))
	assert.Equal(t, "unknown", tell(line, 10, 16))
	assert.Equal(t, "300 stale", tell(line, 20, 35))
	assert.Equal(t, "unknown", tell(line, 20, 35.01))
}

func TestAnEstimateIsTold(t *testing.T) {
	line := NewTimeline(0)
	estimate := period(10, 20, 200)
	estimate.Estimated = true
	put(t, line, 0, period(0, 10, 100), estimate)
	assert.Equal(t, "100", tell(line, 0, 10))
	assert.Equal(t, "150 estimated", tell(line, 0, 20))
}

func TestWhatWasUsedStaysUsed(t *testing.T) {
	line := NewTimeline(60 * time.Minute)
	put(t, line, 0, period(0, 30, 100), period(30, 60, 200))
	assert.Equal(t, "100", tell(line, 0, 10))
	put(t, line, 11, period(0, 30, 999), period(30, 60, 888)) // corrects the past and the future
	assert.Equal(t, "100", tell(line, 0, 10), "as it was used")
	assert.Equal(t, "999", tell(line, 10, 20))
	assert.Equal(t, "888", tell(line, 30, 60))
	assert.Equal(t, "888 stale", tell(line, 70, 75))
	put(t, line, 76, period(60, 90, 300))
	assert.Equal(t, "888 stale", tell(line, 70, 75), "as it was used")
	assert.Equal(t, "300", tell(line, 75, 90))
}

func TestWhatWasUnknownStaysUnknown(t *testing.T) {
	line := NewTimeline(5 * time.Minute)
	assert.Equal(t, "unknown", tell(line, 0, 10))
	put(t, line, 11, period(0, 60, 100))
	assert.Equal(t, "unknown", tell(line, 0, 10))
	assert.Equal(t, "100", tell(line, 10, 20))

	line = NewTimeline(5 * time.Minute)
	put(t, line, 0, period(0, 10, 100))
	assert.Equal(t, "unknown", tell(line, 0, 20))
	put(t, line, 21, period(0, 60, 200))
	assert.Equal(t, "100 stale", tell(line, 10, 15))
	assert.Equal(t, "unknown", tell(line, 0, 20))
	assert.Equal(t, "200", tell(line, 20, 30))
}

func TestAMomentInTheFutureDoesNotKeepThePresentFromBeingKnown(t *testing.T) {
	line := NewTimeline(0)
	tell(line, 0, 50*365*24*60) // a machine whose clock is wrong
	put(t, line, 10, period(0, 60, 100))
	assert.Equal(t, "100", tell(line, 10, 60))
}

func TestAnAnswerKeepsWhatWasKnownBeforeIt(t *testing.T) {
	line := NewTimeline(0)
	put(t, line, 0, period(0, 5, 100), period(5, 10, 200), period(10, 15, 300))
	put(t, line, 2, period(5, 8, 222)) // the forecast of the rest is withdrawn
	assert.Equal(t, "100", tell(line, 0, 5))
	assert.Equal(t, "222", tell(line, 5, 8))
	assert.Equal(t, "unknown", tell(line, 8, 9))
}

func TestAForecastThatIsWithdrawnHoldsFromThen(t *testing.T) {
	line := NewTimeline(5 * time.Minute)
	put(t, line, 0, period(0, 60, 100))
	assert.Equal(t, "100", tell(line, 0, 30))
	put(t, line, 30, period(0, 10, 1), period(50, 60, 2))
	assert.Equal(t, "100 stale", tell(line, 30, 35))
	assert.Equal(t, "unknown", tell(line, 35, 36))
	assert.Equal(t, "2", tell(line, 50, 60))
}

func TestWhatHoldsForLongIsOneSpan(t *testing.T) {
	line := NewTimeline(100 * time.Minute)
	for now := 10.0; now < 100; now++ {
		put(t, line, now, period(0, 10, 100))
		assert.Equal(t, "100 stale", tell(line, now, now+1))
	}
	assert.Len(t, line.spans, 2)
}

func TestWhatEndedLongAgoIsDropped(t *testing.T) {
	line := NewTimeline(time.Hour)
	for day := range 10 {
		var periods []Period
		for hour := range 24 {
			periods = append(periods, period(float64(day*1440+hour*60), float64(day*1440+hour*60+60), Rate(hour)))
		}
		put(t, line, float64(day*1440), periods...)
	}
	assert.Less(t, len(line.spans), 60)
}

func TestImpossiblePeriodsAreErrors(t *testing.T) {
	line := NewTimeline(time.Hour)
	put(t, line, 0, period(0, 10, 100))
	for want, periods := range map[error][]Period{
		ErrOverlap: {period(0, 10, 1), period(9, 20, 2)},
		ErrEmpty:   {period(10, 10, 1)},
		ErrTime:    {{From: time.Time{}, Until: at(1)}},
		ErrMany:    make([]Period, MaxPeriods+1),
	} {
		assert.ErrorIs(t, line.Put(at(0), periods), want)
	}
	assert.NoError(t, line.Put(at(0), nil))
	assert.Equal(t, "100", tell(line, 0, 10), "as before")
}

// TestAnAnswerNeverChanges puts random periods while random times are asked for, and asks for all
// of them again at the end.
func TestAnAnswerNeverChanges(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		line := NewTimeline(time.Duration(random.IntN(20)) * time.Minute)
		type question struct{ from, until float64 }
		told := map[question]string{}
		for now := 0.0; now < 120; now += float64(1 + random.IntN(5)) {
			var periods []Period
			for from := now - float64(random.IntN(30)); from < now+30; {
				until := from + float64(1+random.IntN(10))
				periods = append(periods, period(from, until, Rate(random.IntN(100))))
				from = until + float64(max(0, random.IntN(12)-8))
			}
			put(t, line, now, periods...)
			from := now - float64(random.IntN(10))
			q := question{from, now}
			if before, ok := told[q]; ok {
				require.Equal(t, before, tell(line, q.from, q.until))
			}
			told[q] = tell(line, q.from, q.until)
		}
		for q, before := range told {
			require.Equal(t, before, tell(line, q.from, q.until), "%v", q)
		}
	}
}

func TestAMeanIsWeightedByLength(t *testing.T) {
	line := NewTimeline(5 * time.Minute) // a rate ends where the next period begins
	put(t, line, 0, period(30, 60, 400), period(0, 30, 100), period(60, 90, 50))
	assert.Equal(t, "100", tell(line, 0, 30))
	assert.Equal(t, "250", tell(line, 0, 60))
	assert.Equal(t, "183", tell(line, 0, 90))
	assert.Equal(t, "50", tell(line, 60, 90))
	assert.Equal(t, "325", tell(line, 29, 33))
}

func TestTimelinesAreUsedByManyGoroutines(t *testing.T) {
	line := NewTimeline(time.Hour)
	put(t, line, 0, period(0, 60, 1))
	first := make([]string, 60)
	for i := range first {
		first[i] = tell(line, float64(i), float64(i+1))
	}
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for n := range 500 {
				if g == 0 {
					assert.NoError(t, line.Put(at(60), []Period{period(0, 120, Rate(n))}))
				} else {
					assert.Equal(t, first[n%60], tell(line, float64(n%60), float64(n%60+1)))
				}
			}
		})
	}
	all.Wait()
}

func TestMeansDoNotAllocate(t *testing.T) {
	line := NewTimeline(time.Hour)
	put(t, line, 0, period(0, 30, 100), period(30, 60, 300))
	for _, s := range []Signal{line, Constant(1)} {
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			if _, ok := s.Mean(at(1), at(59)); !ok {
				t.Fatal("unknown")
			}
		}), "%T", s)
	}
}
