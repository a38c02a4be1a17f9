// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// MaxKinds is the maximum number of kinds in a ledger. A kind is a zone kind together with the
// source of its energy. The zones of a kind are reported together.
const MaxKinds = 16

// Rules are the exchangeable parts of the attribution. The zero Rules divide energy by CPU
// utilization, share active energy by CPU time and leave idle energy without an owner.
type Rules struct {
	// Models divide the energy of each kind into active and idle. The utilization of the CPUs
	// divides the energy of a kind without a model.
	Models [MaxKinds]StaticPowerModel
	// Keys holds the attribution weight of each kind. If this weight is 0 for all claims, CPU time
	// replaces it.
	Keys [MaxKinds]Weight
	// Idle selects the claimants that carry idle energy.
	Idle IdleAllocation
}

// StaticPowerModel divides energy into an active part and an idle part, which the hardware needs
// whether or not it is used. A Sharer calls it from one goroutine, in the order of the portions.
type StaticPowerModel interface {
	// Active returns the active part of a portion; the rest is idle. A result above Portion.Energy
	// counts as Portion.Energy.
	Active(Portion) units.Energy
}

// TrainedModel is a StaticPowerModel of one kind that is trained on the portions that it divides.
type TrainedModel interface {
	StaticPowerModel
	// Trained reports whether the estimate of a domain's static power is exact enough.
	Trained(domain int) bool
	// Provisional reports whether a domain has no estimate yet, or a provisional one.
	Provisional(domain int) bool
	// StandardError returns the standard error of the static power in use for a domain, in watts.
	// It is negative if there is no estimate of it.
	StandardError(domain int) float64
}

// Portion is the energy of zones of one kind and domain over the same time. It is divided into
// active and idle energy in one step.
type Portion struct {
	Domain, Kind int
	Energy       units.Energy
	// Busy is the domain's busy time during Elapsed, without Excluded, the time of excluded
	// claimants.
	Busy, Excluded units.CPUTime
	// Total is the domain's busy time, idle time and time waiting for I/O. It is not 0.
	Total   units.CPUTime
	Elapsed time.Duration
	// Zones is the number of zones whose energy the portion contains. Of is the number of zones of
	// the kind in the domain, and OfAll in all domains.
	Zones, Of, OfAll int
	// Partial reports whether the energy covers only a part of Elapsed, or Busy is assumed. Models
	// are not trained on such a portion.
	Partial bool

	late     bool // its readings have an age
	restored bool // some of it belongs to the time before Sharer.Restore
	deficit  *units.Energy
}

// Above returns the energy of a portion above its static energy. The readings of polled meters are
// inexact in power and time, so a portion with too little energy is often followed by one with too
// much. If a portion has less than its static energy, the difference is carried as the deficit of
// its domain and kind, and subtracted from the excess of the following portions:
//
//   - At most half of an excess is subtracted, because a static power that is too high causes
//     deficits without an error of the meter.
//   - A deficit is at most 1/deficitPart of the static energy of the current portion, and decays
//     with time (see forgetting).
//   - Portions of prompt readings and partial portions neither cause nor pay a deficit. A portion
//     longer than maxCarried sets the deficit to 0.
//
// A model calls Above at most once for a portion.
func (p *Portion) Above(static units.Energy) units.Energy {
	active := units.Advance(static, p.Energy)
	if p.deficit == nil {
		return active
	}
	most := static / deficitPart
	d := min(units.Energy(units.MulDiv(uint64(*p.deficit), uint64(forgetting), uint64(forgetting+p.Elapsed))), most)
	paid := min(d, active/2)
	*p.deficit = min(d-paid+units.Advance(p.Energy, static), most)
	return active - paid
}

// The limits of a deficit. A portion of length t reduces a deficit to forgetting / (forgetting + t)
// of its value. If each reading has noise of 3 %, this rule reduces the false active energy of an
// idle machine from 1.2 % to at most 1 %. This holds for readings of 1 to 15 s.
const (
	deficitPart = 4
	forgetting  = 15 * time.Second
	maxCarried  = 5 * time.Minute
)

// deficits are the deficits of one domain, by kind; see Portion.Above.
type deficits [MaxKinds]units.Energy

// ByUtilization returns the active part of a portion by CPU utilization: energy * busy / total,
// rounded down.
func ByUtilization(p Portion) units.Energy {
	busy := min(p.Busy, p.Total)
	return units.Energy(units.MulDiv(uint64(p.Energy), uint64(busy), uint64(p.Total)))
}

// Weight is an attribution weight: a claim's share of the active energy is proportional to it.
type Weight uint8

// The attribution weights: CPU time, and weights whose meaning the creator of the claims defines. A
// new attribution weight requires no constant here, but a line in the keyTable of package window.
const (
	ByCPUTime Weight = iota
	ByFirstWeight
	BySecondWeight
)

// Weights is the number of attribution weights in addition to CPU time.
const Weights = int(BySecondWeight)

// IdleAllocation selects the claimants that carry idle energy. In a domain with
// Usage.IdleAmongClaims, such as a GPU, only claimants with a claim carry idle energy.
type IdleAllocation uint8

// The idle allocations. Virtual machines, and pods whose containers are not identified, count as
// containers.
const (
	// IdleNone does not attribute idle energy.
	IdleNone IdleAllocation = iota
	// IdleEqual shares idle energy equally among the running processes.
	IdleEqual
	// IdleEqualContainers shares idle energy equally among the running containers. Each container
	// shares its part equally among its processes.
	IdleEqualContainers
	// IdleRequested shares idle energy among the running containers in proportion to the CPU time
	// that they request, which is set in the ledger.
	IdleRequested
	// IdleUsed shares idle energy like the active energy of the same interval.
	IdleUsed
)
