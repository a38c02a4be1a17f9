// SPDX-License-Identifier: Apache-2.0

package window

import (
	"math"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// unowned is the CPU time without an owner. The zero unowned is ready to use.
type unowned struct {
	// all is the total of unattributed CPU time, and ofInterrupts the part of interrupts.
	all, ofInterrupts units.CPUTime
	// balance is the excess of the node's CPU time over the claims, in ns. It includes half of the
	// balance of the previous interval: noise of opposite sign in successive intervals cancels out,
	// and does not accumulate.
	balance float64
}

// findMissed returns the unattributed CPU time of an interval. It is untraced, plus the CPU time of
// missed processes if the scan missed processes and the balance exceeds the noise. The maximum is
// rest, the CPU time that no claim covers.
//
// Missed processes start and exit between two scans, and neither child times nor counters show
// them: they are children whose parent discards their times. Their CPU time is a part of the
// difference between the node's CPU time and the claims. The rest of the difference is noise, of
// either sign, which the next interval often takes back.
func (u *unowned) findMissed(b *Collector, m *Measurement, untraced, rest units.CPUTime) units.CPUTime {
	used := float64(m.Node.Process - b.last.Node.Process)
	u.balance = u.balance/2 + used - float64(b.claimed) - float64(untraced)
	switch {
	case !b.begun:
		u.balance = 0
	case !m.Table.Unseen.Missed:
		u.balance = min(u.balance, 0)
	case u.balance > 2*b.noise(used, m.Table):
		found := min(units.CPUTime(u.balance), rest-untraced)
		u.balance -= float64(found)
		return untraced + found
	}
	return untraced
}

// noise returns about one standard deviation, in ns, of the difference between the node's CPU time
// and the CPU time of all processes, given the time used. The node's CPU time is counted in timer
// ticks. Each tick finds a CPU busy or not, so it has the variance of a binomial distribution.
// The user and system time of a process are rounded to ticks at both ends of the interval.
func (b *Collector) noise(used float64, t *proc.Table) float64 {
	idle := float64(b.node.Total-b.node.Busy) / float64(max(b.node.Total, 1))
	ran := float64(len(t.Active) + len(t.Ended))
	return math.Sqrt(used*idle*float64(cpu.Tick) + ran*float64(cpu.Tick)*float64(cpu.Tick))
}
