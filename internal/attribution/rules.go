// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// MaxKinds is how many zone kinds a ledger has totals for. A kind is what is reported together: a kind of zone and the
// source of its energy. An account has room for those up to the last that was present when it got energy.
const MaxKinds = 16

// Rules are the exchangeable parts of the attribution. The zero Rules divide energy by CPU utilization, share active
// energy by CPU time and leave idle energy without an owner.
type Rules struct {
	// Models divide the energy of each kind into active and idle. Where there is none, the utilization of the CPUs does.
	Models [MaxKinds]StaticPowerModel
	// Keys are the allocation keys of each kind. Where no claim has any weight under a key, CPU time takes its place.
	Keys [MaxKinds]AllocationKey
	// Idle is who carries idle energy.
	Idle IdleAllocation
}

// StaticPowerModel divides energy into an active part and an idle part, which the hardware needs whether or not it is
// used. The engine calls it from one goroutine, in the order of the portions.
type StaticPowerModel interface {
	// Active returns the active part of a portion; the rest is idle. A result above Portion.Energy counts as
	// Portion.Energy.
	Active(Portion) units.Energy
}

// TrainedModel is a StaticPowerModel of one kind that learns from the portions that it divides.
type TrainedModel interface {
	StaticPowerModel
	// Trained reports whether the model knows the static power of a domain well.
	Trained(domain int) bool
	// Provisional reports whether there is no estimate of a domain's static power yet.
	Provisional(domain int) bool
	// Doubt returns the standard deviation of the static power in use for a domain, in watts: how far it may be from the
	// true one. It is negative where that is not known.
	Doubt(domain int) float64
}

// Portion is energy that is divided into active and idle at once: that of zones of one kind and domain over the same time.
type Portion struct {
	Domain, Kind int
	Energy       units.Energy
	// Busy is the domain's busy time meanwhile, without that of excluded claimants, which is Excluded.
	Busy, Excluded units.CPUTime
	// Total is the domain's busy time, idle time and time waiting for I/O. It is not 0.
	Total   units.CPUTime
	Elapsed time.Duration
	// Zones is how many zones the energy is of, Of how many of the kind there are in the domain, and OfAll in all
	// domains.
	Zones, Of, OfAll int
	// Partial reports whether the energy is only of a part of Elapsed, or Busy is assumed, so that there is nothing to learn from it.
	Partial bool

	restored bool // some of it is of the time before Engine.Restore
	deficit  *units.Energy
}

// Above returns the energy of a portion beyond its static energy. What the portion lacks to it is
// subtracted from the energy of the following portions of the same domain and kind: readings are
// inexact, so what one portion lacks another has in excess. A deficit is at most a quarter of the
// static energy of the portion that it is of, and an eighth of it is forgiven with each further
// portion, because a static power that is too high causes deficits without an excess. A model calls
// Above at most once for a portion.
func (p *Portion) Above(static units.Energy) units.Energy {
	active := units.Advance(static, p.Energy)
	if p.deficit == nil {
		return active
	}
	d := *p.deficit
	d -= d / forgivenPart
	paid := min(d, active)
	d -= paid
	*p.deficit = min(d+units.Advance(p.Energy, static), max(static/deficitPart, d))
	return active - paid
}

// deficitPart is the part of a portion's static energy that a deficit is at most, and forgivenPart
// the part of a deficit that is forgiven with each portion, both as divisors. With noise of 5 % of
// a reading they reduce the active energy of an idle machine from 2 % to 0.8 %.
const deficitPart, forgivenPart = 4, 8

// deficits are the energies that portions of one domain lacked to their static energy.
type deficits [MaxKinds]units.Energy

// deficitOf returns the deficit of a portion's domain and kind, nil if the portion does not have
// the energy of all its time.
func (e *Engine) deficitOf(p *Portion) *units.Energy {
	if p.Partial || p.restored {
		return nil
	}
	for len(e.deficits) <= p.Domain {
		e.deficits = append(e.deficits, deficits{})
	}
	return &e.deficits[p.Domain][p.Kind]
}

// ByUtilization returns the active part of a portion by CPU utilization: energy * busy / total, rounded down.
func ByUtilization(p Portion) units.Energy {
	busy := min(p.Busy, p.Total)
	return units.Energy(units.MulDiv(uint64(p.Energy), uint64(busy), uint64(p.Total)))
}

// AllocationKey is what a claim's share of the active energy is in proportion to.
type AllocationKey uint8

// The allocation keys: CPU time, and weights whose meaning is up to who makes the claims. A new way to weigh claims is not a
// constant here but a line of claims.keyTable.
const (
	ByCPUTime AllocationKey = iota
	ByFirstWeight
	BySecondWeight
)

// Weights is how many allocation keys there are beside CPU time.
const Weights = int(BySecondWeight)

// IdleAllocation is who carries idle energy. In a domain with Usage.IdleAmongClaims, such as a GPU, only those that have a claim do.
type IdleAllocation uint8

// The idle allocations. Virtual machines, and pods whose containers are not known, count as containers.
const (
	// IdleNone leaves idle energy without an owner.
	IdleNone IdleAllocation = iota
	// IdleEqual shares it equally among the running processes.
	IdleEqual
	// IdleEqualContainers shares it equally among the running containers. Each container shares its part equally among
	// its processes.
	IdleEqualContainers
	// IdleRequested shares it among the running containers in proportion to the CPU time that they request, which
	// Engine.SetRequest sets.
	IdleRequested
	// IdleUsed shares it like the active energy of the same interval.
	IdleUsed
)
