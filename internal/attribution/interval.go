// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Interval is what happened on the node since the interval before.
type Interval struct {
	// At is when the interval ended, for the start of the series that begin in it.
	At time.Time
	// Elapsed is how long it was by a clock that never steps.
	Elapsed time.Duration
	// Busy and Total are the node's CPU time in it. With a Total of 0 there is nothing to split by: the
	// energy waits for the next interval.
	Busy, Total units.CPUTime
	// Zones are the readings at its end, of every zone that is known. What waits for one that is left out is
	// settled, and what such a zone has used when it returns is shared by the CPU time of its absence too.
	Zones []ZoneReading
	// Claims are the CPU times of those who ran, and what others hold by which energy is shared.
	Claims []Claim
	// Unowned is the CPU time of those who ran and cannot be named: their energy is unattributed. They have as much of
	// every key for it as the others on average.
	Unowned units.CPUTime
	// Unweighed are the weights of which nothing is known in it. CPU time stands in, also where a zone is late with the
	// energy of this interval and of others.
	Unweighed [Weights]bool
	// EndsCollection says that the ledger is handed out after it. Those that use the most get their series then.
	EndsCollection bool
}

// NotAttributed is the kind of a zone that is reported but not shared.
const NotAttributed = -1

// ZoneReading is one zone's counter at the end of an interval.
type ZoneReading struct {
	// Zone numbers the zone from 0, the same in each interval.
	Zone int
	// Kind is the ledger's column, below Zones, or NotAttributed.
	Kind int
	// Total is the zone's energy so far. It never goes down.
	Total units.Energy
	// OK says that Total is up to date. Where it is not, the zone's energy and the CPU time that it will
	// be shared by wait together for the next good reading.
	OK bool
	// Replaced marks a zone whose meter is another than before. Total does not follow the totals of that one: what is
	// pending of them is settled, and the first reading that is OK is the new baseline. The zone's energy goes on.
	Replaced bool
}

// Claim is CPU time that was used in an interval.
type Claim struct {
	// Claimant is who used it, or Nobody.
	Claimant Claimant
	// Unseen says that it was not the claimant itself but processes beside it that nothing names, its
	// short-lived children: what they earn is its container's, pod's and VM's, and in the series of the others.
	Unseen bool
	CPU    units.CPUTime
	// Weights are what energy may be shared by instead, such as the work that was done in CPU, or the memory that was
	// held and for how long, each in a unit that is the same in all intervals. There may be some without CPU.
	Weights [Weights]uint64
}

// nothing says whether there is nothing to share anything by.
func (c *Claim) nothing() bool { return c.CPU == 0 && c.Weights == [Weights]uint64{} }

// merge adds what else the same claimed.
func (c *Claim) merge(o *Claim) {
	c.CPU = units.AddSaturating(c.CPU, o.CPU)
	for i, weight := range o.Weights {
		c.Weights[i] = units.AddSaturating(c.Weights[i], weight)
	}
}

// by is what the claim has of a key.
func (c *Claim) by(k Key) uint64 {
	if k == ByCPUTime {
		return uint64(c.CPU)
	}
	return c.Weights[k-ByFirstWeight]
}

// shares hands out amount in proportion to weights that add up to total, as differences of the running
// prefix: the parts of a whole run of weights add up to amount exactly, and each is within one unit of its
// exact value whatever the order.
type shares struct {
	amount, total  uint64
	weights, given uint64
	shift          int // by which weights are made smaller, total is already
}

func (s *shares) next(weight uint64) uint64 {
	s.weights += weight >> s.shift
	upTo := units.MulDiv(s.amount, s.weights, s.total)
	share := upTo - s.given
	s.given = upTo
	return share
}
