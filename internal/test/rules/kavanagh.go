// SPDX-License-Identifier: Apache-2.0

package rules

// Kavanagh is the second rule of Kavanagh and Djemame for virtual machines (Rapid and accurate
// energy models through calibration with IPMI and RAPL, 2019): the energy above the idle host's, in
// proportion to CPU utilization. The power of the idle host is measured before. Utilization is a
// mean over a minute. The rule divides idle energy evenly; that part is left out here.
type Kavanagh struct{ Machine Machine }

// Observe returns the energies above idle.
func (k Kavanagh) Observe(i *Interval) Report {
	var dynamic Energy
	for s, socket := range i.Sockets {
		dynamic = dynamic.Plus(above(socket.Energy, k.Machine.Rest[s].Times(i.Seconds)))
	}
	return Report{Whole: dynamic.Sum(), Parts: i.shared(dynamic, ticks)}
}

// above returns e less base, at least 0.
func above(e, base Energy) Energy {
	return Energy{max(e.Package-base.Package, 0), max(e.DRAM-base.DRAM, 0)}
}
