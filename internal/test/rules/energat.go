// SPDX-License-Identifier: Apache-2.0

package rules

import "math"

// EnergAt is the rule of EnergAt (energat/tracer.py; HotCarbon 2023). It measures the base power of
// each socket on the idle machine first. Of the energy above the base, a traced application has
// share^0.3 of the package and share^0.2 of the DRAM. The package share is the application's CPU
// time in the socket's CPU time, by the last CPU of its threads every 10 ms. The DRAM share is its
// private memory in the used memory of the NUMA node. Each application is traced separately, so the
// parts of several applications do not add up to the whole.
type EnergAt struct{ Machine Machine }

// The exponents are γ and δ of the paper, as in configs/default.py.
const (
	energatCPU    = 0.3
	energatMemory = 0.2
)

// Observe returns the energies of the users, each traced separately. The whole is the energy above
// the base.
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
