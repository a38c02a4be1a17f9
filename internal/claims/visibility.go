// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

const (
	// visibilitySpan is how long it takes at least until a condition of visibility begins or ends:
	// a burst of short-lived processes is neither.
	visibilitySpan = time.Minute
	// More than a tenth of active energy without an owner is a condition, and less than a twentieth
	// is none.
	tooUnattributed, attributedAgain = 10, 20
	// leastUnattributed is the power, in microwatts, below which unattributed energy is not worth a
	// warning: on a node at rest every share is a large one.
	leastUnattributed = 100_000
)

// Visibility judges whether scans show the processes of a node, and whether most of active energy
// has an owner. It judges spans of a minute. The zero Visibility is ready to use.
type Visibility struct {
	builder              *Builder      // whose engine's totals are compared
	began                time.Time     // the start of the span
	active, unattributed units.Energy  // totals at the start of the span
	time, ofInterrupts   units.CPUTime // unattributed CPU time at the start of the span
	scans, hidden        int           // scans in the span, and those in which processes were hidden
	lostEnds             uint64        // in the span

	hiddenProcesses, tooMuch error // nil where nothing is wrong
}

// Hidden returns why the energy of processes that cannot be seen is unattributed, nil where all can
// be seen.
func (v *Visibility) Hidden() error { return v.hiddenProcesses }

// Unattributed returns why more than a tenth of active energy is unattributed, nil where less is or
// the cause is that processes are hidden.
func (v *Visibility) Unattributed() error { return v.tooMuch }

// Observe takes note of a measurement that b has observed.
func (v *Visibility) Observe(m *Measurement, b *Builder) {
	first := v.began.IsZero()
	if v.builder != b || m.ReadAt.Before(v.began) {
		v.begin(m, b)
	}
	v.scans++
	v.lostEnds += m.Table.Unseen.LostEnds
	if m.Table.Unseen.Hidden {
		v.hidden++
	}
	if elapsed := m.ReadAt.Sub(v.began); first || elapsed >= visibilitySpan {
		v.judge(elapsed, m)
		v.begin(m, b)
	}
}

func (v *Visibility) begin(m *Measurement, b *Builder) {
	v.builder, v.began, v.scans, v.hidden, v.lostEnds = b, m.ReadAt, 0, 0, 0
	v.active, v.unattributed = b.totals()
	v.time, v.ofInterrupts = b.unowned.all, b.unowned.ofInterrupts
}

// totals returns the active energy of all zones so far, and the unattributed part of it. Those of
// GPUs are left out, of which scans show nothing.
func (b *Builder) totals() (active, unattributed units.Energy) {
	kinds := &b.engine.Ledger().Kinds
	for i := range kinds {
		if i < len(b.kinds) && b.kinds[i].Zone == power.GPU {
			continue
		}
		active += kinds[i].Active
		unattributed += kinds[i].Unattributed
	}
	return active, unattributed
}

func (v *Visibility) judge(elapsed time.Duration, m *Measurement) {
	switch {
	case v.hidden == 0:
		v.hiddenProcesses = nil
	case v.hidden == v.scans && v.hiddenProcesses == nil:
		v.hiddenProcesses = fmt.Errorf("some processes cannot be seen, and their energy is unattributed: %w",
			whyHidden(v.builder.cgroups.Root(), m.Table))
	}
	active, unattributed := v.builder.totals()
	active, unattributed = units.Advance(v.active, active), units.Advance(v.unattributed, unattributed)
	// Interrupts are unattributed because that is set.
	if time, ofInterrupts := v.builder.unowned.all-v.time, v.builder.unowned.ofInterrupts-v.ofInterrupts; ofInterrupts > 0 {
		unattributed = units.Energy(units.MulDiv(uint64(unattributed), uint64(time-ofInterrupts), uint64(time)))
	}
	worth := float64(unattributed) >= leastUnattributed*elapsed.Seconds()
	switch {
	case v.hiddenProcesses != nil, !worth, unattributed < active/attributedAgain:
		v.tooMuch = nil
	case v.tooMuch == nil && unattributed > active/tooUnattributed:
		v.tooMuch = fmt.Errorf("%.0f %% of %.1f W of active power had no owner in the last %v: %w",
			100*float64(unattributed)/float64(active), active.Joules()/elapsed.Seconds(), elapsed.Round(time.Second), v.cause())
	}
}

// ErrEndsLost reports that the CPU time source missed process exits, or parts of their CPU time.
var ErrEndsLost = errors.New("the exits of some processes were missed, or lack CPU time of threads, " +
	"as when more processes exit at once than the BPF program has room for: the missing part of their energy is unattributed")

var (
	errTooShort = errors.New("procfs does not show what processes use that come and go between two scans: " +
		"grant CAP_BPF and CAP_PERFMON so that CPU times are read by BPF, or set a shorter window")
	errNoClaims = errors.New("the CPUs were busy for longer than all processes in the scans ran")
)

// cause returns the likely cause of unattributed energy.
func (v *Visibility) cause() error {
	switch {
	case v.lostEnds > 0:
		return ErrEndsLost
	case !v.builder.exact:
		return errTooShort
	default:
		return errNoClaims
	}
}
