// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"time"

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// demandShare limits the cost of windows that end on demand: they take at most 1/demandShare of the
// time of a CPU.
const demandShare = 20

// demand bounds how often windows end on demand.
type demand struct {
	Began time.Time     // when the last window ended
	Took  time.Duration // to measure the last window
}

// Allows reports whether enough time has passed since the last window: minWindow, and demandShare
// times what that window took to measure.
func (d *demand) Allows(now time.Time) bool {
	return now.Sub(d.Began) >= max(config.MinWindow, demandShare*d.Took)
}
