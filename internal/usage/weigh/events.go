// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"errors"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// silentLimit is the CPU time without an event after which counters are taken to be fake. Virtual
// machines may pretend to have counters.
const silentLimit = units.Second

// ErrRestarted is the error of a NodeCounter that has opened its counters again. The events before
// are lost.
var ErrRestarted = errors.New("the counters were opened again")

var (
	errCountless = errors.New("CPU time is used instead: the counters count no events")
	errMissless  = errors.New("resident memory and CPU time are used instead: the counters count no cache misses")
	errUncounted = errors.New("CPU time is used instead: the hardware events of the window are not counted")
)

// events measures the rate of a hardware event per CPU time of each process.
type events struct {
	stateless
	event  proc.Event
	silent units.CPUTime // used since an event was counted
	err    error         // of the interval
	// since is the end of the last interval with counts. missing is the time since then.
	since   time.Time
	missing time.Duration
}

// uncountedFor is the time without counts after which their absence is reported. Some windows are
// not counted after the start, and after a CPU came online.
const uncountedFor = 10 * time.Second

// NewEvents weighs claims by a hardware event that was counted for each process.
func NewEvents(e proc.Event) *ByRate { return newByRate(&events{event: e}) }

func (e *events) begin(now time.Time, shares []*Share) {
	sum := countedIn(shares)
	if e.silent = units.CPUTime(units.AddSaturating(uint64(e.silent), uint64(sum.cpu))); sum.events[e.event] > 0 {
		e.silent = 0
	}
	if sum.cpu > 0 || e.since.IsZero() {
		e.since = now
	}
	e.missing = now.Sub(e.since)
	switch e.err = nil; {
	case sum.cpu == 0:
		e.err = errUncounted
	case e.silent >= silentLimit:
		e.err = errCountless
	}
}

// rate returns the events per ns. No share has a rate while the counters are taken to be fake.
func (e *events) rate(s *Share) (uint64, bool) {
	if !s.Counted || s.CPU == 0 || e.err != nil {
		return 0, false
	}
	return units.MulDiv(s.Events[e.event], one, uint64(s.CPU)), true
}

func (e *events) Err() error {
	if errors.Is(e.err, errUncounted) && e.missing < uncountedFor {
		return nil
	}
	return e.err
}

func (e *events) name() string {
	return e.event.String() + " of each process, counted at context switches"
}

// counted is the usage of the shares whose events were counted.
type counted struct {
	events   proc.Events
	cpu, all units.CPUTime // all includes shares without counts
}

func countedIn(shares []*Share) (sum counted) {
	for _, s := range shares {
		sum.all = units.AddSaturating(sum.all, s.CPU)
		if !s.Counted {
			continue
		}
		sum.cpu = units.AddSaturating(sum.cpu, s.CPU)
		for i, n := range s.Events {
			sum.events[i] = units.AddSaturating(sum.events[i], n)
		}
	}
	return sum
}

// Misses weighs claims by the cache misses of each process. In an interval without counts, it
// weighs them by resident memory and CPU time. The average weight then stays as it was, because
// energy may cover several intervals.
type Misses struct {
	*ByRate
	memory Memory
	// unscaled reports whether intervals were weighed before the average weight was first measured.
	unscaled bool
}

// NewMisses returns a Misses that has not weighed any claim.
func NewMisses() *Misses {
	return &Misses{ByRate: NewEvents(proc.CacheMisses), memory: Memory{byCPUTime: true}}
}

// Weigh sets the Work of all shares of an interval. measured is false in the first interval with
// cache misses, if earlier intervals were weighed: the energy of these intervals may be measured
// together, and their weights have another scale.
func (m *Misses) Weigh(now time.Time, shares []*Share) (measured bool, err error) {
	measured, err = m.ByRate.Weigh(now, shares)
	if errors.Is(err, errCountless) {
		err = errMissless
	} else {
		err = nil
	}
	if measured {
		measured = !m.unscaled || !m.scaled
		m.unscaled = m.unscaled && !m.scaled
		return measured, err
	}
	m.unscaled = !m.scaled
	_, _ = m.memory.Weigh(now, shares) // it always measures
	var work, cpu uint64
	for _, s := range shares {
		work, cpu = units.AddSaturating(work, s.Work), units.AddSaturating(cpu, uint64(s.CPU))
	}
	for _, s := range shares {
		s.Work = units.MulDiv(s.Work, units.MulDiv(cpu, m.mean, one), work)
	}
	return true, err
}

// Name describes the weight.
func (m *Misses) Name() string { return m.ByRate.Name() + ", or resident memory and CPU time" }
