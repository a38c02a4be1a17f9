// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"errors"
	"time"
)

// pace decides how windows are kept. If too many windows are missed, their thread gets the highest priority that is granted, until
// a calm time has passed. If that was too soon, pace waits twice as long before it tries again.
//
// It counts time in windows, so it needs no clock. The zero pace is ready to use.
type pace struct {
	raised bool          // whether the windows' thread should have a higher priority
	trying bool          // the priority was taken back, and it is not known yet whether that was too soon
	calm   time.Duration // since the last change
	wait   time.Duration // how long it must be calm before the priority is taken back

	// period is judged when it is over.
	period struct {
		length           time.Duration
		windows, skipped int64
	}
	skips bool // more than tolerated are skipped, although the priority is raised
}

// Windows are judged once per period, and after minBeats of them at least.
const (
	firstPeriod = time.Second // without priority
	nextPeriod  = 10 * time.Second
	minBeats    = 20
)

// Shares of the windows that are skipped in a period, and of a CPU's time that they take.
const (
	raiseAt  = 0.05 // the thread gets priority
	reportAt = 0.1  // it is reported, until it is settleAt
	settleAt = 0.05
	mostBusy = 0.1 // for collections with real-time priority, which keep others from the CPU
)

// How long it must be calm before the priority is taken back.
const (
	minCalm = time.Minute
	maxCalm = time.Hour
)

// observe adds windows of which all but one were skipped. It reports whether the period is over.
func (p *pace) observe(windows int64, length time.Duration) bool {
	p.period.windows += windows
	p.period.skipped += windows - 1
	p.period.length += time.Duration(windows) * length
	least := nextPeriod
	if !p.raised {
		least = firstPeriod
	}
	return p.period.length >= least && p.period.windows >= minBeats
}

// judge ends a period.
func (p *pace) judge() {
	share := float64(p.period.skipped) / float64(max(1, p.period.windows))
	passed := p.period.length
	p.period = pace{}.period
	p.skips = p.raised && (share > reportAt || p.skips && share > settleAt)
	switch {
	case !p.raised && share > raiseAt:
		p.up()
	case p.skips:
		p.calm = 0
	default:
		p.rest(passed)
	}
}

func (p *pace) up() {
	if p.trying {
		p.wait = min(2*p.wait, maxCalm)
	}
	p.raised, p.trying, p.calm = true, false, 0
	p.wait = max(p.wait, minCalm)
}

// rest adds a time in which the windows were kept.
func (p *pace) rest(passed time.Duration) {
	p.calm += passed
	if p.trying && p.calm >= minCalm {
		p.trying, p.wait = false, minCalm
	}
	if p.raised && p.calm >= p.wait {
		p.raised, p.trying, p.calm = false, true, 0
	}
}

var (
	errSkips = errors.New("windows are skipped because others use the CPUs: grant the collector real-time priority, or set a longer window")
	// errLate is of windows that have real-time priority.
	errLate = errors.New("windows are skipped despite real-time priority: give the collector more CPU time, or set a longer window")
)

// err returns what keeps windows from being as configured. got is the priority that they have.
func (p *pace) err(got priority) error {
	switch {
	case !p.skips:
		return nil
	case got == realTimePriority:
		return errLate
	}
	return errSkips
}
