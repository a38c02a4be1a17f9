// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"math"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// hit is the part of a sample that receives energy in the current period.
type hit struct {
	sample *sample
	// count is the number of times that the sample was taken in the period.
	count uint64
	// price is the energy in µJ of a nanosecond of CPU time, summed over count. Only its ratio to the
	// prices of other hits matters.
	price float64
}

// divide adds energy, in µJ, to samples in proportion to the prices of hits. The parts are whole
// microjoules that add up to energy.
func divide(energy uint64, hits []hit) {
	weight := weights(hits)
	d := units.Division{Amount: energy}
	for i := range hits {
		d.Total += weight(&hits[i])
	}
	for i := range hits {
		hits[i].sample.energy += d.Next(weight(&hits[i]))
	}
}

// weights returns a function that converts the price of a hit to an integer weight of at least 1.
// At most maxBytes/sampleBytes hits can be divided at a time, so that the sum of all weights fits
// into 64 bits.
func weights(hits []hit) func(*hit) uint64 {
	const largest = 1 << 32
	highest := 0.0
	for i := range hits {
		highest = max(highest, hits[i].price)
	}
	if highest == 0 || math.IsInf(highest, 0) || math.IsNaN(highest) {
		return func(h *hit) uint64 { return min(h.count, largest) }
	}
	return func(h *hit) uint64 { return max(1, uint64(h.price/highest*largest)) }
}
