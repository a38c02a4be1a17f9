// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"cmp"
	"errors"
	"slices"
	"sort"
	"sync"
	"time"
)

// Timeline is a Signal of the periods that a provider reported: past, present and forecast.
//
// The rate of a period also holds after it, for at most the timeline's maximum age or until the
// next period begins, and is stale then. Other times have no rate.
//
// Results of Mean do not change: a later call for the same time returns the same result. So Put has
// no effect before the latest time of a call of Mean.
//
// The zero Timeline is not usable; call NewTimeline. A Timeline may be used by several goroutines.
type Timeline struct {
	maxAge int64 // ns

	mu    sync.Mutex // held for no longer than it takes to copy the spans
	spans []span     // in order, without overlap; a slice is never changed once it is here
	used  int64      // the latest time for which Mean was called, in ns since 1970
}

// span is a time with a constant rate, in ns since 1970.
type span struct {
	from, until      int64
	holds            int64 // until when the rate holds if no span follows; at least until
	rate             Rate
	estimated, stale bool
}

const (
	// kept is the time from the end of a period to its removal, because data may be delivered late.
	kept = 24 * time.Hour
	// MaxPeriods is the maximum number of periods in one Put. A year has about 35,000 quarter hours.
	MaxPeriods = 50_000
	// maxNano is the latest moment that can be represented, in the year 2262.
	maxNano = 1<<63 - 1
)

// NewTimeline returns a timeline without periods. A rate holds for up to maxAge after its period.
func NewTimeline(maxAge time.Duration) *Timeline {
	return &Timeline{maxAge: max(0, int64(maxAge))}
}

// The errors of Put.
var (
	ErrOverlap = errors.New("two periods overlap")
	ErrEmpty   = errors.New("a period ends before it begins")
	ErrMany    = errors.New("there are too many periods")
	ErrTime    = errors.New("a period's time is out of range")
)

// Put replaces the rates from the first of the periods on, which may be in any order. It keeps
// earlier rates, and all rates that Mean has used. It drops rates that ended long before now. If it
// returns an error, nothing has changed.
func (t *Timeline) Put(now time.Time, periods []Period) error {
	news, err := t.parse(periods)
	if err != nil || len(news) == 0 {
		return err
	}
	oldest := now.Add(-kept).UnixNano()
	t.mu.Lock()
	defer t.mu.Unlock()
	// A moment in the future, of data from a machine whose clock is wrong, must not keep rates of
	// the past from being added.
	fixed := min(t.used, now.UnixNano())
	next := make([]span, 0, len(t.spans)+len(news)+1)
	for _, s := range t.spans {
		if s.holds > oldest {
			next = append(next, s)
		}
	}
	next = t.fix(next, max(fixed, news[0].from), fixed)
	for _, s := range news {
		if s.until > fixed && s.holds > oldest {
			s.from = max(s.from, fixed)
			next = append(next, s)
		}
	}
	t.spans = next
	return nil
}

// parse returns the periods in order.
func (t *Timeline) parse(periods []Period) ([]span, error) {
	if len(periods) > MaxPeriods {
		return nil, ErrMany
	}
	spans := make([]span, len(periods))
	for i, p := range periods {
		from, fromOK := nano(p.From)
		until, untilOK := nano(p.Until)
		switch {
		case !fromOK || !untilOK:
			return nil, ErrTime
		case from >= until:
			return nil, ErrEmpty
		}
		spans[i] = span{from: from, until: until, holds: t.holds(until), rate: p.Rate, estimated: p.Estimated}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for i := 1; i < len(spans); i++ {
		if spans[i].from < spans[i-1].until {
			return nil, ErrOverlap
		}
	}
	return spans, nil
}

// fix removes the spans after the time cut, at which new spans begin. fixed is not after cut. Up to
// fixed, the rate that the last span holds becomes permanent, so that new spans do not change it.
func (t *Timeline) fix(spans []span, cut, fixed int64) []span {
	spans = spans[:sort.Search(len(spans), func(i int) bool { return spans[i].from >= cut })]
	if len(spans) == 0 {
		return spans
	}
	last := &spans[len(spans)-1]
	if last.until > cut {
		last.until, last.holds = cut, min(last.holds, t.holds(cut))
	}
	end := min(last.holds, fixed)
	switch {
	case end <= last.until:
	case last.stale:
		last.until = end
	default:
		held := *last
		held.from, held.until, held.stale = last.until, end, true
		spans = append(spans, held)
	}
	return spans
}

// Mean returns the mean of the rates. It is not ok if a part of the time has no rate. It waits at
// most for the copy of the spans in Put, and does not allocate.
func (t *Timeline) Mean(from, until time.Time) (Mean, bool) {
	begin, beginOK := nano(from)
	end, endOK := nano(until)
	if !beginOK || !endOK || begin > end {
		return Mean{}, false
	}
	t.mu.Lock()
	spans := t.spans
	t.used = max(t.used, end, begin+1) // Mean also returns the rate at a single moment
	t.mu.Unlock()
	return mean(spans, begin, end)
}

func mean(spans []span, begin, end int64) (Mean, bool) {
	i := sort.Search(len(spans), func(i int) bool { return spans[i].from > begin }) - 1
	if i < 0 {
		return Mean{}, false
	}
	var sum weighted
	var m Mean
	for at := begin; ; i++ {
		s := &spans[i]
		holds := s.holds
		if i+1 < len(spans) {
			holds = min(holds, spans[i+1].from)
		}
		if at < s.from || at >= holds { // a gap
			return Mean{}, false
		}
		stop := min(holds, end)
		m.Estimated = m.Estimated || s.estimated
		m.Stale = m.Stale || s.stale || max(stop, at+1) > s.until
		if begin == end {
			m.Rate = s.rate
			return m, true
		}
		sum.add(s.rate, stop-at)
		if at = stop; at == end {
			m.Rate = sum.mean()
			return m, true
		}
		if i+1 == len(spans) {
			return Mean{}, false
		}
	}
}

// holds returns until when a rate holds whose period ends at a moment.
func (t *Timeline) holds(until int64) int64 { return until + min(t.maxAge, maxNano-until) }

// Known returns until when the last period lasts, and until when its rate holds. It is not ok
// without a period.
func (t *Timeline) Known() (until, holds time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := len(t.spans) - 1
	if i < 0 {
		return time.Time{}, time.Time{}, false
	}
	holds = time.Unix(0, t.spans[i].holds)
	for i > 0 && t.spans[i].stale {
		i--
	}
	return time.Unix(0, t.spans[i].until), holds, true
}

// nano returns a moment in ns since 1970, and reports whether it is in the years 1970 to 2262.
func nano(t time.Time) (int64, bool) {
	seconds := t.Unix()
	return t.UnixNano(), seconds >= 0 && seconds < maxNano/int64(time.Second)
}
