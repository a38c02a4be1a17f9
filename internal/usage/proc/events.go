// SPDX-License-Identifier: Apache-2.0

package proc

import "github.com/energyreceiver/energyreceiver/internal/units"

// Events holds numbers of hardware events, by Event.
type Events [3]uint64

// Event is a hardware event, an index in Events.
type Event int

// The hardware events.
const (
	Cycles Event = iota
	Instructions
	CacheMisses // of the last-level cache, or of the L2 cache on AMD
)

// String returns the name of the event.
func (e Event) String() string { return [...]string{"cycles", "instructions", "cache misses"}[e] }

// Counting describes the hardware events of an interval.
type Counting struct {
	// Valid reports whether the events of the interval were counted, or are estimated by the rates
	// of an earlier interval.
	Valid bool
	// Trainable reports whether a power model may be trained with the events. That requires a count
	// without multiplexing and with few losses, and enough load.
	Trainable bool
}

// Add adds numbers of events.
func (e *Events) Add(n Events) {
	for i := range e {
		e[i] = units.AddSaturating(e[i], n[i])
	}
}

// advance raises totals to new totals and returns their growth. A total that steps back and
// recovers must not be counted twice.
func (e *Events) advance(now Events) (grown Events) {
	for i := range e {
		grown[i] = units.Advance(e[i], now[i])
		e[i] += grown[i]
	}
	return grown
}

// rate is a number of events in an amount of CPU time.
type rate struct {
	events Events
	used   units.CPUTime
}

// of returns the events in an amount of CPU time, 0 without a rate.
func (r *rate) of(used units.CPUTime) (n Events) {
	for i := 0; i < len(n) && r.used > 0; i++ {
		n[i] = units.MulDiv(r.events[i], uint64(used), uint64(r.used))
	}
	return n
}

// KeepRates keeps the events per CPU time of the processes that ran, for EstimateEvents. Shrink
// drops the rates.
func (t *Table) KeepRates() {
	if n := len(t.Rows) - len(t.slots.rates); n > 0 {
		t.slots.rates = append(t.slots.rates, make([]rate, n)...)
	}
	for _, slot := range t.Active {
		if p := &t.Rows[slot]; p.Used > 0 {
			t.slots.rates[slot] = rate{p.Counted, p.Used}
		}
	}
}

// rate returns the rate of a row, which may be zero.
func (s *slots) rate(slot Slot) (r rate) {
	if int(slot) < len(s.rates) {
		r = s.rates[slot]
	}
	return r
}

// EstimateEvents sets the events of processes in an interval without counts. They are the CPU time
// multiplied by the rates of the interval that was counted last, and 0 for processes without a
// rate.
func (t *Table) EstimateEvents() {
	for _, slot := range t.Active {
		p, r := &t.Rows[slot], t.slots.rate(slot)
		p.Counted = r.of(p.Used)
	}
	for i := range t.Ended {
		e := &t.Ended[i]
		e.LastCounted = e.rate.of(e.LastSlice)
	}
	for i := range t.Charges {
		t.Charges[i].Counted = Events{}
	}
}
