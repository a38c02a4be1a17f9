// SPDX-License-Identifier: Apache-2.0

package hostsim

import "time"

// OnEnd sets the function that is called with each task after its parent has waited for it. It
// replaces the previous function, which a Kernel may have set.
func (m *Machine) OnEnd(ended func(*Task)) { m.ended = ended }

// CPUTimes returns the machine's CPU time since boot: the time that tasks and interrupts kept CPUs
// busy, and the total with idle and I/O wait. Neither includes stolen time.
func (m *Machine) CPUTimes() (busy, total time.Duration) {
	c := &m.clocks
	busy = c.user + c.system + c.irq
	return busy, busy + c.idle + c.ioWait
}
