// SPDX-License-Identifier: Apache-2.0

package window

import (
	"errors"
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

const (
	// visibilitySpan is the minimum time until a condition of visibility begins or ends, so that a
	// burst of short-lived processes causes no condition.
	visibilitySpan = time.Minute
	// More than a tenth of active energy without an owner is a condition, and less than a twentieth
	// ends it.
	tooUnattributed, attributedAgain = 10, 20
	// leastUnattributed is the minimum unattributed power, in microwatts, for a warning. On an idle
	// node, small power can be a large share.
	leastUnattributed = 100_000
)

// Visibility judges whether scans show the processes of a node, and whether most of active energy
// has an owner. It judges spans of a minute. The zero Visibility is ready to use.
type Visibility struct {
	span             span
	hidden, tooLarge error
}

// span is the time that a Visibility judges next.
type span struct {
	began                time.Time
	active, unattributed units.Energy  // totals at the start
	time, ofInterrupts   units.CPUTime // unattributed CPU time at the start
	scans, hidden        int           // scans in the span, and scans with hidden processes
	lostExits            uint64
}

// Hidden returns why the energy of processes that cannot be seen is unattributed, or nil if all
// processes can be seen.
func (v *Visibility) Hidden() error { return v.hidden }

// Unattributed returns why more than a tenth of active energy is unattributed. It returns nil if
// the part is smaller, or if the cause is hidden processes.
func (v *Visibility) Unattributed() error { return v.tooLarge }

// Observe records a measurement that b has collected. The first one is a span of its own.
func (v *Visibility) Observe(m *Measurement, b *Collector) {
	first := v.span.began.IsZero()
	if first {
		v.span = b.beginSpan(m.ReadAt)
	}
	v.span.scans++
	v.span.lostExits += m.Table.Unseen.LostExits
	if m.Table.Unseen.Hidden {
		v.span.hidden++
	}
	if first || m.ReadAt.Sub(v.span.began) >= visibilitySpan {
		v.judgeHidden(m, b)
		v.judgeUnattributed(m, b)
		v.span = b.beginSpan(m.ReadAt)
	}
}

// beginSpan returns a span without scans. Its totals exclude GPUs, because scans do not show their
// usage.
func (b *Collector) beginSpan(at time.Time) span {
	s := span{began: at, time: b.unowned.all, ofInterrupts: b.unowned.ofInterrupts}
	kinds := &b.Ledger.Kinds
	for i := range kinds {
		if i >= len(b.Kinds) || b.Kinds[i].Zone != power.GPU {
			s.active += kinds[i].Active
			s.unattributed += kinds[i].Unattributed
		}
	}
	return s
}

func (v *Visibility) judgeHidden(m *Measurement, b *Collector) {
	switch {
	case v.span.hidden == 0:
		v.hidden = nil
	case v.span.hidden == v.span.scans && v.hidden == nil:
		v.hidden = fmt.Errorf("some processes cannot be seen, and their energy is unattributed: %w", whyHidden(b.Cgroups.Root(), m.Table))
	}
}

func (v *Visibility) judgeUnattributed(m *Measurement, b *Collector) {
	s, now := &v.span, b.beginSpan(m.ReadAt)
	elapsed := now.began.Sub(s.began)
	active, unattributed := units.Advance(s.active, now.active), units.Advance(s.unattributed, now.unattributed)
	// The energy of interrupts is unattributed by configuration.
	if time, ofInterrupts := now.time-s.time, now.ofInterrupts-s.ofInterrupts; ofInterrupts > 0 {
		unattributed = units.Energy(units.MulDiv(uint64(unattributed), uint64(time-ofInterrupts), uint64(time)))
	}
	relevant := float64(unattributed) >= leastUnattributed*elapsed.Seconds()
	switch {
	case v.hidden != nil, !relevant, unattributed < active/attributedAgain:
		v.tooLarge = nil
	case v.tooLarge == nil && unattributed > active/tooUnattributed:
		v.tooLarge = fmt.Errorf("%.0f %% of %.1f W of active power had no owner in the last %v: %w",
			100*float64(unattributed)/float64(active), active.Joules()/elapsed.Seconds(), elapsed.Round(time.Second), s.cause(b.Exact))
	}
}

// ErrLostExits reports that the CPU time source missed process exits, or parts of their CPU time.
var ErrLostExits = errors.New("the exits of some processes, or the CPU time of some of their threads, were missed, for example " +
	"because more processes exited at once than the BPF program has room for: the missing energy is unattributed")

var (
	errTooShort = errors.New("the CPU time source does not report short-lived processes: " +
		"grant CAP_BPF and CAP_PERFMON so that CPU times are read by BPF, or set a shorter window")
	errNoClaims = errors.New("the CPUs were busy for longer than all processes in the scans ran")
)

// cause returns the likely cause of unattributed energy.
func (s *span) cause(exact bool) error {
	switch {
	case s.lostExits > 0:
		return ErrLostExits
	case !exact:
		return errTooShort
	default:
		return errNoClaims
	}
}
