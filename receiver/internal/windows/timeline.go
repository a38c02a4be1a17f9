// SPDX-License-Identifier: Apache-2.0

package windows

import "time"

// timeline turns readings of the clock into timestamps of data points. Timestamps follow the wall
// clock but always increase: after the wall clock steps back they advance at half speed until it
// has caught up. Therefore no point is older than its start timestamp or than the previous point.
// The zero timeline is ready to use.
type timeline struct {
	reading time.Time // with its monotonic part
	Stamp   time.Time // wall clock only
}

// Resume continues a timeline whose last reading had the given timestamp.
func (t *timeline) Resume(reading, stamp time.Time) { t.reading, t.Stamp = reading, stamp }

// At returns the timestamp of a reading of the clock. now must not be older than in the previous
// call.
func (t *timeline) At(now time.Time) time.Time {
	wall, elapsed := now.Round(0).UTC(), time.Duration(0)
	if !t.reading.IsZero() {
		elapsed = now.Sub(t.reading)
	}
	t.reading = now
	return t.next(wall, elapsed)
}

// next returns the timestamp of a reading of the wall clock that follows the previous reading after
// elapsed.
func (t *timeline) next(wall time.Time, elapsed time.Duration) time.Time {
	if slowest := t.Stamp.Add(elapsed / 2); !t.Stamp.IsZero() && wall.Before(slowest) {
		wall = slowest
	}
	t.Stamp = wall
	return wall
}
