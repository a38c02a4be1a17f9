// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"math"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// price is the energy of a process in an interval, in µJ, and its CPU time.
type price struct {
	interval int
	place    int // 1 + the index of a package, 0 for all packages, noPackage for energy of no single package
	energy   uint64
	cpuTime  time.Duration
}

const noPackage = -1

// endInterval ends an interval if the meters have reported since the last one.
func (l *ledger) endInterval(attributed int64) {
	if n := len(l.ends); n == 0 && attributed > l.reported || n > 0 && attributed > l.ends[n-1] {
		l.ends = append(l.ends, attributed)
	}
}

// intervalAt returns the interval of a time, -1 if it is before the period.
func (l *ledger) intervalAt(t int64) int {
	if t <= l.reported {
		return -1
	}
	i, _ := slices.BinarySearch(l.ends, t)
	return i
}

// placeOf returns the price.place of a CPU, 0 if its package is not available.
func (l *ledger) placeOf(cpu int32) int {
	if cpu < 0 || int(cpu) >= len(l.packages) {
		return 0
	}
	return 1 + int(l.packages[cpu])
}

// note adds the prices of a row.
func (p *process) note(interval int, r *feed.Process, kinds []int) {
	energy := sum(r.Energy, kinds)
	p.prices = append(p.prices, price{interval, 0, energy, r.CPU})
	for i, part := range r.Packages {
		of := sum(part.Energy, kinds)
		energy -= min(energy, of)
		p.prices = append(p.prices, price{interval, 1 + i, of, part.CPU})
	}
	p.prices = append(p.prices, price{interval, noPackage, energy, r.CPU})
}

// priceAt returns the price in µJ per ns of a process in a package in an interval. Without CPU time
// there it is the price in the interval, else the price of the period, else 0.
func (p *process) priceAt(interval, place int) float64 {
	if own, ok := p.mean(interval, place); ok && place > 0 {
		if shared, _ := p.mean(interval, noPackage); own+shared > 0 {
			return own + shared
		}
	}
	if all, _ := p.mean(interval, 0); all > 0 {
		return all
	}
	all, _ := p.mean(-1, 0)
	return all
}

// mean returns the price of a place in an interval, in the period if interval is -1. It is not ok
// without CPU time.
func (p *process) mean(interval, place int) (_ float64, ok bool) {
	var energy uint64
	var cpuTime time.Duration
	for i := range p.prices {
		if of := &p.prices[i]; of.place == place && (of.interval == interval || interval == -1) {
			energy, cpuTime = energy+of.energy, cpuTime+of.cpuTime
		}
	}
	if cpuTime <= 0 {
		return 0, false
	}
	return float64(energy) / float64(cpuTime), true
}

// hit is the part of a sample that receives energy in the current period.
type hit struct {
	sample *sample
	// count is the number of times that the sample was taken in the period.
	count uint64
	// price is the energy in µJ of a nanosecond of CPU time, summed over count. Only its ratio to the
	// prices of other hits matters.
	price float64
}

// divide adds energy, in µJ, to samples in proportion to the prices of hits, else to their counts. The
// parts are whole microjoules that add up to energy.
func divide(energy uint64, hits []hit) {
	const largest = 1 << 32 // at most maxBytes/sampleBytes hits are divided, so the sum of all weights fits into 64 bits
	highest := 0.0
	for i := range hits {
		highest = max(highest, hits[i].price)
	}
	weight := func(h *hit) uint64 { return max(1, uint64(h.price/highest*largest)) }
	if highest == 0 || math.IsInf(highest, 0) || math.IsNaN(highest) {
		weight = func(h *hit) uint64 { return min(h.count, largest) }
	}
	d := units.Division{Amount: energy}
	for i := range hits {
		d.Total += weight(&hits[i])
	}
	for i := range hits {
		hits[i].sample.energy += d.Next(weight(&hits[i]))
	}
}
