// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"cmp"
	"slices"
	"time"
)

// price is the energy and the CPU time of a process in an interval and a place. Place 0 has the
// energy that is not divided by package, and the CPU time in all packages.
type price struct {
	interval int
	place    int // 1 + the index of a package, or 0
	energy   uint64
	cpuTime  time.Duration
}

func (p price) compare(o price) int {
	return cmp.Or(cmp.Compare(p.interval, o.interval), cmp.Compare(p.place, o.place))
}

// perNanosecond returns µJ per ns of CPU time, 0 if not available.
func (p price) perNanosecond() float64 {
	if p.cpuTime <= 0 {
		return 0
	}
	return float64(p.energy) / float64(p.cpuTime)
}

// intervals divides a period at the times until which all meters have reported. All windows in an
// interval have the same prices, because a slow meter reports energy long after its use.
type intervals struct {
	start int64   // Unix time in ns
	ends  []int64 // Unix times in ns, ascending
}

// add returns the open interval, which contains the window. If the meters have reported since the
// previous interval, it also ends the open interval.
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

// priceAt returns the price of a process in a package in an interval. Without CPU time in the
// package, it is the price of all packages in the interval. Without CPU time in the interval, it is
// the price of all packages in the period, or 0.
func (p *process) priceAt(interval, place int) float64 {
	from, _ := slices.BinarySearchFunc(p.prices, price{interval: interval}, price.compare)
	to, _ := slices.BinarySearchFunc(p.prices, price{interval: interval + 1}, price.compare)
	of := p.prices[from:to]
	if i := slices.IndexFunc(of, func(q price) bool { return q.place == place }); place > 0 && i >= 0 && of[i].cpuTime > 0 {
		if price := of[0].perNanosecond() + of[i].perNanosecond(); price > 0 {
			return price
		}
	}
	return cmp.Or(meanPrice(of), meanPrice(p.prices))
}

// meanPrice returns the price of all packages.
func meanPrice(prices []price) float64 {
	var all price
	for _, q := range prices {
		all.energy += q.energy
		if q.place == 0 {
			all.cpuTime += q.cpuTime
		}
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
		w.owed += of.idle + of.unattributed + of.shortLived
		for _, method := range of.methods {
			w.methods[method] = true
		}
		interval := -1
		if v != nil {
			interval = v.add(of)
		}
		for i, r := range of.rows {
			r.process.gain(r, of.end)
			w.owed += r.cpu + r.gpu
			if interval >= 0 {
				r.process.noteRow(interval, r, of.parts[i*of.packages:][:of.packages])
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
	p.unsampled += r.cpuTime
}

// noteRow adds the prices of a window.
func (p *process) noteRow(interval int, r row, parts []part) {
	undivided := r.cpu
	for i, of := range parts {
		if of.energy > 0 || of.cpuTime > 0 {
			undivided -= min(undivided, of.energy)
			p.note(price{interval, 1 + i, of.energy, of.cpuTime})
		}
	}
	p.note(price{interval, 0, undivided, r.cpuTime})
}

// note adds a price.
func (p *process) note(of price) {
	i, found := slices.BinarySearchFunc(p.prices, of, price.compare)
	if !found {
		p.prices = slices.Insert(p.prices, i, of)
		return
	}
	p.prices[i].energy += of.energy
	p.prices[i].cpuTime += of.cpuTime
}
