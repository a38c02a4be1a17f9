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

// endWindow ends the current window, so that usage up to now and usage from now on are attributed separately. It reports whether it
// did. It does not if a window ended so recently that another one would cost too much, or if the CPU times cannot be read; the
// current window then continues.
//
// It must be called between start and shutdown.
func (s *energyScraper) endWindow(ctx context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.demand.allows(s.now()) && s.scan(ctx, false) != nil
}
