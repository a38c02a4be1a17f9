// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"time"
)

// demandShare limits the cost of windows that end on demand: they take at most 1/demandShare of the time of a CPU.
const demandShare = 20

// demand bounds how often windows end on demand.
type demand struct {
	began time.Time     // when the last window was measured, whatever ended it
	took  time.Duration // to measure it
}

// allows reports whether enough time has passed since the last window: minWindow, and demandShare times what that window took to
// measure.
func (d *demand) allows(now time.Time) bool {
	return now.Sub(d.began) >= max(minWindow, demandShare*d.took)
}

// endWindow ends the current window, so that usage up to now and usage from now on are attributed
// separately. It reports whether it did. It does not if ctx is done before the receiver has time,
// if a window ended so recently that another one would cost too much, if the CPU times cannot be
// read, or after shutdown; the current window then continues.
//
// It must not be called before start has returned.
func (s *energyScraper) endWindow(ctx context.Context) bool {
	if !s.mu.LockUnless(ctx) {
		return false
	}
	defer s.mu.Unlock()
	if s.feeding.closed || !s.demand.allows(s.now()) || s.scan(context.WithoutCancel(ctx), false) == nil {
		return false
	}
	s.publish(false)
	return true
}
