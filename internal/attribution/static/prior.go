// SPDX-License-Identifier: Apache-2.0

package static

import (
	"math"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Prior is the expected ratio of idle to full power of a zone that was not measured yet, and its
// standard deviation.
type Prior struct{ Ratio, Deviation float64 }

// measuredRatios are the ratios of idle to full power of measured machines: of packages, DRAM and
// whole machines. Their mean is used for zones of all kinds; see dev/replay.md for the reason.
// Sources: CodeCarbon (MIT), Teads turbostress reports (CC0-1.0), kepler-model-db and
// power-modelling (Apache-2.0), and RAPL of gemini-1 as published with Jay et al., CCGRID 2023.
var measuredRatios = []struct {
	machine string
	ratio   float64
}{
	// Packages.
	{"Intel Xeon E3-1240 V2", 0.11},
	{"Intel Xeon E5-2620 v3", 0.16},
	{"AMD Ryzen Threadripper 1950X", 0.25},
	{"AMD EPYC 8024P", 0.37},
	{"Intel Xeon Platinum 8124M", 0.12},
	{"Intel Xeon Platinum 8151", 0.10},
	{"Intel Xeon Platinum 8175M", 0.12},
	{"Intel Xeon Platinum 8259CL", 0.12},
	{"Intel Xeon Platinum 8275CL", 0.10},
	{"nx12", 0.18},
	{"gemini-1", 0.82},
	// DRAM.
	{"Intel Xeon Platinum 8124M", 0.44},
	{"Intel Xeon Platinum 8151", 0.45},
	{"Intel Xeon Platinum 8175M", 0.44},
	{"Intel Xeon Platinum 8259CL", 0.43},
	{"Intel Xeon Platinum 8275CL", 0.45},
	{"nx12", 0.52},
	{"gemini-1", 0.97},
	// Power supplies.
	{"AMD Opteron 6140", 0.35},
	{"AMD Opteron 6234", 0.33},
	{"INTEL Xeon E5-2640 RenewIT", 0.44},
	{"INTEL Xeon E5-2650", 0.49},
	{"INTEL Xeon X5650", 0.53},
}

// priorDeviation is the standard deviation of the uniform distribution from 0 to 1, because the
// measured ratios cover the whole range.
const priorDeviation = 0.29

// MeasuredPrior returns the prior from all measured machines.
func MeasuredPrior() Prior {
	prior, _ := PriorWithout("")
	return prior
}

// PriorWithout returns the prior from all measured machines except one. excluded reports whether
// the machine is a measured machine. If it is not, PriorWithout returns MeasuredPrior.
func PriorWithout(machine string) (prior Prior, excluded bool) {
	sum, n := 0.0, 0.0
	for _, m := range measuredRatios {
		if m.machine == machine {
			excluded = true
			continue
		}
		sum += m.ratio
		n++
	}
	return Prior{sum / n, priorDeviation}, excluded
}

// idle returns the idle power that the prior predicts from a power at a utilization, and its
// standard deviation.
func (p Prior) idle(watts, utilization float64) (idle, deviation float64) {
	full := p.Ratio + (1-p.Ratio)*loadPart(utilization)
	beyond := p.Ratio + (1-p.Ratio)*loadPart(max(utilization-background, 0))
	return watts * p.Ratio / beyond, watts * p.Deviation * loadPart(utilization) / (full * full)
}

// active returns the active part of a portion.
func (p Prior) active(q attribution.Portion) units.Energy {
	idle, _ := p.idle(float64(q.Energy), float64(min(q.Busy, q.Total))/float64(q.Total))
	return units.Advance(units.Energy(math.Round(idle)), q.Energy)
}
