// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
)

// Kernel is a simulated kernel that a BPF source queries for running processes, process exits and
// created cgroups.
type Kernel interface {
	lister
	endings
	DrainCgroups(yield func(id uint64, path string)) error
}

type cgroupsOf struct{ Kernel }

func (c cgroupsOf) Drain(yield func(id uint64, path string)) error { return c.DrainCgroups(yield) }

// NewSimulatedBPF returns a BPF source of a simulated kernel. o.Root is the directory with the
// files of the simulated kernel, and now is the clock of start times. Only tests call it.
func NewSimulatedBPF(o Options, k Kernel, now func() time.Duration) *BPF {
	b := newBPF(o, k, k)
	b.name, b.bootNow = "bpf (simulated)", now
	b.cgroups.created = cgroupsOf{k}
	if o.Hardware != nil {
		b.counting.online = divide.NewOnline(o.Root)
		b.hook.visitor, b.hook.blind = simulatedCounter{}, true
	}
	_ = b.ends.endings.Watch(b.ends.drainBetween) // a simulated kernel never refuses
	return b
}

// simulatedCounter is the counter of a simulated kernel, whose processes report their events. Each
// window is counted.
type simulatedCounter struct{ visitor }

func (simulatedCounter) SetCPUs([]int) (changed bool, err error) { return false, nil }
func (simulatedCounter) Count(bool) error                        { return nil }
func (simulatedCounter) Close() error                            { return nil }
func (simulatedCounter) Flush() (tasks.Counted, error)           { return tasks.Counted{Cycles: 1 << 40}, nil }
