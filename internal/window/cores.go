// SPDX-License-Identifier: Apache-2.0

package window

import (
	"math"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
)

// cores computes how much less CPU time counts because several threads of a core were busy.
//
// The power of a core with one busy thread is 1. Each additional busy thread adds further. The busy
// threads share the sum equally. The kernel reports how long a thread was busy in an interval, but
// not when. Threads are therefore assumed to be busy independently of each other.
type cores struct {
	siblings *divide.Siblings
	further  float64
	cpus     []core // by number, of the siblings
	mean     uint64 // discount of CPU time whose CPU is not available
}

// core is a logical CPU in an interval.
type core struct {
	last     units.CPUTime // the kernel's count at the end of the previous interval
	busy     units.CPUTime
	late     units.CPUTime // busy time beyond the interval's length; it counts in the next interval
	claimed  units.CPUTime // by rows whose CPU is available
	discount uint64        // of its CPU time, in units of 1/full
}

// full is the discount of 100 %.
const full = 1 << 32

// newCores returns the cores of siblings. Two busy threads draw 2 * weight.
func newCores(siblings *divide.Siblings, weight float64) *cores {
	return &cores{siblings: siblings, further: 2*weight - 1}
}

// discount sets the discounts of all rows, and reduces their slices to the time that counts. It
// removes the slices if no threads share a core.
func (c *cores) discount(t *table, m *Measurement) {
	c.readBusy(m)
	if !c.siblings.Shared() || t.interval.Elapsed <= 0 {
		for i := range t.rows {
			t.rows[i].on = nil
		}
		return
	}
	length := units.CPUTime(t.interval.Elapsed)
	for _, s := range t.on {
		if p := c.at(s.CPU); p != nil {
			p.claimed = units.AddSaturating(p.claimed, s.Used)
		}
	}
	if m.CPUs == nil {
		c.addUp(t.rows, length)
	}
	c.computeDiscounts(float64(length))
	for i := range t.rows {
		c.discountRow(&t.rows[i])
	}
}

// readBusy sets how long each CPU was busy, by the counters of the kernel if the measurement has
// them.
func (c *cores) readBusy(m *Measurement) {
	c.siblings.Refresh(m.Table.Now)
	for len(c.cpus) < c.siblings.CPUs() {
		c.cpus = append(c.cpus, core{})
	}
	for i := range c.cpus {
		p := &c.cpus[i]
		p.busy, p.claimed = 0, 0
		if i < len(m.CPUs) {
			p.busy = units.Advance(p.last, m.CPUs[i])
			p.last = m.CPUs[i]
		}
	}
}

// at returns a CPU, or nil if it has no siblings.
func (c *cores) at(cpu int32) *core {
	if cpu < 0 || int(cpu) >= c.siblings.CPUs() {
		return nil
	}
	return &c.cpus[cpu]
}

// addUp computes the busy time of each CPU from the rows. A thread's CPU time may be reported after
// the interval of its use, so time beyond the length of the interval counts in the next interval.
// CPU time whose CPU is not available is divided in proportion to the remaining idle time of each
// CPU.
func (c *cores) addUp(rows []row, length units.CPUTime) {
	var known, unknown, room units.CPUTime
	for i := range rows {
		unknown = units.AddSaturating(unknown, rows[i].CPU)
	}
	for i := range c.siblings.CPUs() {
		p := &c.cpus[i]
		known = units.AddSaturating(known, p.claimed)
		p.busy = units.AddSaturating(p.claimed, p.late)
		p.late = min(units.Advance(length, p.busy), length)
		p.busy = min(p.busy, length)
		if c.siblings.Online(i) {
			room += length - p.busy
		}
	}
	unknown = min(units.Advance(known, unknown), room)
	for i := range c.siblings.CPUs() {
		if p := &c.cpus[i]; unknown > 0 && c.siblings.Online(i) {
			p.busy += units.CPUTime(units.MulDiv(uint64(length-p.busy), uint64(unknown), uint64(room)))
		}
	}
}

// computeDiscounts computes the discount of each CPU. It also computes the average discount of busy
// time that no row claims on a CPU.
func (c *cores) computeDiscounts(length float64) {
	var rest, discounted, all, ofAll float64
	for i := range c.siblings.CPUs() {
		p, others := &c.cpus[i], 0.0
		for _, sibling := range c.siblings.Of(i) {
			others += min(float64(c.cpus[sibling].busy)/length, 1)
		}
		discount := 1 - c.counts(others)
		p.discount = uint64(discount * full)
		left := float64(units.Advance(p.claimed, p.busy))
		rest, discounted = rest+left, discounted+left*discount
		all, ofAll = all+float64(p.busy), ofAll+float64(p.busy)*discount
	}
	switch {
	case rest > 0:
		c.mean = uint64(discounted / rest * full)
	case all > 0:
		c.mean = uint64(ofAll / all * full)
	}
}

// counts returns the value of CPU time while on average others further threads of its core are
// busy. It interpolates linearly between whole numbers, which is exact for cores with two threads.
func (c *cores) counts(others float64) float64 {
	of := func(n float64) float64 { return (1 + n*c.further) / (1 + n) }
	whole := math.Floor(others)
	return of(whole) + (others-whole)*(of(whole+1)-of(whole))
}

// discountRow sets the discount of a row.
func (c *cores) discountRow(r *row) {
	rest := r.CPU
	for i := range r.on {
		s := &r.on[i]
		part := min(s.Used, rest)
		rest -= part
		p := c.at(s.CPU)
		if p == nil {
			r.Discount += units.CPUTime(units.MulDiv(uint64(part), c.mean, full))
			s.Used = 0
			continue
		}
		less := units.CPUTime(units.MulDiv(uint64(part), p.discount, full))
		r.Discount += less
		s.Used -= less
	}
	r.Discount += units.CPUTime(units.MulDiv(uint64(rest), c.mean, full))
}
