// SPDX-License-Identifier: Apache-2.0

package rules

// Scaphandre is the rule of Scaphandre (src/sensors/mod.rs, get_all_per_process): a process has the
// host's energy, package and DRAM, multiplied by its part of all CPU time, idle time included.
// Active and idle energy are one. CPU time is from procfs, every 2 s.
type Scaphandre struct{}

// Observe returns the processes' energies. The whole is the host's energy.
func (Scaphandre) Observe(i *Interval) Report {
	_, _, total := i.busy()
	host := i.Energy()
	r := Report{Whole: host.Sum(), Unattributed: host.Times(over(i.rest(ticks), total))}
	for u := range i.Users {
		r.Parts = append(r.Parts, host.Times(over(i.Users[u].Ticks, total)))
	}
	return r
}
