// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"errors"
	"time"
)

// pace decides how windows are kept. It begins with the cheapest way. If too many windows are skipped, it goes a step up: first to a
// thread with the highest priority that is granted, then to windows twice as long, and so on. After a calm time it goes a step
// down. If that was too soon, it waits twice as long before it tries again.
//
// It counts time in windows, so it needs no clock. The zero pace is ready to use.
type pace struct {
	step   int
	trying bool          // the last step was down, and it is not known yet whether it was too soon
	calm   time.Duration // since the last step
	wait   time.Duration // how long it must be calm before the next step down

	// period is judged when it is over.
	period struct {
		length           time.Duration
		windows, skipped int64
	}
	skips  bool // more than tolerated are skipped, although the priority is raised
	longer bool // than configured, until shorter ones were tried with success
	costly bool // why they are
}

// Windows are judged once per period, and after minBeats of them at least.
const (
	firstPeriod = time.Second // without priority
	nextPeriod  = 10 * time.Second
	minBeats    = 20
)

// Shares of the windows that are skipped in a period, and of a CPU's time that they take.
const (
	raiseAt    = 0.05 // the thread gets priority
	reportAt   = 0.1  // it is reported, until it is settleAt
	settleAt   = 0.05
	lengthenAt = 1.0 / 3
	mostBusy   = 0.1 // for windows with real-time priority, which keep others from the CPU
)

// How long it must be calm before a step down.
const (
	minCalm = time.Minute
	maxCalm = time.Hour
)

// maxDoublings bounds the steps: 10 ms become 10 s.
const maxDoublings = 10

// observe adds windows of which all but one were skipped. It reports whether the period is over.
func (p *pace) observe(windows int64, length time.Duration) bool {
	p.period.windows += windows
	p.period.skipped += windows - 1
	p.period.length += time.Duration(windows) * length
	least := nextPeriod
	if p.step == 0 {
		least = firstPeriod
	}
	return p.period.length >= least && p.period.windows >= minBeats
}

// judge ends a period. busy is the CPU time that its windows took at real-time priority.
func (p *pace) judge(busy time.Duration) {
	share := float64(p.period.skipped) / float64(max(1, p.period.windows))
	costly := busy.Seconds() > mostBusy*p.period.length.Seconds()
	passed := p.period.length
	p.period = pace{}.period
	p.skips = p.step > 0 && (share > reportAt || p.skips && share > settleAt)
	switch {
	case p.step == 0 && share > raiseAt:
		p.up()
	case p.step > 0 && (share > lengthenAt || costly):
		p.longer, p.costly = true, costly
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
	p.step, p.trying, p.calm = min(p.step+1, 1+maxDoublings), false, 0
	p.wait = max(p.wait, minCalm)
}

// rest adds a time in which the windows were kept, or in which there were none.
func (p *pace) rest(passed time.Duration) {
	p.calm += passed
	if p.trying && p.calm >= minCalm {
		p.trying, p.wait = false, minCalm
	}
	if p.step > 0 && p.calm >= p.wait {
		p.step, p.trying, p.calm = p.step-1, true, 0
	}
	p.longer = p.longer && (p.step > 1 || p.trying)
}

// raised reports whether the windows' thread should have a higher priority.
func (p *pace) raised() bool { return p.step > 0 }

// doublings returns how often the configured window is doubled.
func (p *pace) doublings() int { return max(0, p.step-1) }

var (
	errCostly = errors.New("windows take more than a tenth of a CPU at real-time priority, so longer ones are attributed: set a longer window")
	errLonger = errors.New("windows are skipped because others use the CPUs, so longer ones are attributed: " +
		"grant the collector real-time priority, or set a longer window")
	errSkips = errors.New("windows are skipped because others use the CPUs: grant the collector real-time priority, or set a longer window")
	// errLate is of windows that have real-time priority.
	errLate = errors.New("windows are skipped despite real-time priority: give the collector more CPU time, or set a longer window")
)

// err returns what keeps windows from being as configured. p is the priority that they have, or had last.
func (p *pace) err(got priority) error {
	switch {
	case p.longer && p.costly:
		return errCostly
	case !p.longer && !p.skips:
		return nil
	case got == realTimePriority:
		return errLate
	case p.longer:
		return errLonger
	}
	return errSkips
}
