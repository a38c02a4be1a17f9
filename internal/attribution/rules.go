// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Zones is the number of zone kinds that a ledger has columns for.
const MaxKinds = 8

// Portion is what a split rule decides on: the energy of all zones of a kind over the same time.
type Portion struct {
	Domain int
	Kind   int
	Energy units.Energy
	Busy   units.CPUTime // the node's busy time meanwhile, without that of the excluded
	Total  units.CPUTime // busy, idle and iowait; not 0
	// Excluded is the busy time of the excluded.
	Excluded units.CPUTime
	// Elapsed is how long it was.
	Elapsed time.Duration
	// Zones is how many zones the energy is of, Of how many of the kind there are in the domain, and OfAll in all
	// domains.
	Zones, Of, OfAll int
	// Partial says that the energy is only of a part of Elapsed: nothing is learned of it.
	Partial bool
}

// Split says how much of a portion is active; the rest is idle. What it returns beyond Portion.Energy is
// cut off.
type Split func(Portion) units.Energy

// Key says what a claim's share of the active energy is in proportion to.
type AllocationKey uint8

// The keys: ByCPUTime, and those that whoever makes the claims gives a meaning to.
const (
	ByCPUTime AllocationKey = iota
	ByFirstWeight
	BySecondWeight
)

// Weights is how many keys there are beside CPU time.
const Weights = int(BySecondWeight)

// Idle says who carries the idle energy.
type IdleAllocation uint8

// The rules for idle energy.
const (
	// IdleNone leaves idle energy without an owner.
	IdleNone IdleAllocation = iota
	// IdleEqual shares it equally among the processes that run.
	IdleEqual
	// IdleEqualContainers shares it equally among the containers that run, virtual machines and pods whose containers
	// are not known being containers too; each hands its part on to its processes equally.
	IdleEqualContainers
	// IdleRequested shares it among the same in proportion to what SetRequest said of them.
	IdleRequested
	// IdleUsed shares it like the active energy of the same interval.
	IdleUsed
)

// Rules are the exchangeable parts of the attribution.
type Rules struct {
	Split Split
	// Keys are those of the kinds. Where nobody has any weight, CPU time stands in.
	Keys [MaxKinds]AllocationKey
	Idle IdleAllocation
	// Learned are the splits of the kinds whose split learns, else nil.
	Learned [MaxKinds]*StaticSplit
}

// DefaultRules splits by CPU utilisation and shares by CPU time.
func DefaultRules() Rules { return Rules{Split: ByUtilization} }

// ByUtilization calls active what the CPU utilisation says: energy * busy / total, rounded down.
func ByUtilization(p Portion) units.Energy {
	busy := min(p.Busy, p.Total)
	return units.Energy(units.MulDiv(uint64(p.Energy), uint64(busy), uint64(p.Total)))
}
