// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"syscall"
	"time"

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
