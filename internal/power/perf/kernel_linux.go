// SPDX-License-Identifier: Apache-2.0

package perf

import "github.com/energyreceiver/energyreceiver/internal/perfevent"

// linux is the kernel that this process runs on.
type linux struct{}

func (linux) check(root string) error { return perfevent.CheckKernel(root) }

func (linux) open(pmu uint32, configs []uint64, cpu int) (counters, error) {
	return perfevent.OpenGroup(pmu, configs, cpu)
}
