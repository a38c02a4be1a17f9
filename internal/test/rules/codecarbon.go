// SPDX-License-Identifier: Apache-2.0

package rules

import "math"

// CodeCarbon is the rule of CodeCarbon without an energy counter (codecarbon/external/hardware.py).
// The machine's CPUs draw TDP · (0.1 + 0.9 u³) at a utilization of u. A tracked process with its
// children draws TDP · u, with its own utilization. CodeCarbon averages measurements of every
// second. It assumes a constant for memory, which is omitted here. CodeCarbon omits the CPU time of
// a child before the first measurement of that child; here it counts.
type CodeCarbon struct{ Machine Machine }

// Observe returns the result of tracking each user. The whole is the machine's figure.
func (c CodeCarbon) Observe(i *Interval) Report {
	busy, _, total := i.busy()
	r := Report{Whole: c.Machine.TDP * (0.1 + 0.9*math.Pow(over(busy, total), 3)) * i.Seconds}
	r.Unattributed.Package = c.Machine.TDP * over(i.rest(ticks), total) * i.Seconds
	for u := range i.Users {
		r.Parts = append(r.Parts, Energy{Package: c.Machine.TDP * over(i.Users[u].Ticks, total) * i.Seconds})
	}
	return r
}
