// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestAfterAStepBackTheTimelineRunsAtHalfSpeedUntilItIsCaughtUp(t *testing.T) {
	var line timeline
	line.next(noon, 0)
	wall := noon.Add(-time.Minute)
	last := noon
	for i := range 20 {
		wall = wall.Add(10 * time.Second)
		stamp := line.next(wall, 10*time.Second)
		assert.True(t, stamp.After(last), "it never stands still")
		if i < 12 {
			assert.Equal(t, last.Add(5*time.Second), stamp)
		} else {
			assert.Equal(t, wall, stamp, "caught up")
		}
		last = stamp
	}
}

func TestTheTimelineIsStrictlyIncreasing(t *testing.T) {
	var line timeline
	last := line.next(noon, 0)
	for _, step := range []time.Duration{0, time.Hour, -time.Hour, -24 * time.Hour, time.Second, 48 * time.Hour, -1, 1} {
		wall := last.Add(step)
		stamp := line.next(wall, 10*time.Second)
		assert.True(t, stamp.After(last), "%s", step)
		last = stamp
	}
}

func TestAReadingIsTimedByItsMonotonicPart(t *testing.T) {
	var line timeline
	base := time.Now()
	first := line.At(base)
	assert.True(t, first.Equal(base))
	assert.Equal(t, time.UTC, first.Location())
	assert.Equal(t, first, first.Round(0), "no monotonic part")
	later := base.Add(10 * time.Second)
	assert.True(t, line.At(later).Equal(later))

	// The same reading after the wall clock was set back by an hour.
	line.Stamp = line.Stamp.Add(time.Hour)
	ahead := line.Stamp
	assert.Equal(t, ahead.Add(5*time.Second), line.At(later.Add(10*time.Second)))
}

// scripted is a metronome that beats once for each element, with that number of windows, and stops.
type scripted []int64

func (b *scripted) Next() int64 {
	if len(*b) == 0 {
		return 0
	}
	windows := (*b)[0]
	*b = (*b)[1:]
	return windows
}

func (b *scripted) Stop() {}

func TestMissedWindowsAreCounted(t *testing.T) {
	s, samples := &sampler{Window: time.Second}, 0
	s.Run(&scripted{1, 3, 1, 2}, func() { samples++ })
	windows, missed := s.Counts()
	assert.EqualValues(t, 7, windows)
	assert.EqualValues(t, 3, missed)
	assert.Equal(t, 4, samples)
}

// passWindows has a pace observe windows of 100 ms for a time, of which a share is missed.
func passWindows(p *pace, duration time.Duration, share float64) {
	const window = 100 * time.Millisecond
	var owed float64 // windows to be missed
	for passed := time.Duration(0); passed < duration; {
		windows := int64(1)
		for owed += share / (1 - share); owed >= 1; owed-- {
			windows++
		}
		p.observe(windows, window)
		passed += time.Duration(windows) * window
	}
}

func TestMoreThanATenthOfMissedWindowsIsAConditionWithHysteresis(t *testing.T) {
	var p pace
	for _, c := range []struct {
		missed   float64
		reported bool
	}{{0, false}, {0.07, false}, {0.2, true}, {0.07, true}, {0.03, false}, {0.07, false}, {0.6, true}, {0, false}} {
		passWindows(&p, 20*time.Second, c.missed)
		assert.Equal(t, c.reported, p.err() != nil, c)
	}
}

func TestAFewMissedWindowsAreNotJudged(t *testing.T) {
	var p pace
	passWindows(&p, 9*time.Second, 0.5)
	assert.NoError(t, p.err(), "a period is longer")
	p = pace{}
	p.observe(10, 10*time.Second)
	assert.NoError(t, p.err(), "a period has more windows")
	p.observe(10, 10*time.Second)
	assert.ErrorIs(t, p.err(), ErrMissed)
}

func TestWindowsAreShorterThanHalfAWrapAndNoShorterThanTheSourceResolves(t *testing.T) {
	const hour, wrap = time.Hour, 100 * time.Second // 150 kJ at the 1.5 kW that a socket can draw
	for _, c := range []struct {
		configured, collection time.Duration
		exact                  bool
		wrap, want             time.Duration
	}{
		{0, hour, false, wrap, wrap / 2},
		{0, wrap / 2, false, wrap, 0},
		{20 * time.Second, hour, false, wrap, 20 * time.Second},
		{70 * time.Second, hour, false, wrap, wrap / 2},
		{10 * time.Millisecond, hour, false, wrap, time.Second},
		{10 * time.Millisecond, hour, true, wrap, 10 * time.Millisecond},
	} {
		length, reason := ChooseLength(c.configured, c.collection, c.exact, c.wrap)
		assert.Equal(t, c.want, length, c)
		assert.NotEmpty(t, reason)
	}
}

func TestWindowsOnDemandAreAtMostAHundredASecondAndCostATwentiethOfTheTime(t *testing.T) {
	for took, want := range map[time.Duration]int{0: 100, 10 * time.Millisecond: 5} {
		d, ended := demand{Began: noon, Took: took}, 0
		for ms := range 1000 {
			if now := noon.Add(time.Duration(ms+1) * time.Millisecond); d.Allows(now) {
				d.Began = now
				ended++
			}
		}
		assert.Equal(t, want, ended, took)
	}
}

func TestALockIsWaitedForUntilItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLock()
		require.True(t, l.LockWithin(0))
		before := time.Now()
		require.False(t, l.LockWithin(time.Second))
		assert.Equal(t, time.Second, time.Since(before))
		go func() { time.Sleep(time.Second); l.Unlock() }()
		require.True(t, l.LockWithin(2*time.Second))
		assert.Equal(t, 2*time.Second, time.Since(before))
	})
}
