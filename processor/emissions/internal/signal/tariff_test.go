// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func berlin(t testing.TB) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	return zone
}

// night is a tariff of 100 by day, and 40 from 22:00 to 06:00 and on Sundays.
func night(t testing.TB) *Tariff {
	t.Helper()
	day := Rate(100)
	tariff, err := NewTariff(berlin(t), []Times{
		{From: 22 * 60, Until: 6 * 60, Rate: 40},
		{From: 6 * 60, Until: 22 * 60, Days: []time.Weekday{time.Sunday}, Rate: 40},
	}, &day)
	require.NoError(t, err)
	return tariff
}

// tellLocal returns what is told from one time in a zone to another.
func tellLocal(t testing.TB, s Signal, zone *time.Location, from, until string) string {
	t.Helper()
	begin, err := time.ParseInLocation("2006-01-02 15:04", from, zone)
	require.NoError(t, err)
	end, err := time.ParseInLocation("2006-01-02 15:04", until, zone)
	require.NoError(t, err)
	m, ok := s.Mean(begin, end)
	require.True(t, ok)
	assert.False(t, m.Estimated || m.Stale)
	return fmt.Sprint(m.Rate)
}

func TestATariffKnowsDayAndNight(t *testing.T) {
	s := night(t)
	for times, want := range map[[2]string]string{
		{"2026-03-02 06:00", "2026-03-02 22:00"}: "100", // a Monday
		{"2026-03-02 22:00", "2026-03-03 06:00"}: "40",
		{"2026-03-02 21:00", "2026-03-02 23:00"}: "70",
		{"2026-03-02 00:00", "2026-03-03 00:00"}: "80", // (16*100 + 8*40)/24
		{"2026-03-01 00:00", "2026-03-02 06:00"}: "40", // a Sunday
		{"2026-03-01 05:59", "2026-03-01 05:59"}: "40",
		{"2026-03-02 06:00", "2026-03-02 06:00"}: "100",
		{"2026-03-07 22:00", "2026-03-09 06:00"}: "40", // from Saturday to Monday
		{"2026-03-02 00:00", "2026-03-09 00:00"}: "74", // a week: (6*16*100 + (6*8+24)*40)/168 is 74.3
	} {
		assert.Equal(t, want, tellLocal(t, s, berlin(t), times[0], times[1]), "%v", times)
	}
}

func TestADayHas23Or25Hours(t *testing.T) {
	day := Rate(100)
	s, err := NewTariff(berlin(t), []Times{{From: 0, Until: 6 * 60, Rate: 0}}, &day)
	require.NoError(t, err)
	assert.Equal(t, "78", tellLocal(t, s, berlin(t), "2026-03-29 00:00", "2026-03-30 00:00"), "18 of 23 hours")
	assert.Equal(t, "72", tellLocal(t, s, berlin(t), "2026-10-25 00:00", "2026-10-26 00:00"), "18 of 25 hours")
	assert.Equal(t, "75", tellLocal(t, s, berlin(t), "2026-10-26 00:00", "2026-10-27 00:00"), "18 of 24 hours")
}

func TestAnHourThatThereIsTwiceOrNotAtAll(t *testing.T) {
	day := Rate(100)
	s, err := NewTariff(berlin(t), []Times{{From: 2*60 + 30, Until: 3 * 60, Rate: 0}}, &day)
	require.NoError(t, err)
	autumn := time.Date(2026, 10, 25, 0, 0, 0, 0, time.UTC) // 02:00 there, and 02:00 again an hour later
	spring := time.Date(2026, 3, 29, 0, 30, 0, 0, time.UTC) // 01:30 there, and 03:00 half an hour later
	for minutes, want := range map[int]Rate{0: 100, 30: 0, 59: 0, 60: 100, 90: 0, 119: 0, 120: 100} {
		m, ok := s.Mean(autumn.Add(time.Duration(minutes)*time.Minute), autumn.Add(time.Duration(minutes+1)*time.Minute))
		assert.True(t, ok)
		assert.Equal(t, want, m.Rate, minutes)
	}
	m, ok := s.Mean(autumn, autumn.Add(2*time.Hour))
	assert.True(t, ok)
	assert.Equal(t, Rate(50), m.Rate)
	m, ok = s.Mean(spring, spring.Add(2*time.Hour))
	assert.True(t, ok)
	assert.Equal(t, Rate(100), m.Rate, "half past two does not come")
}

// TestATariffIsWhatTheClockShows compares every minute of a year, in zones of all kinds, with the time of day that Go tells.
func TestATariffIsWhatTheClockShows(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC", "Pacific/Apia", "Africa/Casablanca"} {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		other := Rate(7)
		s, err := NewTariff(zone, []Times{
			{From: 23*60 + 30, Until: 2*60 + 15, Days: []time.Weekday{time.Friday, time.Saturday}, Rate: 1},
			{From: 12 * 60, Until: 13 * 60, Rate: 2},
		}, &other)
		require.NoError(t, err)
		begin, sum := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), int64(0)
		minutes := 365 * 24 * 60
		for i := range minutes {
			local := begin.Add(time.Duration(i) * time.Minute).In(zone)
			minute := local.Hour()*60 + local.Minute()
			late := minute >= 23*60+30 && (local.Weekday() == time.Friday || local.Weekday() == time.Saturday)
			early := minute < 2*60+15 && (local.Weekday() == time.Saturday || local.Weekday() == time.Sunday)
			switch {
			case late || early:
				sum++
			case minute/60 == 12:
				sum += 2
			default:
				sum += 7
			}
		}
		wholeYear := time.Duration(minutes) * time.Minute
		m, ok := s.Mean(begin, begin.Add(wholeYear))
		require.True(t, ok)
		assert.Equal(t, Rate((sum+int64(minutes)/2)/int64(minutes)), m.Rate, name)
		var parts weighted
		for i := 0; i < minutes; i += 7 {
			m, _ := s.Mean(begin.Add(time.Duration(i)*time.Minute), begin.Add(time.Duration(min(i+7, minutes))*time.Minute))
			parts.add(m.Rate, int64(min(7, minutes-i)))
		}
		assert.InDelta(t, float64(sum)/float64(minutes), float64(parts.mean()), 1, name)
	}
}

func TestATariffMustCoverTheWeekOnce(t *testing.T) {
	workdays := []time.Weekday{time.Monday, time.Tuesday, time.Wednesday, time.Thursday, time.Friday, time.Saturday}
	_, err := NewTariff(time.UTC, []Times{{From: 6 * 60, Until: 22 * 60, Rate: 1}}, nil)
	assert.EqualError(t, err, "no price for Sunday 00:00, and none for all other times")
	_, err = NewTariff(time.UTC, []Times{
		{From: 22 * 60, Until: 6 * 60, Rate: 1}, {From: 5 * 60, Until: 7 * 60, Days: []time.Weekday{time.Tuesday}, Rate: 2},
	}, new(Rate))
	assert.EqualError(t, err, "1: Tuesday 05:00 has a price already")
	s, err := NewTariff(time.UTC, []Times{{From: 0, Until: 0, Days: []time.Weekday{time.Sunday}, Rate: 5}, {From: 0, Until: 1440, Days: workdays, Rate: 5}}, nil)
	assert.NoError(t, err)
	m, ok := s.Mean(at(0), at(60*24*30))
	assert.True(t, ok)
	assert.Equal(t, Rate(5), m.Rate)
	_, ok = s.Mean(at(0), at(60*24*366*11))
	assert.False(t, ok, "eleven years")
	_, ok = s.Mean(at(1), at(0))
	assert.False(t, ok, "backwards")
}

func TestClocksAndWeekdays(t *testing.T) {
	for text, want := range map[string]int{"00:00": 0, "06:30": 390, "23:59": 1439, "24:00": 1440} {
		got, err := ParseClock(text)
		assert.NoError(t, err)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "6:30", "24:01", "25:00", "06:60", "6 pm", "06:30:00"} {
		_, err := ParseClock(text)
		assert.ErrorIs(t, err, ErrClock, text)
	}
	for text, want := range map[string]time.Weekday{"mon": time.Monday, "Sunday": time.Sunday, "SAT": time.Saturday} {
		got, err := ParseWeekday(text)
		assert.NoError(t, err)
		assert.Equal(t, want, got, text)
	}
	_, err := ParseWeekday("someday")
	assert.ErrorIs(t, err, ErrWeekday)
}
