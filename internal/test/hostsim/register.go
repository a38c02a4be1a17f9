// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"math"
	"math/rand/v2"
	"time"
)

// Registers describes energy registers that the hardware updates now and then, in units, as it does RAPL's. A read
// shows what the register held at its last update.
type Registers struct {
	// Every is the mean time between two updates, and Jitter the largest deviation from it.
	Every, Jitter time.Duration
	// Unit is the energy of one count in µJ.
	Unit float64
}

// register is that of one zone.
type register struct {
	Registers

	zone   *Zone
	random *rand.Rand
	next   time.Duration // update, since boot
	before uint64        // energy of the zone at the end of the last step
}

// SetRegisters makes all zones that the machine has show registers of this kind from now on. It is for counters without
// faults: it continues Zone.Counted, whatever Zone.Energy is set to.
func (m *Machine) SetRegisters(r Registers) {
	m.registers = nil
	for i, z := range m.zones() {
		z.Shown = new(uint64)
		*z.Shown = z.Counted
		m.registers = append(m.registers, &register{
			Registers: r, zone: z, random: rand.New(rand.NewPCG(1, uint64(i))), next: m.Now(), before: z.Counted,
		})
	}
}

// zones returns the zones of all sockets, and psys.
func (m *Machine) zones() (all []*Zone) {
	for _, s := range m.Sockets {
		all = append(all, s.Package, s.Core, s.DRAM)
	}
	if m.psys != nil {
		all = append(all, m.psys)
	}
	return all
}

// step makes the updates of a step that began at a time. The zone's power is constant in a step.
func (r *register) step(began, length time.Duration) {
	used, ended := float64(r.zone.Counted-r.before), began+length
	r.next = max(r.next, ended-r.Every-r.Jitter) // no earlier update can be read
	for ; r.next <= ended; r.next += r.interval() {
		energy := float64(r.before) + used*float64(max(r.next-began, 0))/float64(length)
		*r.zone.Shown = uint64(math.Floor(energy/r.Unit) * r.Unit)
		if r.zone.Max > 0 {
			*r.zone.Shown %= r.zone.Max
		}
	}
	r.before = r.zone.Counted
}

func (r *register) interval() time.Duration {
	return r.Every + time.Duration((2*r.random.Float64()-1)*float64(r.Jitter))
}
