// SPDX-License-Identifier: Apache-2.0

package rules

import "math"

// Kepler09 is the rule of Kepler up to 0.9 (pkg/collector/stats, pkg/model). A socket's idle power
// is the lowest power of an interval with at most the CPU time of the last interval that lowered
// it. The remaining, dynamic energy is divided by instructions, for DRAM by cache misses, rounded
// up to mJ. CPU time replaces events without hardware counters. If the total is 0, the energy is
// divided by the number of processes. BPF programs count, every 3 s. Idle energy is divided evenly;
// that part is left out here.
type Kepler09 struct {
	idle []Energy // W by socket
	used float64  // CPUs in use when idle was seen
}

// Observe returns the dynamic energies.
func (k *Kepler09) Observe(i *Interval) Report {
	if k.idle == nil {
		k.idle = make([]Energy, len(i.Sockets))
		for s := range k.idle {
			k.idle[s] = Energy{math.Inf(1), math.Inf(1)}
		}
		k.used = math.Inf(1)
	}
	if used := i.sum(cpu) / i.Seconds; used <= k.used {
		for s, socket := range i.Sockets {
			watts, idle := socket.Energy.Times(1/i.Seconds), &k.idle[s]
			if watts.Package <= idle.Package || watts.DRAM <= idle.DRAM {
				k.used = used
			}
			idle.Package, idle.DRAM = min(idle.Package, watts.Package), min(idle.DRAM, watts.DRAM)
		}
	}
	var dynamic Energy
	for s, socket := range i.Sockets {
		idle := k.idle[s].Times(i.Seconds)
		dynamic = dynamic.Plus(Energy{max(socket.Energy.Package-idle.Package, 0), max(socket.Energy.DRAM-idle.DRAM, 0)})
	}
	used := cpu
	if i.sum(cpu) == 0 {
		used = func(u *User) float64 { return float64(u.Processes) }
	}
	parts := i.shared(dynamic, i.counted(-1, instructions, used))
	for u, byMisses := range i.shared(dynamic, i.counted(-1, misses, used)) {
		parts[u] = Energy{milli(parts[u].Package), milli(byMisses.DRAM)}
	}
	return Report{Whole: dynamic.Sum(), Parts: parts}
}

// milli rounds joules up to whole mJ.
func milli(joules float64) float64 { return math.Ceil(joules*1000) / 1000 }
