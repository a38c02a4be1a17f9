// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"errors"
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

const (
	// visibilitySpan is how long it takes at least until a condition of visibility begins or ends: a burst of short-lived
	// processes is neither.
	visibilitySpan = time.Minute
	// More than a tenth of active energy without an owner is a condition, and less than a twentieth is none.
	tooUnattributed, attributedAgain = 10, 20
	// leastUnattributed is the power, in microwatts, below which unattributed energy is not worth a warning: on a node at
	// rest every share is a large one.
	leastUnattributed = 100_000
)

// visibility finds out when processes cannot be seen, or when more than a tenth of active energy has no owner. It judges
// spans of a minute.
type visibility struct {
	ledgers              *ledgers     // whose totals are compared
	began                time.Time    // the start of the span
	active, unattributed units.Energy // totals at the start of the span
	scans, hidden        int          // scans in the span, and those in which processes were hidden
	lostEnds             uint64       // in the span

	hiddenProcesses, unowned error // nil where nothing is wrong
}

// observe takes note of a scan whose measurement was attributed.
func (v *visibility) observe(m *claims.Measurement, s *energyScraper) {
	first := v.began.IsZero()
	if v.ledgers != s.ledgers || m.ReadAt.Before(v.began) {
		v.begin(m, s.ledgers)
	}
	v.scans++
	v.lostEnds += m.Table.LostEnds
	if m.Table.Hidden {
		v.hidden++
	}
	if elapsed := m.ReadAt.Sub(v.began); first || elapsed >= visibilitySpan {
		v.judge(elapsed, m, s)
		v.begin(m, s.ledgers)
	}
}

func (v *visibility) begin(m *claims.Measurement, l *ledgers) {
	v.ledgers, v.began, v.scans, v.hidden, v.lostEnds = l, m.ReadAt, 0, 0, 0
	v.active, v.unattributed = l.totals()
}

// totals returns the active energy of all zones so far, and the unattributed part of it.
func (l *ledgers) totals() (active, unattributed units.Energy) {
	for i := range l.engine.Ledger().Kinds {
		k := &l.engine.Ledger().Kinds[i]
		active += k.Active
		unattributed += k.Unattributed
	}
	return active, unattributed
}

func (v *visibility) judge(elapsed time.Duration, m *claims.Measurement, s *energyScraper) {
	switch {
	case v.hidden == 0:
		v.hiddenProcesses = nil
	case v.hidden == v.scans && v.hiddenProcesses == nil:
		v.hiddenProcesses = fmt.Errorf("some processes cannot be seen, and their energy is unattributed: %w",
			cpu.WhyHidden(s.cfg.RootPath, m.Table))
	}
	active, unattributed := v.ledgers.totals()
	active, unattributed = units.Advance(v.active, active), units.Advance(v.unattributed, unattributed)
	worth := float64(unattributed) >= leastUnattributed*elapsed.Seconds()
	switch {
	case v.hiddenProcesses != nil, !worth, unattributed < active/attributedAgain:
		v.unowned = nil
	case v.unowned == nil && unattributed > active/tooUnattributed:
		v.unowned = fmt.Errorf("%.0f %% of %.1f W of active power had no owner in the last %v: %w",
			100*float64(unattributed)/float64(active), active.Joules()/elapsed.Seconds(), elapsed.Round(time.Second), v.cause(s))
	}
}

var (
	errTooShort = errors.New("procfs does not show what processes use that come and go between two scans: " +
		"grant CAP_BPF and CAP_PERFMON so that CPU times are read by BPF, or set a shorter sampling_interval")
	errNoClaims = errors.New("no process that a scan shows used the CPUs as much as they were busy")
)

// cause returns the likely cause of unattributed energy.
func (v *visibility) cause(s *energyScraper) error {
	switch {
	case v.lostEnds > 0:
		return errEndsLost
	case !s.cpu.Source().Exact():
		return errTooShort
	default:
		return errNoClaims
	}
}

// check tells the conditions.
func (v *visibility) check(c *conditions) {
	c.check("process visibility", v.hiddenProcesses)
	c.check("unattributed energy", v.unowned)
}
