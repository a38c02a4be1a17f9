// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// unmoving is a kernel whose processes neither come nor go.
type unmoving struct{ processes []tasks.Process }

// run has each process use a millisecond.
func (u *unmoving) run() {
	for i := range u.processes {
		u.processes[i].Run += 1e6
	}
}

func (u *unmoving) List(bool) (tasks.Listing, error) {
	return tasks.Listing{Processes: u.processes}, nil
}

func (*unmoving) Drain(func(*tasks.Ended)) (tasks.Lost, error)    { return tasks.Lost{}, nil }
func (*unmoving) DrainCgroups(func(id uint64, path string)) error { return nil }
func (*unmoving) Shrink(int) error                                { return nil }
func (*unmoving) SetDomains([]int32) error                        { return nil }
func (*unmoving) Watch(func()) error                              { return nil }
func (*unmoving) Close() error                                    { return nil }

// newUnmoving returns a kernel with init and the crowd.
func newUnmoving(c *crowded) *unmoving {
	u := &unmoving{processes: []tasks.Process{{Pid: 1, Threads: 1, Comm: [16]uint8{'i', 'n', 'i', 't'}}}}
	for _, pid := range slices.Sorted(maps.Keys(c.now)) {
		u.processes = append(u.processes, tasks.Process{
			Pid: uint32(pid), Parent: 1, Start: uint64(pid), Threads: 1, Run: uint64(pid), Cgroup: 2, Cgroups: uint64(1 + pid%200),
			Comm: [16]uint8{'a', 'p', 'p'},
		})
	}
	return u
}

func TestAProcessTakesLittleMemory(t *testing.T) {
	const processes, asleep, awake = 10_000, 600, 976
	const atStart = 1100 // with the race detector, which adds a third
	for _, source := range []cpu.SourceKind{cpu.KindProcfs, cpu.KindBPF} {
		t.Run(string(source), func(t *testing.T) {
			n := newCrowded(t, func(c *Config) { c.Series.Processes = config.Default().Series.Processes })
			n.cgroup = func(pid int) string {
				return fmt.Sprintf("0::/kubepods.slice/kubepods-pod%08x_89ab_cdef_0123_456789abcdef.slice/cri-containerd-%064x.scope\n", pid%100, pid%200)
			}
			n.crowd(1000, processes)
			kernel := newUnmoving(n)
			if source == cpu.KindBPF {
				n.machine.OpenCPU = openAs(func(o cpu.Options) cpu.Source {
					return cpu.NewSimulatedBPF(o, kernel, func() time.Duration { return n.host.Uptime })
				})
			}
			before := heap() // without processes
			each := func(most float64) {
				now := float64(heap()-before) / processes
				t.Logf("%.0f B", now)
				assert.Less(t, now, most)
			}
			began := allocated()
			n.startAsIs()
			assert.Less(t, float64(allocated()-began)/processes, float64(atStart), "bytes of the first scan")
			n.collect(3)
			each(asleep)
			if source == cpu.KindBPF {
				for range 3 {
					kernel.run()
					n.collect(1)
				}
				each(awake)
				return
			}
			n.crowd(1000+processes-50, 100) // half of them existed before
			n.collect(10)
			assert.Less(t, heap(), before+4e6, "memory comes back")
		})
	}
}
