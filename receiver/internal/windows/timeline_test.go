// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestTheTimelineFollowsTheWallClock(t *testing.T) {
	var line timeline
	for _, s := range []int{0, 10, 20, 30} {
		wall := noon.Add(time.Duration(s) * time.Second)
		assert.Equal(t, wall, line.next(wall, 10*time.Second))
	}
	ahead := noon.Add(24 * time.Hour)
	assert.Equal(t, ahead, line.next(ahead, 10*time.Second), "a step forward is followed at once")
}

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
