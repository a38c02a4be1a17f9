// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Share is what somebody used in an interval, to be weighed.
type Share struct {
	CPU units.CPUTime
	// LastCPU is the CPU where it was used last, below 0 where that is not known.
	LastCPU int32
	// Cgroup is the container's, nil outside of containers.
	Cgroup *cgroup.Node
	// ShortLived reports whether no scan saw who used it. The rest is of those who were seen only.
	ShortLived bool
	// Resident is the memory that a process has resident, in bytes, and Held for how much of the interval.
	Resident uint64
	Held     time.Duration
	// Work is the weight, which is to be found. Only its proportions mean anything, in one interval and between intervals.
	Work uint64
}

// ByRate weighs CPU time by the rate at which work was done in it. It is not safe for concurrent use.
type ByRate struct {
	source source
	mean   uint64 // rate of all that was known lately
	known  []bool // scratch
	failed error  // at the last interval in which somebody ran
}

// source tells at what rate work was done.
type source interface {
	// begin starts an interval with its shares.
	begin(now time.Time, shares []Share)
	// rate returns the work per ns of CPU time, in units of 1/one. It is not ok if the rate is not known.
	rate(*Share) (rate uint64, ok bool)
	// forget drops what was done until now, which is nobody's.
	forget()
	// trouble returns why something is not known that should be, nil if all is known.
	trouble() error
	name() string
	close() error
}

// one is a rate of 1.
const one = 1 << 32

func newByRate(s source) *ByRate { return &ByRate{source: s, mean: one} }

// Name returns what is measured, and how.
func (m *ByRate) Name() string { return m.source.name() }

// Forget drops what was done until now and has no CPU time yet: it is nobody's.
func (m *ByRate) Forget() { m.source.forget() }

// Close closes what is open.
func (m *ByRate) Close() error { return m.source.close() }

// Weigh sets the Work of all shares of an interval. Shares whose rate is not known get the average rate of the others. It
// reports whether any rate is known; if not, Work means nothing. The error is why something is not known, whether or not
// anything was measured.
func (m *ByRate) Weigh(now time.Time, shares []Share) (measured bool, err error) {
	m.source.begin(now, shares)
	m.known = m.known[:0]
	var work, cpu uint64
	for i := range shares {
		s := &shares[i]
		rate, ok := m.source.rate(s)
		m.known = append(m.known, ok)
		if ok {
			s.Work = units.MulDiv(uint64(s.CPU), rate, one)
			work, cpu = units.AddSaturating(work, s.Work), units.AddSaturating(cpu, uint64(s.CPU))
		}
	}
	if work > 0 {
		m.mean = units.MulDiv(work, one, cpu)
	}
	ran := false
	for i, known := range m.known {
		if !known {
			shares[i].Work = units.MulDiv(uint64(shares[i].CPU), m.mean, one)
		}
		ran = ran || shares[i].CPU > 0
	}
	if ran {
		m.failed = m.source.trouble()
	}
	return cpu > 0 || !ran, m.failed
}
