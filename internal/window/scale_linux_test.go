// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package window

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/allocs"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide/dividetest"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/workload"
)

const hugeCPUs, hugeProcesses, hugeContainers = 256, 100_000, 2_000

// hugeKernel simulates the BPF programs of a huge node.
type hugeKernel struct {
	gpuNode // of which only methods are used
	tasks.Listing
}

// second lets processes run for 8 ms each, on eight CPUs.
func (k *hugeKernel) second(active int) {
	k.now += time.Second
	k.Changed, k.Slices = k.Changed[:0], append(k.Slices[:0], tasks.Slice{})
	for i := 0; i < hugeProcesses; i += hugeProcesses / active {
		p := &k.Processes[i]
		k.Changed, p.Slice = append(k.Changed, uint64(i)), 0
		for c := range 8 {
			k.Slices = append(k.Slices, tasks.Slice{Run: 1e6, Cpu: uint32((i + 31*c) % hugeCPUs), Next: p.Slice})
			p.Run, p.Slice = p.Run+1e6, uint32(len(k.Slices)-1)
		}
	}
}

func (k *hugeKernel) List(bool) (tasks.Listing, error) { return k.Listing, nil }

func (k *hugeKernel) DrainCgroups(yield func(uint64, string)) error {
	for i := 0; i < hugeContainers && k.now == time.Second; i++ {
		yield(uint64(2+i), fmt.Sprintf("/system.slice/docker-%064x.scope", i))
	}
	return nil
}

func heapSize() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The figures are in dev/scale.md.
func TestOnAHugeNodeProcessesThatSleepCostOnlyMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 100,000 processes and 2,000 containers: takes seconds and 200 MB")
	}
	var packages [][2]string
	stat := "cpu  0 0 0 0 0 0 0 0 0 0\n"
	k := &hugeKernel{Listing: tasks.Listing{Same: hugeProcesses, Processes: make([]tasks.Process, hugeProcesses)}}
	for i := range hugeCPUs {
		packages = append(packages, [2]string{fmt.Sprint(i % 2), "0"})
		stat += fmt.Sprintf("cpu%d 1234567890 12345678 1234567890 12345678901 12345678 0 12345678 0 0 0\n", i)
	}
	for i := range k.Processes {
		k.Processes[i] = tasks.Process{Pid: uint32(2 + i), Start: uint64(i), Threads: 8, Cgroups: 1, Cgroup: uint64(2 + i%hugeContainers)}
	}
	root := dividetest.MachineOf(t, packages...)
	dividetest.Put(t, root, map[string]string{"proc/stat": stat, "proc/loadavg": "0.00 0.00 0.00 1/800000 900000\n"})
	topology, err := divide.OpenTopology(root)
	require.NoError(t, err)
	before, o := heapSize(), cpu.Options{Root: root, Topology: topology, Names: true}
	reader := cpu.NewReader(cpu.NewSimulatedBPF(o, k, func() time.Duration { return k.now }), o)
	limits := ledger.Limits{identity.ProcessEntity: {Max: 50, MinEnergy: units.Joule}}
	b := NewCollector(Options{
		Ledger: ledger.New(ledger.Config{Limits: limits, Processes: ledger.ByPIDAndProgram}, boot), Exact: true,
		Cgroups: cgroup.New(cgroup.Options{Root: root}), Identifier: workload.NewIdentifier(root, workload.Wanted{CgroupPath: reader.CgroupPath}),
		Kinds: []power.Class{{Zone: power.Package}}, Topology: topology, ByProgram: true,
	})
	m := Measurement{Attributed: []power.Kind{power.Package}, Readings: []power.Reading{{Zone: &power.Zone{Kind: power.Package, Domain: "package-1"}}}}
	window := func(active int) {
		k.second(active)
		m.ReadAt, m.Stamp = boot.Add(k.now), boot.Add(k.now)
		m.Readings[0].Total, m.Readings[0].At = m.Readings[0].Total+200*units.Joule, m.ReadAt
		_, err := reader.Begin(m.ReadAt, cpu.Want{})
		require.NoError(t, err)
		w, err := reader.Read()
		require.NoError(t, err)
		m.Node, m.Domains, m.Table = w.Node, w.Domains, w.Table
		b.Observe(&m)
	}
	window(hugeProcesses) // the baseline
	for range 5 {
		window(hugeProcesses / 100)
	}
	asleep, reads := heapSize()-before, 0
	assert.Zero(t, allocs.Count(10, func() { window(hugeProcesses / 100) }), "allocations, whether processes sleep or run")
	defer kernfs.InjectFaults(func(_ string, got []byte, err error) ([]byte, error) {
		reads++
		return got, err
	})()
	window(hugeProcesses / 100)
	assert.Len(t, m.Table.Active, hugeProcesses/100)
	assert.LessOrEqual(t, reads, 3, "/proc/stat with 256 CPUs in one read, and the CPUs that are online")
	window(hugeProcesses)
	all := heapSize() - before
	t.Logf("bytes of heap per process: %d of one that never ran, %d once all have run", asleep/hugeProcesses, all/hugeProcesses)
	assert.Less(t, asleep, uint64(800*hugeProcesses))
	assert.Less(t, all, uint64(1400*hugeProcesses))
	processes, _ := b.Held()
	assert.Equal(t, hugeProcesses, processes)
	require.NoError(t, reader.Close())
}
