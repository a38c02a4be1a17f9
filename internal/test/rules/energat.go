// SPDX-License-Identifier: Apache-2.0

package rules

import "math"

// EnergAt is the rule of EnergAt (energat/tracer.py; HotCarbon 2023): of what a socket used above
// its base power, which is measured on the idle machine, a traced application has share^0.3, and of
// its DRAM's share^0.2. The share of the package is that of its CPU time in the socket's, placed by
// where its threads ran last every 10 ms; the share of the DRAM is that of its private memory in
// what is used of the NUMA node. Each application is traced on its own, so the parts of several do
// not add up to the whole.
type EnergAt struct{ Machine Machine }

// The exponents are γ and δ of the paper, as in configs/default.py.
const (
	energatCPU    = 0.3
	energatMemory = 0.2
)

// Observe returns the energies of the users, each traced alone. The whole is the energy above the base.
func (e EnergAt) Observe(i *Interval) Report {
	r := Report{Parts: make([]Energy, len(i.Users))}
	for s, socket := range i.Sockets {
		rise := above(socket.Energy, e.Machine.Rest[s].Times(i.Seconds))
		r.Whole += rise.Sum()
		for u := range i.Users {
			on := &i.Users[u].On[s]
			r.Parts[u] = r.Parts[u].Plus(Energy{
				rise.Package * math.Pow(min(over(on.Last, socket.Busy), 1), energatCPU),
				rise.DRAM * math.Pow(min(over(on.Memory, socket.Memory), 1), energatMemory),
			})
		}
	}
	return r
}
