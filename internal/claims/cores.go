// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"math"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
)

// cores computes how much less CPU time counts because several threads of a core were busy. A nil
// cores discounts nothing.
//
// A core with one busy thread draws 1, and each further busy thread adds further. The busy threads
// share that equally. How busy a thread was in an interval is known, and when it was is not:
// threads are taken to be busy independently of each other.
type cores struct {
	siblings *divide.Siblings
	further  float64
	cpus     []core        // by number, those of siblings
	slices   []proc.Slice  // of all claims
	ends     []int         // of each claim's slices
	counted  bool          // busy was counted by the kernel in the interval, and is not the sum of claims
	one      [1]proc.Slice // returned last
	mean     uint64        // discount of CPU time whose CPU is not known
}

// core is a logical CPU in an interval.
type core struct {
	last     units.CPUTime // the kernel's count at the end of the interval before
	busy     units.CPUTime
	late     units.CPUTime // beyond the interval's length; it is the next one's
	claimed  units.CPUTime // by claims whose CPU is known
	discount uint64        // of its CPU time, in units of 1/full
}

// full is a discount of all CPU time.
const full = 1 << 32

// newCores returns nil if siblings is nil. Two busy threads draw 2 * weight.
func newCores(siblings *divide.Siblings, weight float64) *cores {
	if siblings == nil {
		return nil
	}
	return &cores{siblings: siblings, further: 2*weight - 1}
}

// begin starts an interval without claims.
func (c *cores) begin(m *Measurement) {
	if c == nil {
		return
	}
	c.siblings.Refresh(m.Table.Now)
	c.slices, c.ends = c.slices[:0], c.ends[:0]
	for len(c.cpus) < c.siblings.CPUs() {
		c.cpus = append(c.cpus, core{})
	}
	c.counted = m.CPUs != nil
	for i := range c.cpus {
		p := &c.cpus[i]
		p.busy, p.claimed = 0, 0
		if i < len(m.CPUs) {
			p.busy = units.Advance(p.last, m.CPUs[i])
			p.last = m.CPUs[i]
		}
	}
}

// works reports whether CPUs of slices are of use.
func (c *cores) works() bool { return c != nil && c.siblings.Shared() }

// slicesOf returns on which CPUs p.Used was used, nil if that is not known: procfs shows the CPU of
// a process's first thread only.
func (c *cores) slicesOf(p *proc.Process, t *proc.Table, exact bool) []proc.Slice {
	if !c.works() || !exact && p.Threads > 1 {
		return nil
	}
	return t.Splits.Slices(p.Split, p.Used, p.LastCPU)
}

// lastSlice returns where the last slice of a process was used, nil if that is not known.
func (c *cores) lastSlice(e *proc.Ended, used units.CPUTime, exact bool) []proc.Slice {
	if !c.works() || !exact && e.Threads > 1 {
		return nil
	}
	c.one[0] = proc.Slice{CPU: e.LastCPU, Used: used}
	return c.one[:]
}

// claimed notes where the next claim's CPU time was used, as far as that is known.
func (c *cores) claimed(on []proc.Slice) {
	if c.works() {
		c.slices = append(c.slices, on...)
		c.ends = append(c.ends, len(c.slices))
	}
}

// discount sets the discounts of the shares of an interval.
func (c *cores) discount(k *Keys, elapsed time.Duration) {
	if !c.works() || k == nil || elapsed <= 0 {
		return
	}
	length := units.CPUTime(elapsed)
	for i := range c.slices {
		if p := c.at(c.slices[i].CPU); p != nil {
			p.claimed = units.AddSaturating(p.claimed, c.slices[i].Used)
		}
	}
	if !c.counted {
		c.addUp(k.shares, length)
	}
	c.computeDiscounts(float64(length))
	from := 0
	for i := range k.shares {
		s := &k.shares[i]
		to := c.ends[i]
		s.Discount = c.discountOf(s.CPU, c.slices[from:to])
		from = to
	}
}

// at returns a CPU, nil if it is not known.
func (c *cores) at(cpu int32) *core {
	if cpu < 0 || int(cpu) >= c.siblings.CPUs() {
		return nil
	}
	return &c.cpus[cpu]
}

// addUp makes CPUs as busy as claims have used them. A thread's time may be shown after the
// interval in which it ran, so what is more than a CPU had counts in the next. Time whose CPU is
// not known is divided in proportion to what is left of each.
func (c *cores) addUp(shares []weigh.Share, length units.CPUTime) {
	var known, unknown, room units.CPUTime
	for i := range shares {
		unknown = units.AddSaturating(unknown, shares[i].CPU)
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

// computeDiscounts computes the discount of each CPU, and the average of the busy time that is not
// claimed on a known CPU.
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

// counts returns what CPU time counts for while so many other threads of its core are busy on
// average. Between whole numbers it is in proportion, which is exact for cores of two threads.
func (c *cores) counts(others float64) float64 {
	of := func(n float64) float64 { return (1 + n*c.further) / (1 + n) }
	whole := math.Floor(others)
	return of(whole) + (others-whole)*(of(whole+1)-of(whole))
}

func (c *cores) discountOf(used units.CPUTime, on []proc.Slice) (discount units.CPUTime) {
	for i := range on {
		part := min(on[i].Used, used)
		used -= part
		rate := c.mean
		if p := c.at(on[i].CPU); p != nil {
			rate = p.discount
		}
		discount += units.CPUTime(units.MulDiv(uint64(part), rate, full))
	}
	return discount + units.CPUTime(units.MulDiv(uint64(used), c.mean, full))
}

// divide sets parts to what the CPU time of a claim counts for in each domain, and reports whether
// that is known in each domain where place has time. Of a process that ended, only the CPU where it
// was last is known. Call it after discount.
func (c *cores) divide(parts, place []units.CPUTime, claim int, topology *divide.Topology) (known bool) {
	if !c.works() || claim >= len(c.ends) {
		return false
	}
	clear(parts)
	from := 0
	if claim > 0 {
		from = c.ends[claim-1]
	}
	for _, slice := range c.slices[from:c.ends[claim]] {
		if p := c.at(slice.CPU); p != nil {
			less := units.CPUTime(units.MulDiv(uint64(slice.Used), p.discount, full))
			domain := topology.Of(slice.CPU)
			parts[domain] = units.AddSaturating(parts[domain], slice.Used-less)
		}
	}
	for i := range parts {
		if (parts[i] > 0) != (place[i] > 0) {
			return false
		}
	}
	return true
}

// shrink frees the memory that was needed for more claims.
func (c *cores) shrink() {
	if c != nil {
		c.slices, c.ends = nil, nil
	}
}
