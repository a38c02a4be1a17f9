// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"errors"
	"time"
)

// pace judges once per period whether too many windows are missed. It counts time in windows, so it
// needs no clock. The zero pace is ready to use.
type pace struct {
	length          time.Duration // of the current period
	windows, missed int64         // in the current period
	Late            bool          // too many were missed in the last period
}

// A period has a minimum length and a minimum number of windows.
const (
	minPeriod  = 10 * time.Second
	minWindows = 20
)

// Shares of the windows of a period that are missed.
const (
	reportAt = 0.1 // the condition begins
	settleAt = 0.05
)

// observe adds windows, all but one of which were missed.
func (p *pace) observe(windows int64, length time.Duration) {
	p.windows += windows
	p.missed += windows - 1
	p.length += time.Duration(windows) * length
	if p.length < minPeriod || p.windows < minWindows {
		return
	}
	share := float64(p.missed) / float64(p.windows)
	*p = pace{Late: share > reportAt || p.Late && share > settleAt}
}

// ErrMissed reports that too many windows are missed.
var ErrMissed = errors.New("more than a tenth of the windows are missed because other processes use the CPUs: " +
	"give the collector more CPU time, or set a longer window")

// err returns an error while too many windows are missed.
func (p *pace) err() error {
	if p.Late {
		return ErrMissed
	}
	return nil
}
