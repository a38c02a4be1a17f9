// SPDX-License-Identifier: Apache-2.0

package proc

// Events holds numbers of hardware events, by Event.
type Events [3]uint64

// Event is a hardware event, an index in Events.
type Event int

// The hardware events.
const (
	Cycles Event = iota
	Instructions
	CacheMisses // of the last-level cache
)

// String returns the name of the event.
func (e Event) String() string { return [...]string{"cycles", "instructions", "cache misses"}[e] }

// Counting describes the hardware events of an interval.
type Counting struct {
	// Valid reports whether the events of the interval were counted, or are estimated by the rates of
	// an earlier interval.
	Valid bool
	// Trainable reports whether a power model may be trained with the events. That requires a count
	// without multiplexing and with few losses, and enough load.
	Trainable bool
}
