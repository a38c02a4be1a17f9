// SPDX-License-Identifier: Apache-2.0

package hostsim

import "time"

// OnEnd calls called with each task that is gone, after its parent has waited for it. It replaces the previous
// function, including that of a Kernel.
func (m *Machine) OnEnd(ended func(*Task)) { m.ended = ended }

// CPUTimes returns the machine's CPU time since boot in nanoseconds: the time that tasks and interrupts kept CPUs busy,
// and the total with idle and I/O wait. Neither includes stolen time.
func (m *Machine) CPUTimes() (busy, total time.Duration) {
	c := &m.clocks
	busy = c.user + c.system + c.irq
	return busy, busy + c.idle + c.ioWait
}
