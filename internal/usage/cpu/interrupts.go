// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"bytes"
	"fmt"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// measuresInterrupts reports whether the kernel measures how long interrupts take. Such a kernel leaves their time out of the
// times of the tasks that they interrupt (kernel/sched/core.c, update_rq_clock_task), and has time in the irq column soon
// after boot, because each timer tick is an interrupt.
//
// Other kernels (without CONFIG_IRQ_TIME_ACCOUNTING, or with an unstable clock) note at each tick what the tick interrupted.
// Handlers run with interrupts off, so the irq column stays 0, and tasks' times include the interrupts that came while they
// ran. The softirq column of such a kernel would count these twice.
func (c *cpuTicks) measuresInterrupts() bool { return c[irq] > 0 }

// CountsInterrupts reports whether the kernel of the machine whose root directory is at root measures how long interrupts
// take. Otherwise Node.Interrupt is the time of ksoftirqd alone.
func CountsInterrupts(root string) (bool, error) {
	n := newNodeReader(root)
	defer func() { _ = n.proc.Close() }() // it was only read from
	b, err := n.read("stat")
	if err != nil {
		return false, err
	}
	now, err := parseNode(b)
	if err != nil {
		return false, fmt.Errorf("%s: %w", n.path("stat"), err)
	}
	return now.measuresInterrupts(), nil
}

// Softirqd returns the CPU time that the kernel's ksoftirqd threads used since the previous scan, and adds it to parts by
// domain, which is nil where the table divides nothing. The softirq column of /proc/stat includes this time, though the threads
// are processes that account for it (kernel/sched/cputime.c, irqtime_account_process_tick).
func (t *Table) Softirqd(parts []units.CPUTime) (used units.CPUTime) {
	for _, i := range t.Active {
		p := &t.Processes[i]
		if !p.Kernel || p.Used == 0 || !bytes.HasPrefix(p.Comm[:], softirqd) {
			continue
		}
		used += p.Used
		for domain, part := range t.Parts(p) {
			if domain < len(parts) {
				parts[domain] += part
			}
		}
	}
	return used
}

var softirqd = []byte("ksoftirqd/")
