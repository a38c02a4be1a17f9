package attribution

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Zones is the number of zone kinds that a ledger has columns for.
const Zones = 8

// Portion is what a split rule decides on: the energy of all zones of a kind over the same time.
type Portion struct {
	Kind   int
	Energy units.Energy
	Busy   units.CPUTime // the node's busy time meanwhile
	Total  units.CPUTime // busy, idle and iowait; not 0
	// Elapsed is how long it was.
	Elapsed time.Duration
	// Zones is how many zones the energy is of, and Of how many of the kind there are.
	Zones, Of int
}

// Split says how much of a portion is active; the rest is idle. What it returns beyond Portion.Energy is
// cut off.
type Split func(Portion) units.Energy

// Key says what a claimant's share of the active energy is in proportion to.
type Key func(Claim) uint64

// Rules are the exchangeable parts of the attribution. Idle energy has no owner under any of them yet.
type Rules struct {
	Split Split
	Key   Key
	// Standing says how the split of a kind stands; nil where it has nothing to learn.
	Standing func(kind int) Standing
}

// DefaultRules splits by CPU utilisation and shares by CPU time.
func DefaultRules() Rules { return Rules{Split: ByUtilization, Key: ByCPUTime} }

// ByUtilization calls active what the CPU utilisation says: energy * busy / total, rounded down.
func ByUtilization(p Portion) units.Energy {
	busy := min(p.Busy, p.Total)
	return units.Energy(units.MulDiv(uint64(p.Energy), uint64(busy), uint64(p.Total)))
}

// ByCPUTime shares in proportion to CPU time.
func ByCPUTime(c Claim) uint64 { return uint64(c.CPU) }
