// SPDX-License-Identifier: Apache-2.0

package rules

// METRION is the energy attribution model of METRION (arXiv 2512.06806). The energy of a socket
// above idle goes to threads in proportion to their cycles there. Two threads that run on one core
// at the same time draw 1.15 times the power of one; each gets half. DRAM energy goes to threads by
// cache misses, or by cycles without counted misses. Idle energy is divided evenly; that part is
// left out here.
type METRION struct{ Machine Machine }

// metrionTogether is the power of two busy siblings relative to one.
const metrionTogether = 1.15

// Observe returns the active energies.
func (m METRION) Observe(i *Interval) Report {
	r := Report{Parts: make([]Energy, len(i.Users))}
	for s, socket := range i.Sockets {
		rise := above(socket.Energy, m.Machine.Rest[s].Times(i.Seconds))
		r.Whole += rise.Sum()
		of := func(u *User) float64 {
			on := &u.On[s]
			return on.Alone + (on.Cycles-on.Alone)*metrionTogether/2
		}
		byMisses := i.shared(rise, i.counted(s, misses, of))
		for u, part := range i.shared(rise, of) {
			r.Parts[u] = r.Parts[u].Plus(Energy{part.Package, byMisses[u].DRAM})
		}
	}
	return r
}
