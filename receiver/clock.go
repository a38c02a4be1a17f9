// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import "time"

// timeline turns readings of the machine's clock into the timestamps of data points. They follow the wall
// clock but never stand still or go back: after a step back they run at half speed until the wall clock
// has caught up, so that no point is older than its start or than the one before.
type timeline struct {
	reading time.Time // with its monotonic part
	stamp   time.Time // wall clock only
}

// at returns the timestamp of a reading, which must not be older than the one before.
func (t *timeline) at(now time.Time) time.Time {
	wall, elapsed := now.Round(0).UTC(), time.Duration(0)
	if !t.reading.IsZero() {
		elapsed = now.Sub(t.reading)
	}
	t.reading = now
	return t.next(wall, elapsed)
}

// next returns the timestamp of a reading of the wall clock, elapsed after the one before.
func (t *timeline) next(wall time.Time, elapsed time.Duration) time.Time {
	if slowest := t.stamp.Add(elapsed / 2); !t.stamp.IsZero() && wall.Before(slowest) {
		wall = slowest
	}
	t.stamp = wall
	return wall
}
