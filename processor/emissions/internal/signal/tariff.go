// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
	_ "time/tzdata" // an image without files has no time zones; 450 kB
)

// Tariff is a Signal of rates that depend on the weekday and the time of day in a place: day and night. A day on which clocks are
// changed has 23 or 25 hours in it, and is charged as its clocks show.
//
// The zero Tariff is not usable; call NewTariff. A Tariff may be used by several goroutines.
type Tariff struct {
	zone  *time.Location
	parts []part // of a week, in order; the first begins with it
}

// part is from a second of the week on. The week begins on Sunday.
type part struct {
	from int64
	rate Rate
}

// Times are hours of some days of the week.
type Times struct {
	// From and Until are minutes of the day, by the clock. Until is not included; where it is not after From, it is on the next day.
	From, Until int
	// Days are those on which it begins: all if there are none.
	Days []time.Weekday
	Rate Rate
}

const (
	minutesOfDay  = 24 * 60
	minutesOfWeek = 7 * minutesOfDay
	secondsOfWeek = 7 * 24 * 3600
	// 1 January 1970 was a Thursday.
	firstSunday = 3 * 24 * 3600
	// maxTariff bounds what Mean adds up: some thousand parts of weeks.
	maxTariff = 10 * 366 * 24 * time.Hour
)

// NewTariff returns a tariff of rates at some times in a time zone, and at all other times the rate other. Without it the times must
// cover the week. The error tells which times overlap or are missing.
func NewTariff(zone *time.Location, times []Times, other *Rate) (*Tariff, error) {
	var week [minutesOfWeek]*Rate
	for i := range times {
		if err := times[i].mark(&week); err != nil {
			return nil, fmt.Errorf("%d: %w", i, err)
		}
	}
	t := &Tariff{zone: zone}
	for minute, rate := range week {
		if rate = cmp.Or(rate, other); rate == nil {
			return nil, fmt.Errorf("no price for %s %s, and none for all other times", time.Weekday(minute/minutesOfDay), clock(minute))
		}
		if n := len(t.parts); n == 0 || t.parts[n-1].rate != *rate {
			t.parts = append(t.parts, part{from: int64(minute) * 60, rate: *rate})
		}
	}
	return t, nil
}

// mark sets the rate of the minutes.
func (t *Times) mark(week *[minutesOfWeek]*Rate) error {
	length := t.Until - t.From
	if length <= 0 {
		length += minutesOfDay
	}
	for day := time.Sunday; day <= time.Saturday; day++ {
		if len(t.Days) > 0 && !slices.Contains(t.Days, day) {
			continue
		}
		begin := int(day)*minutesOfDay + t.From
		for minute := begin; minute < begin+length; minute++ {
			if m := minute % minutesOfWeek; week[m] != nil {
				return fmt.Errorf("%s %s has a price already", time.Weekday(m/minutesOfDay), clock(m))
			}
			week[minute%minutesOfWeek] = &t.Rate
		}
	}
	return nil
}

func clock(minute int) string {
	return fmt.Sprintf("%02d:%02d", minute%minutesOfDay/60, minute%60)
}

// Mean returns the mean of the rates. It is not ok for more than ten years.
func (t *Tariff) Mean(from, until time.Time) (Mean, bool) {
	begin, beginOK := nano(from)
	end, endOK := nano(until)
	if !beginOK || !endOK || begin > end || end-begin > int64(maxTariff) {
		return Mean{}, false
	}
	var sum weighted
	for at := begin; ; {
		rate, next := t.at(at)
		if begin == end {
			return Mean{Rate: rate}, true
		}
		stop := min(next, end)
		sum.add(rate, stop-at)
		if at = stop; at == end {
			return Mean{Rate: sum.mean()}, true
		}
	}
}

// at returns the rate at a moment in ns since 1970, and until when it holds at least. It goes by what the clocks show, and no
// further than until they are changed: no time of day is looked up that there is twice or not at all.
func (t *Tariff) at(nano int64) (Rate, int64) {
	const ns = int64(time.Second)
	now := time.Unix(0, nano).In(t.zone)
	_, offset := now.Zone()
	shown := nano/ns + int64(offset) // seconds since 1970 by the clock
	second := (shown - firstSunday) % secondsOfWeek
	if second < 0 {
		second += secondsOfWeek
	}
	i := sort.Search(len(t.parts), func(i int) bool { return t.parts[i].from > second })
	next := int64(secondsOfWeek)
	if i < len(t.parts) {
		next = t.parts[i].from
	}
	until := (nano/ns + next - second) * ns
	if _, changed := now.ZoneBounds(); !changed.IsZero() {
		until = min(until, changed.UnixNano())
	}
	return t.parts[i-1].rate, until
}

// The errors of ParseClock and ParseWeekday.
var (
	ErrClock   = errors.New(`must be a time of day such as "22:00"`)
	ErrWeekday = errors.New("must be a day of the week: mon, tue, wed, thu, fri, sat or sun")
)

// ParseClock returns the minute of the day of a time from 00:00 to 24:00.
func ParseClock(text string) (int, error) {
	if text == "24:00" {
		return minutesOfDay, nil
	}
	t, err := time.Parse("15:04", text)
	if err != nil || len(text) != len("15:04") {
		return 0, ErrClock
	}
	return t.Hour()*60 + t.Minute(), nil
}

// ParseWeekday returns the day of a name or of its first three letters.
func ParseWeekday(text string) (time.Weekday, error) {
	for day := time.Sunday; day <= time.Saturday; day++ {
		if strings.EqualFold(text, day.String()) || strings.EqualFold(text, day.String()[:3]) {
			return day, nil
		}
	}
	return 0, ErrWeekday
}
