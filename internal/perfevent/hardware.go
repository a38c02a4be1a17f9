// SPDX-License-Identifier: Apache-2.0

package perfevent

import "errors"

// HardwareEvents is the number of events of a Hardware: cycles, instructions, and cache misses.
const HardwareEvents = 3

// ErrOldKernel is the error of FindHardware if the kernel cannot count events of each process.
var ErrOldKernel = errors.New("events of each process are counted from Linux 5.13 on")

// Hardware describes the hardware events that are counted for each process.
type Hardware struct {
	// Misses is the reason if cache misses are not counted, otherwise nil.
	Misses error
	// Cache is the cache whose misses are counted, for logs: "last-level cache" or "L2 cache".
	Cache string

	events [HardwareEvents]event
}

// event selects a kind of event (perf_event_open(2)).
type event struct {
	pmu    uint32
	config uint64
}

// NewHardware returns a Hardware that counts other events of one type in place of the hardware
// events. Tests use it on machines without a PMU.
func NewHardware(kind uint32, configs [HardwareEvents]uint64) *Hardware {
	h := &Hardware{Cache: lastLevel}
	for i, config := range configs {
		h.events[i] = event{kind, config}
	}
	return h
}

const (
	lastLevel = "last-level cache"
	levelTwo  = "L2 cache"
)
