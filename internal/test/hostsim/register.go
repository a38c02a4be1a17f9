// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"math"
	"math/rand/v2"
	"time"
)

// Registers describes energy registers that the hardware updates at intervals and in units, like
// RAPL's registers. A read returns the value at the last update.
type Registers struct {
	// Every is the mean interval between updates, Jitter the largest deviation from it.
	Every, Jitter time.Duration
	// Unit is the energy of one count in µJ.
	Unit float64
	// Late is the delay before an update is visible.
	Late time.Duration
}

// register is the register of one zone.
type register struct {
	Registers

	zone   *Zone
	random *rand.Rand
	next   time.Duration // update, since boot
	ends   []counted     // ends of steps, oldest first, from the last one before next
}

// counted is the value of a zone's counter at a time since boot.
type counted struct {
	at     time.Duration
	energy uint64
}

// SetRegisters makes all zones of the machine show such registers from now on. It is for counters
// without faults: it continues Zone.Counted and ignores changes of Zone.Energy.
func (m *Machine) SetRegisters(r Registers) {
	m.registers = nil
	for i, z := range m.zones() {
		z.Shown = new(uint64)
		*z.Shown = z.Counted
		m.registers = append(m.registers, &register{
			Registers: r, zone: z, random: rand.New(rand.NewPCG(1, uint64(i))), next: m.Now(), ends: []counted{{m.Now(), z.Counted}},
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

// step makes the updates that are visible by the end of a step. The zone's power is constant in a
// step.
func (r *register) step(ended time.Duration) {
	r.ends = append(r.ends, counted{ended, r.zone.Counted})
	shown := ended - r.Late
	r.next = max(r.next, shown-r.Every-r.Jitter) // no earlier update can be read
	for ; r.next <= shown; r.next += r.interval() {
		*r.zone.Shown = uint64(math.Floor(r.energy(r.next)/r.Unit) * r.Unit)
		if r.zone.Max > 0 {
			*r.zone.Shown %= r.zone.Max
		}
	}
}

// energy returns the zone's count at a time, in µJ. Times must not decrease from call to call:
// energy drops the ends of steps that later calls do not need.
func (r *register) energy(at time.Duration) float64 {
	for len(r.ends) > 2 && r.ends[1].at <= at {
		r.ends = r.ends[1:]
	}
	a, b := r.ends[0], r.ends[1]
	return float64(a.energy) + float64(b.energy-a.energy)*float64(max(at-a.at, 0))/float64(b.at-a.at)
}

func (r *register) interval() time.Duration {
	return r.Every + time.Duration((2*r.random.Float64()-1)*float64(r.Jitter))
}
