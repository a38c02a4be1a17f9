// SPDX-License-Identifier: Apache-2.0

package scan

import (
	"bytes"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Softirqd returns the CPU time that the kernel's ksoftirqd threads used since the previous scan,
// and adds it to parts by domain, which is nil where the table divides nothing. The softirq column
// of /proc/stat includes this time, though the threads are processes that account for it
// (kernel/sched/cputime.c, irqtime_account_process_tick).
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
