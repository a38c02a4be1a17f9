// SPDX-License-Identifier: Apache-2.0

package rules

// Alumet is the rule of Alumet's plugin energy-estimation-tdp: TDP · CPU time / CPUs, both for each
// consumer and for the node. It reads procfs every 5 s. It needs no energy counter and has no rule
// for memory.
type Alumet struct{ Machine Machine }

// Observe returns the consumers' energies.
func (a Alumet) Observe(i *Interval) Report {
	busy, _, _ := i.busy()
	perSecond := a.Machine.TDP / float64(a.Machine.CPUs) // of CPU time
	r := Report{Whole: perSecond * busy, Unattributed: Energy{Package: perSecond * i.rest(ticks)}}
	for u := range i.Users {
		r.Parts = append(r.Parts, Energy{Package: perSecond * i.Users[u].Ticks})
	}
	return r
}
