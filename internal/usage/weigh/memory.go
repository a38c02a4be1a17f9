// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// The units of memory's weights. With these coarse units, the sum of an interval's weights fits
// into 64 bits: 1 TiB may be held for two years, or used by 100 CPUs for ten minutes. A larger sum
// saturates.
const (
	memoryUnit = 4096 // bytes
	heldUnit   = time.Millisecond
	ranUnit    = time.Microsecond
)

// Memory weighs claims by the memory that they hold: for how long, or for how much CPU time.
// By time held, the weight of short-lived processes is 0. By CPU time, it is the average weight of
// the other processes.
type Memory struct {
	stateless
	byCPUTime bool
}

// NewMemory weighs claims by their resident memory. If byCPUTime, the weight is memory times CPU
// time, otherwise memory times the time that it was held.
func NewMemory(byCPUTime bool) *Memory { return &Memory{byCPUTime: byCPUTime} }

// Weigh sets the Work of all shares of an interval. It always measures.
func (w *Memory) Weigh(_ time.Time, shares []*Share) (measured bool, err error) {
	var sum, cpu uint64
	for _, s := range shares {
		s.Work = 0
		if s.ShortLived {
			continue
		}
		factor := uint64(max(s.Held, 0) / heldUnit)
		if w.byCPUTime {
			factor = uint64(s.CPU) / uint64(ranUnit)
			cpu = units.AddSaturating(cpu, factor)
		}
		s.Work = units.MulSaturating(s.Resident/memoryUnit, factor)
		sum = units.AddSaturating(sum, s.Work)
	}
	if w.byCPUTime {
		weighShortLived(shares, sum, cpu)
	}
	return true, nil
}

// weighShortLived gives short-lived processes the average weight per CPU time of the others.
func weighShortLived(shares []*Share, sum, cpu uint64) {
	for _, s := range shares {
		if s.ShortLived {
			s.Work = units.MulDiv(uint64(s.CPU)/uint64(ranUnit), sum, cpu)
		}
	}
}

// Name describes the weight.
func (*Memory) Name() string { return "resident memory" }
