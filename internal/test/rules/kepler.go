// SPDX-License-Identifier: Apache-2.0

package rules

// Kepler is the rule of Kepler from 0.10 (internal/monitor). Active energy is the energy multiplied
// by the busy part of all CPU time, and stolen time counts as busy. Active energy is divided among
// the running processes in proportion to CPU time. All values are read from procfs, every 5 s.
type Kepler struct{}

// Observe returns the active energies.
func (Kepler) Observe(i *Interval) Report {
	busy, steal, total := i.busy()
	active := i.Energy().Times(over(busy+steal, total))
	return Report{Whole: active.Sum(), Parts: i.shared(active, ticks)}
}
