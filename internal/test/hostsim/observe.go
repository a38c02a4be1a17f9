// SPDX-License-Identifier: Apache-2.0

package hostsim

import "time"

// Reads returns the value that a read of the zone's counter returns, in µJ.
func (z *Zone) Reads() uint64 {
	if z.Shown != nil {
		return *z.Shown
	}
	return z.Energy
}

// Clock returns the clock rate of the last step, relative to the nominal one.
func (s *Socket) Clock() float64 {
	if s.clock == 0 {
		return 1
	}
	return s.clock
}

// CPUTimes returns the socket's CPU time since boot: busy, stolen by a hypervisor, and total.
func (s *Socket) CPUTimes() (busy, stolen, total time.Duration) {
	c := &s.clocks
	busy = c.user + c.system + c.irq
	return busy, c.steal, busy + c.steal + c.idle + c.ioWait
}

// Ran returns how many CPUs the task kept busy in the last step, and the part of them with a busy
// sibling. together is 0 if two busy siblings draw as much power as two cores.
func (t *Task) Ran() (cpus, together float64) {
	s := t.machine.Sockets[t.Socket]
	if t.Demand == 0 {
		return 0, 0
	}
	if s.cores != nil && s.cores.siblings < 2 {
		together = (t.run - t.weight) / (1 - s.cores.siblings/2)
	}
	return t.run, together
}

// MemoryOn returns the socket that the task's memory belongs to.
func (t *Task) MemoryOn() int { return t.memorySocket() }
