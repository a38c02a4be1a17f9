// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/weigh"
)

// The units of memory's weights: small enough for what runs in days on machines of any size.
const (
	memoryUnit = 4096 // bytes
	heldUnit   = time.Millisecond
	ranUnit    = time.Microsecond
)

// memoryWeigher weighs claims by the memory that they hold: for how long, or for how much CPU time. Short-lived processes
// hold nothing for any length of time, and what the others do on average while they ran.
type memoryWeigher struct {
	cgroups   *cgroup.Tree // nil: what processes have resident is the memory that a container holds
	byCPUTime bool
}

func openMemory(key Key, o *KeyOptions) (w Weigher, rejected, err error) {
	m := &memoryWeigher{byCPUTime: key == KeyMemoryCPUTime}
	if o.CgroupMemory {
		m.cgroups = o.Cgroups
	}
	return m, nil, nil
}

func (w *memoryWeigher) Weigh(now time.Time, shares []weigh.Share) (measured bool, err error) {
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
		ran := uint64(s.CPU) / uint64(ranUnit)
		factor := uint64(max(s.Held, 0) / heldUnit)
		if w.byCPUTime {
			factor = ran
		}
		s.Work = units.MulDiv(w.held(s)/memoryUnit, factor, 1)
		sum, cpu = units.AddSaturating(sum, s.Work), units.AddSaturating(cpu, ran)
	}
	if w.byCPUTime {
		for i := range shares {
			if s := &shares[i]; s.ShortLived {
				s.Work = units.MulDiv(uint64(s.CPU)/uint64(ranUnit), sum, cpu)
			}
		}
	}
	return true, err
}

// readCgroups reads what the cgroups of the shares are charged with.
func (w *memoryWeigher) readCgroups(now time.Time, shares []weigh.Share) {
	w.cgroups.BeginMemory(now)
	for i := range shares {
		if s := &shares[i]; !s.ShortLived && s.Cgroup != nil {
			w.cgroups.AddResident(s.Cgroup, s.Resident)
		}
	}
	w.cgroups.EndMemory()
}

// held returns the memory that a process holds, in bytes.
func (w *memoryWeigher) held(s *weigh.Share) uint64 {
	if w.cgroups != nil && s.Cgroup != nil {
		if bytes, ok := s.Cgroup.Memory(s.Resident); ok {
			return bytes
		}
	}
	return s.Resident
}

func (*memoryWeigher) Forget() {}

func (w *memoryWeigher) Name() string {
	if w.cgroups != nil {
		return "what cgroups are charged with"
	}
	return "what is resident"
}

func (*memoryWeigher) Close() error { return nil }
