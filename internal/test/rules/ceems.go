// SPDX-License-Identifier: Apache-2.0

package rules

// CEEMS is the rule of CEEMS (cmd/ceems_tool/rules/cpu-rapl.rules). A unit, a cgroup, gets the
// packages' energy in proportion to its CPU time in the busy time of the node, and DRAM energy in
// proportion to its memory in the memory in use. The rule does not separate active and idle energy.
// CEEMS has no interval of its own; the simulator runs it every 15 s.
type CEEMS struct{}

// Observe returns the units' energies. The whole is all energy.
func (CEEMS) Observe(i *Interval) Report {
	busy, _, _ := i.busy()
	used := 0.0
	for _, s := range i.Sockets {
		used += s.Memory
	}
	all := i.Energy()
	r := Report{Whole: all.Sum(), Unattributed: Energy{Package: all.Package * over(i.rest(cpu), busy)}}
	for u := range i.Users {
		memory := 0.0
		for _, p := range i.Users[u].On {
			memory += p.Memory
		}
		r.Parts = append(r.Parts, Energy{all.Package * over(i.Users[u].CPU, busy), all.DRAM * over(memory, used)})
	}
	return r
}
