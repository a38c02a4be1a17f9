// SPDX-License-Identifier: Apache-2.0

package hostsim

import "time"

// OnEnd has told called with each task that is gone, when its parent has waited for it. It replaces who was told
// before, a Kernel too.
func (m *Machine) OnEnd(told func(*Task)) { m.ended = told }

// CPUTimes is the CPU time of the machine since boot, to the nanosecond: what was busy with tasks and interrupts,
// and that together with what was idle or waited for I/O. Stolen time is in neither.
func (m *Machine) CPUTimes() (busy, total time.Duration) {
	c := &m.clocks
	busy = c.user + c.system + c.irq
	return busy, busy + c.idle + c.ioWait
}
