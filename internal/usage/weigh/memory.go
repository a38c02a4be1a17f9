// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// The units of memory's weights. They are coarse so that the sum of an interval's weights fits into 64 bits: 1 TiB may be held
// for two years, or used by 100 CPUs for ten minutes. A larger sum saturates.
const (
	memoryUnit = 4096 // bytes
	heldUnit   = time.Millisecond
	ranUnit    = time.Microsecond
)

// Memory weighs claims by the memory that they hold: for how long, or for how much CPU time. Short-lived processes
// weigh nothing by time held; by CPU time they get the others' average weight.
type Memory struct {
	cgroups   *cgroup.Tree
	byCPUTime bool
}

// NewMemory returns what weighs claims by memory. If byCPUTime, the weight is memory times CPU time; else memory times the
// time for which it was held. The processes of a container divide what its cgroup in the tree is charged with by what they
// have resident. If cgroups is nil, or the tree does not tell the charge, what a process has resident is what it holds.
func NewMemory(cgroups *cgroup.Tree, byCPUTime bool) *Memory {
	return &Memory{cgroups: cgroups, byCPUTime: byCPUTime}
}

// Weigh sets the Work of all shares of an interval. It always measures; the error is why the memory of some cgroups is not
// known.
func (w *Memory) Weigh(now time.Time, shares []Share) (measured bool, err error) {
	if w.cgroups != nil {
		w.readCgroups(now, shares)
		err = w.cgroups.MemoryErr()
	}
	var sum, cpu uint64
	for i := range shares {
		s := &shares[i]
		s.Work = 0
		if s.ShortLived {
			continue
		}
		factor := uint64(max(s.Held, 0) / heldUnit)
		if w.byCPUTime {
			factor = uint64(s.CPU) / uint64(ranUnit)
			cpu = units.AddSaturating(cpu, factor)
		}
		s.Work = units.MulSaturating(w.held(s)/memoryUnit, factor)
		sum = units.AddSaturating(sum, s.Work)
	}
	if w.byCPUTime {
		weighShortLived(shares, sum, cpu)
	}
	return true, err
}

// weighShortLived gives short-lived processes the average weight per CPU time of the others.
func weighShortLived(shares []Share, sum, cpu uint64) {
	for i := range shares {
		if s := &shares[i]; s.ShortLived {
			s.Work = units.MulDiv(uint64(s.CPU)/uint64(ranUnit), sum, cpu)
		}
	}
}

// readCgroups reads what the cgroups of the shares are charged with.
func (w *Memory) readCgroups(now time.Time, shares []Share) {
	w.cgroups.BeginMemory(now)
	for i := range shares {
		if s := &shares[i]; !s.ShortLived && s.Cgroup != nil {
			w.cgroups.AddResident(s.Cgroup, s.Resident)
		}
	}
	w.cgroups.EndMemory()
}

// held returns the memory that a process holds, in bytes.
func (w *Memory) held(s *Share) uint64 {
	if w.cgroups != nil && s.Cgroup != nil {
		if bytes, ok := s.Cgroup.Memory(s.Resident); ok {
			return bytes
		}
	}
	return s.Resident
}

// Forget does nothing: memory is as it is at the moment.
func (*Memory) Forget() {}

// Name returns what is measured.
func (w *Memory) Name() string {
	if w.cgroups != nil {
		return "what cgroups are charged with"
	}
	return "what is resident"
}

// Close does nothing: the tree is its owner's.
func (*Memory) Close() error { return nil }
