// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// Share is the usage of one row of an interval, which is to be weighed.
type Share struct {
	CPU units.CPUTime
	// Discount is the part of CPU that does not count for the energy of cores, because other
	// threads of the same cores were busy too. It is at most CPU.
	Discount units.CPUTime
	// LastCPU is the CPU that ran the process last. A negative number means that it is not
	// available.
	LastCPU int32
	// ShortLived reports whether the claim belongs to processes that lived between two scans. Such
	// a claim has no Resident and no Held.
	ShortLived bool
	// Counted reports whether the hardware events of the claim were counted. Events are the counts.
	Counted bool
	Events  proc.Events
	// Resident is the resident memory of the process in bytes. Held is for how much of the interval
	// it was held.
	Resident uint64
	Held     time.Duration
	// Work is the weight, set by Weigh. Only proportions of weights mean anything, within and
	// between intervals.
	Work uint64
}

// ByRate weighs CPU time by work per CPU time. It is not safe for concurrent use.
type ByRate struct {
	source source
	mean   uint64 // of all rates of the last interval that had any
	scaled bool   // mean was measured
	known  []bool // scratch
	failed error  // in the last interval with any CPU time
}

// source measures work per CPU time, the rate of a share.
type source interface {
	// begin starts an interval with its shares.
	begin(now time.Time, shares []*Share)
	// rate returns the work per ns of CPU time, in units of 1/one. It is not ok if the rate was not
	// measured.
	rate(*Share) (rate uint64, ok bool)
	// Err returns the reason why an expected rate is missing, or nil.
	Err() error
	name() string
	// Calibrate, Forget and Close implement the methods of ByRate.
	Calibrate(total units.Energy, zones int, at time.Time, trainable bool)
	Forget()
	Close() error
}

// one is a rate of 1.
const one = 1 << 32

func newByRate(s source) *ByRate { return &ByRate{source: s, mean: one} }

// Name describes the weight and its source.
func (m *ByRate) Name() string { return m.source.name() }

// Calibrate is sampler.Calibrate of a model. Other weights ignore it.
func (m *ByRate) Calibrate(total units.Energy, zones int, at time.Time, trainable bool) {
	m.source.Calibrate(total, zones, at, trainable)
}

// Forget discards counts of the current sample of a model.
func (m *ByRate) Forget() { m.source.Forget() }

// Close closes the source.
func (m *ByRate) Close() error { return m.source.Close() }

// Weigh sets the Work of all shares of an interval. Shares whose rate is missing get the average
// rate of the others. measured reports whether any rate was measured; otherwise Work is
// meaningless. The error is the reason why a rate is missing. It may be set even if Weigh returns
// true.
func (m *ByRate) Weigh(now time.Time, shares []*Share) (measured bool, err error) {
	m.source.begin(now, shares)
	m.known = m.known[:0]
	var work, cpu uint64
	for _, s := range shares {
		rate, ok := m.source.rate(s)
		m.known = append(m.known, ok)
		if ok {
			s.Work = units.MulDiv(uint64(s.CPU), rate, one)
			work, cpu = units.AddSaturating(work, s.Work), units.AddSaturating(cpu, uint64(s.CPU))
		}
	}
	if work > 0 {
		m.mean, m.scaled = units.MulDiv(work, one, cpu), true
	}
	ran := false
	for i, known := range m.known {
		if !known {
			shares[i].Work = units.MulDiv(uint64(shares[i].CPU), m.mean, one)
		}
		ran = ran || shares[i].CPU > 0
	}
	if ran {
		m.failed = m.source.Err()
	}
	return cpu > 0 || !ran, m.failed
}
