// SPDX-License-Identifier: Apache-2.0

package rules

import "math"

// CodeCarbon is the rule of CodeCarbon without a counter (codecarbon/external/hardware.py): the
// machine's CPUs draw TDP · (0.1 + 0.9 u³) at a utilization of u, and a tracked process with its
// children draws TDP · u of its own. Nothing is said of memory here: CodeCarbon assumes a constant
// for it. It takes the mean of what it finds every second. What a child used before it is first
// seen counts here; CodeCarbon leaves it out.
type CodeCarbon struct{ Machine Machine }

// Observe returns what tracking each user would give. The whole is the machine's figure.
func (c CodeCarbon) Observe(i *Interval) Report {
	busy, _, total := i.busy()
	r := Report{Whole: c.Machine.TDP * (0.1 + 0.9*math.Pow(over(busy, total), 3)) * i.Seconds}
	r.Unattributed.Package = c.Machine.TDP * over(i.rest(ticks), total) * i.Seconds
	for u := range i.Users {
		r.Parts = append(r.Parts, Energy{Package: c.Machine.TDP * over(i.Users[u].Ticks, total) * i.Seconds})
	}
	return r
}
