// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"cmp"
	"slices"
	"time"
)

// totals is energy that no process has, in µJ.
type totals struct{ idle, unattributed, shortLived uint64 }

// price is the energy of a process in an interval, and its CPU time.
type price struct {
	interval int
	energy   uint64
	cpuTime  time.Duration
}

// perNanosecond returns µJ per ns of CPU time, 0 if it is unknown.
func (p price) perNanosecond() float64 {
	if p.cpuTime <= 0 {
		return 0
	}
	return float64(p.energy) / float64(p.cpuTime)
}

// intervals divides a period by the times until which all meters had reported. The energy of a window is
// that of the time between two such moments: a slow meter reports long after its energy was used.
type intervals struct {
	start int64   // Unix time in ns
	ends  []int64 // Unix times in ns, ascending
}

// add returns the interval of a window, which is the open one if the meters have not reported since.
func (v *intervals) add(w *window) int {
	interval := len(v.ends)
	end := w.attributed.UnixNano()
	if interval == 0 && end > v.start || interval > 0 && end > v.ends[interval-1] {
		v.ends = append(v.ends, end)
	}
	return interval
}

// at returns the interval of a time, -1 if it is before the period.
func (v *intervals) at(t int64) int {
	if t <= v.start {
		return -1
	}
	i, _ := slices.BinarySearch(v.ends, t)
	return i
}

// priceAt returns the price of a process in an interval, its mean price in the period if it has none there,
// and 0 if it has none at all.
func (p *process) priceAt(interval int) float64 {
	i, found := slices.BinarySearchFunc(p.prices, interval, func(p price, interval int) int {
		return cmp.Compare(p.interval, interval)
	})
	if found {
		if price := p.prices[i].perNanosecond(); price > 0 {
			return price
		}
	}
	return p.meanPrice()
}

func (p *process) meanPrice() float64 {
	var all price
	for _, q := range p.prices {
		all.energy += q.energy
		all.cpuTime += q.cpuTime
	}
	return all.perNanosecond()
}

// merge adds the energy of windows to their processes and to rest. With intervals it notes prices.
func (w *windows) merge(due []window, v *intervals) {
	for i := range due {
		of := &due[i]
		w.rest.idle += of.idle
		w.rest.unattributed += of.unattributed
		w.rest.shortLived += of.shortLived
		for _, method := range of.methods {
			w.methods[method] = true
		}
		interval := -1
		if v != nil {
			interval = v.add(of)
		}
		for _, r := range of.rows {
			r.process.gain(r, of.end)
			if interval >= 0 {
				r.process.note(price{interval, r.cpu, r.cpuTime})
			}
		}
	}
}

// gain adds the energy of a window.
func (p *process) gain(r row, end time.Time) {
	if p.cpu == 0 && r.cpu > 0 {
		p.waiting = end
	}
	p.cpu += r.cpu
	p.gpu += r.gpu
}

// note adds the price of a window.
func (p *process) note(of price) {
	if n := len(p.prices); n > 0 && p.prices[n-1].interval == of.interval {
		p.prices[n-1].energy += of.energy
		p.prices[n-1].cpuTime += of.cpuTime
		return
	}
	p.prices = append(p.prices, of)
}
