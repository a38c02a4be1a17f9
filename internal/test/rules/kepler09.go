// SPDX-License-Identifier: Apache-2.0

package rules

import "math"

// Kepler09 is the rule of Kepler up to 0.9 (pkg/collector/stats, pkg/model): a socket's idle energy
// is the lowest that was seen, of intervals with no more CPU time than the last that lowered it;
// the rest is dynamic and goes to processes by instructions, and that of DRAM by cache misses, rounded
// up to mJ, or evenly if nothing was used. Without hardware counters, CPU time stands in. All are from
// BPF, every 3 s. Idle energy goes to all processes evenly and is left out here.
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

// milli rounds J up to whole mJ.
func milli(joules float64) float64 { return math.Ceil(joules*1000) / 1000 }
