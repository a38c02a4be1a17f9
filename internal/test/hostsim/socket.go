// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"math"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// Socket is one package and its memory.
type Socket struct {
	// CPUs is the number of logical CPUs.
	CPUs int
	// Threads is the number of hardware threads per core, 1 or 2. 0 means 1. With 2, the CPUs i and
	// i + CPUs/2 of the socket are siblings.
	Threads int
	// Siblings is the power of a core with two busy threads, relative to a core with one. 0 means
	// 2: each thread draws the power of a core.
	Siblings float64
	// Idle and DRAMIdle are the power of the package and of its memory at rest, in W.
	Idle, DRAMIdle float64
	// Curve is the package's power by load. Only the difference to its first point counts.
	Curve model.Curve
	// Frequency returns the clock rate relative to the nominal one at a utilization of 0 to 1. Nil
	// means the nominal rate.
	Frequency func(utilization float64) float64
	// Turbo replaces Frequency if it is not nil.
	Turbo *Turbo
	// Drift returns the difference of the package's power at rest from Idle at a time since boot,
	// in W. Nil means no drift.
	Drift func(at time.Duration) float64
	// Leakage is further power at rest, or nil.
	Leakage *Leakage
	// Package, Core and DRAM are the zones, or nil. Core is inside Package.
	Package, Core, DRAM *Zone

	// Energy is the total energy of package and DRAM, Idled the part of it drawn at rest, in µJ.
	Energy, Idled Energies
	// Interrupts is the part of the package's energy caused by interrupts, in µJ. It belongs to no
	// task.
	Interrupts float64

	fraction Energies // of a µJ, not yet counted
	core     float64
	demand   float64 // scratch of Step
	weight   float64
	memory   float64
	rate     float64
	clock    float64 // relative rate of the last step
	ran      time.Duration
	clocks   cpuClocks
	first    int    // number of the first CPU
	cores    *cores // nil if the power does not depend on the tasks' CPUs
}

// Energies are energies by zone kind, in µJ.
type Energies struct{ Package, DRAM float64 }

// Add adds both energies of o.
func (e *Energies) Add(o Energies) { e.Package += o.Package; e.DRAM += o.DRAM }

// coreShare is the share of the cores in a package's dynamic power.
const coreShare = 0.75

const joule = 1e6 // µJ

// Leakage is power at rest that follows the package's temperature.
type Leakage struct {
	// Share is the leakage under a steady load, relative to the package's power above rest.
	Share float64
	// Constant is the time constant of the temperature.
	Constant time.Duration

	watts float64
}

// heat follows the temperature for a step with this power above rest, in W.
func (l *Leakage) heat(watts, seconds float64) {
	l.watts += (l.Share*watts - l.watts) * (1 - math.Exp(-seconds/l.Constant.Seconds()))
}

// rest returns the package's power at rest at a time since boot, in W.
func (s *Socket) rest(at time.Duration) float64 {
	watts := s.Idle
	if s.Drift != nil {
		watts += s.Drift(at)
	}
	if s.Leakage != nil {
		watts += s.Leakage.watts
	}
	return watts
}

// step returns the socket's energy of a step that begins at a time since boot, in µJ. It sets the
// package energy per unit of weight.
func (s *Socket) step(at time.Duration, seconds, irq float64) (used float64) {
	rest := s.rest(at)
	utilization := min(s.demand*s.rate/float64(s.CPUs)+irq, 1)
	cubed := 1.0
	interrupts, full := irq*float64(s.CPUs), float64(s.CPUs)
	busy := utilization * full // cores
	if s.cores != nil {
		interrupts, full, busy = s.cores.interrupts, s.cores.full, s.cores.busy(irq)
	}
	switch {
	case s.Turbo != nil:
		cores := float64(s.CPUs / max(s.Threads, 1))
		s.clock = s.Turbo.rate(busy, cores, func(rate float64) float64 {
			return rest + s.above((s.weight+interrupts)*rate*rate*rate/full)
		})
		cubed = s.clock * s.clock * s.clock
	case s.Frequency != nil:
		s.clock = s.Frequency(utilization)
		cubed = s.clock * s.clock * s.clock
	}
	weight := s.weight*cubed + interrupts*cubed
	dynamic := s.above(weight/full) * seconds * joule
	idle := rest * seconds * joule
	if s.Leakage != nil {
		s.Leakage.heat(dynamic/(seconds*joule), seconds)
	}
	if s.Turbo != nil {
		s.Turbo.heat((idle+dynamic)/(seconds*joule), seconds)
	}
	memoryIdle := s.DRAMIdle * seconds * joule
	memory := s.memory * seconds * joule

	s.Energy.Add(Energies{idle + dynamic, memoryIdle + memory})
	s.Idled.Add(Energies{idle, memoryIdle})
	s.fraction.Package = s.Package.count(idle + dynamic + s.fraction.Package)
	s.fraction.DRAM = s.DRAM.count(memoryIdle + memory + s.fraction.DRAM)
	s.core = s.Core.count(coreShare*dynamic + s.core)

	s.weight = 0
	if weight > 0 {
		s.weight = dynamic / weight * cubed // per unit of a task's own weight
		s.Interrupts += interrupts * s.weight
	}
	return idle + dynamic + memoryIdle + memory
}

// above returns the package's power above Idle at a load, in W.
func (s *Socket) above(load float64) float64 {
	if len(s.Curve) == 0 {
		return 0
	}
	base := s.Curve[0].Watts
	if load > 1 { // above full load at the nominal clock rate
		return (s.Curve.Watts(1) - base) * load
	}
	return s.Curve.Watts(load) - base
}

// count adds energy to a counter, which may be nil, and returns the remaining fraction of a µJ.
func (z *Zone) count(energy float64) float64 {
	whole := math.Floor(energy)
	if z != nil {
		z.Energy += uint64(whole)
		z.Counted += uint64(whole)
		if z.Max > 0 {
			z.Energy %= z.Max
		}
	}
	return energy - whole
}
