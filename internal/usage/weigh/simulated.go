// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// SimulatedClock returns what NewClock returns on a simulated machine. khz holds the clock rate of
// each CPU, in kHz. A CPU without a rate is offline. Like NewClock, SimulatedClock fails if the
// first CPU has no rate. Only tests call SimulatedClock.
func SimulatedClock(khz func() map[int]int64, exponent int) (*ByRate, error) {
	r := simulatedRates(khz)
	if _, _, err := r.read(0, time.Time{}, 0); err != nil {
		return nil, err
	}
	return newByRate(&clock{rates: r, exponent: exponent}), nil
}

type simulatedRates func() map[int]int64

func (r simulatedRates) read(cpu int32, _ time.Time, _ units.CPUTime) (rate uint64, ok bool, err error) {
	khz := r()[int(cpu)]
	if khz == 0 {
		return 0, false, syscall.ENODEV
	}
	return units.MulDiv(uint64(khz), one, 1_000_000), true, nil
}

func (simulatedRates) close() error { return nil }

// SimulatedEvents returns Events of a simulated kernel. counted returns the total number of events
// in a cgroup and all cgroups inside, or on the whole machine if the path is empty. Only tests call
// SimulatedEvents.
func SimulatedEvents(counted func(e Event, cgroup string) uint64) *Events {
	return &Events{open: func(_ *cgroup.Tree, e Event) (counts, error) {
		return simulated{counted: counted, event: e}, nil
	}}
}

// simulated is the counts of a simulated kernel, and the count of a cgroup.
type simulated struct {
	counted func(e Event, cgroup string) uint64
	event   Event
	cgroup  string
}

func (s simulated) open(n *cgroup.Node) (count, error) {
	if n != nil {
		s.cgroup = n.Path()
	}
	return s, nil
}

func (simulated) cpusChanged() bool { return false }

func (s simulated) read() (uint64, error) { return s.counted(s.event, s.cgroup), nil }

func (simulated) replaced() bool { return false }

func (simulated) close() error { return nil }
