// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide/dividetest"
	"github.com/energyreceiver/energyreceiver/internal/usage/numa"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
)

// newTwoPackages returns the divider of a node whose CPU 0 is in one package and whose CPU 1 is in
// another.
func newTwoPackages(t *testing.T) *divider {
	topology, err := divide.OpenTopology(dividetest.MachineOf(t, [2]string{"0", "0"}, [2]string{"1", "0"}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, topology.Close()) })
	return newDivider(topology, nil, &Keys{})
}

// divideTable divides a window in which the packages had 100 and 400 ns of CPU time of processes,
// and an amount of interrupts.
func divideTable(d *divider, table *table, interrupts ...units.CPUTime) (usage []attribution.Usage) {
	d.last = make([]cpu.Node, 2)
	m := &Measurement{Table: &proc.Table{}, Domains: []cpu.Node{{Busy: 100, Process: 100, Total: 1000}, {Busy: 400, Process: 400, Total: 1000}}}
	for i, used := range interrupts {
		m.Domains[i].Interrupt = used
	}
	d.divide(table, m)
	return table.interval.Domains[1:]
}

func newTestTable() table {
	table := newTable(2)
	table.clearRows()
	return table
}

func TestRowsAreDividedByPackageAndAddUp(t *testing.T) {
	table := newTestTable()
	table.node.Unattributed, table.node.Unweighed = 90, [attribution.Weights]bool{true}
	table.rows = []row{
		{claimant: 1, Share: weigh.Share{CPU: 30}, weights: [attribution.Weights]uint64{7}, parts: []units.CPUTime{30, 0}},
		{claimant: 2, Share: weigh.Share{CPU: 101}, weights: [attribution.Weights]uint64{10, 1}, parts: []units.CPUTime{25, 75}},
		{claimant: 3, weights: [attribution.Weights]uint64{5}, process: &proc.Process{Sight: proc.Sight{LastCPU: 1}}},
		{claimant: 4, Share: weigh.Share{CPU: 8, ShortLived: true}}, // as all before
	}
	usage := divideTable(newTwoPackages(t), &table)
	assert.Equal(t, []attribution.Claim{
		{Claimant: 1, CPU: 30, Weights: [attribution.Weights]uint64{7}},
		{Claimant: 2, CPU: 25, Weights: [attribution.Weights]uint64{2}},
		{Claimant: 4, CPU: 3, ShortLived: true},
	}, usage[0].Claims)
	assert.Equal(t, []attribution.Claim{
		{Claimant: 2, CPU: 76, Weights: [attribution.Weights]uint64{8, 1}},
		{Claimant: 3, Weights: [attribution.Weights]uint64{5}},
		{Claimant: 4, CPU: 5, ShortLived: true},
	}, usage[1].Claims)
	assert.Equal(t, []units.CPUTime{100, 400}, []units.CPUTime{usage[0].Busy, usage[1].Busy})
	assert.Equal(t, []units.CPUTime{10, 80}, []units.CPUTime{usage[0].Unattributed, usage[1].Unattributed},
		"in proportion to what processes used there and no claim explains: 42 and 319")
	for _, u := range usage {
		assert.Equal(t, table.node.Unweighed, u.Unweighed)
	}
}

func TestAZoneHasTheDomainOfItsPackage(t *testing.T) {
	b := &Collector{divider: newTwoPackages(t)}
	for domain, want := range map[units.Domain]int{"package-0": 1, "package-1": 2, "package-2": 0, units.NodeCPUs: 0} {
		assert.Equal(t, want, b.domain(&power.Zone{Domain: domain}), domain)
	}
	assert.Zero(t, (&Collector{}).domain(&power.Zone{Domain: "package-1"}), "a node that is not divided")
}

func TestWeightsOfMemoryAreWhereTheMemoryIs(t *testing.T) {
	d, table := newTwoPackages(t), newTestTable()
	d.held = [attribution.Weights]bool{false, true}
	d.places = placesOf(t, d.topology, map[string]string{"/in second": "anon N0=0 N1=2 N2=1\n", "/in both": "anon N0=1 N1=1 N2=0\n"})
	table.node.Unattributed, table.interrupts = 20, 20
	table.rows = []row{
		{claimant: 1, Share: weigh.Share{CPU: 30}, weights: [attribution.Weights]uint64{9, 90}, parts: []units.CPUTime{1, 0}, home: "/in second"},
		{claimant: 2, Share: weigh.Share{CPU: 10}, weights: [attribution.Weights]uint64{3, 10}, parts: []units.CPUTime{1, 0}, home: "/not readable"},
		{claimant: 3, weights: [attribution.Weights]uint64{0, 60}, parts: []units.CPUTime{1, 0}, home: "/in both"},
	}
	usage := divideTable(d, &table)
	assert.Equal(t, []attribution.Claim{
		{Claimant: 1, CPU: 30, Weights: [attribution.Weights]uint64{9, 0}},
		{Claimant: 2, CPU: 10, Weights: [attribution.Weights]uint64{3, 10}},
		{Claimant: 3, Weights: [attribution.Weights]uint64{0, 30}},
	}, usage[0].Claims, "memory that is not available counts where the process ran")
	assert.Equal(t, []attribution.Claim{
		{Claimant: 1, Weights: [attribution.Weights]uint64{0, 60}},
		{Claimant: 3, Weights: [attribution.Weights]uint64{0, 30}},
	}, usage[1].Claims)
	for i := range usage {
		assert.Equal(t, [attribution.Weights]attribution.Average{{}, {Weight: 160, CPU: 40}}, usage[i].Averages)
	}
}

// placesOf returns the places of memory on a machine with these memory.numa_stat files of cgroups.
// The NUMA nodes 0 and 1 are those of the CPUs with the same number, and node 2 has no CPU.
func placesOf(t *testing.T, topology *divide.Topology, stats map[string]string) *numa.Places {
	root := t.TempDir()
	files := map[string]string{
		"proc/1/mountinfo":                      "24 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
		"sys/devices/system/node/online":        "0-2\n",
		"sys/devices/system/node/node2/cpulist": "\n",
	}
	for node := range 2 {
		files[fmt.Sprintf("sys/devices/system/node/node%d/cpulist", node)] = fmt.Sprintln(node)
	}
	for path, text := range stats {
		files["sys/fs/cgroup"+path+"/memory.numa_stat"] = text + "file_mapped N0=0\n"
	}
	dividetest.Put(t, root, files)
	tree := cgroup.New(cgroup.Options{Root: root})
	t.Cleanup(func() { require.NoError(t, tree.Close()) })
	return numa.New(tree, 2, topology.Of)
}

func TestInterruptsAreDividedByWhereTheyWere(t *testing.T) {
	for name, c := range map[string]struct {
		interrupt, softirqd []units.CPUTime
		want                []units.CPUTime
	}{
		"in both":            {[]units.CPUTime{30, 10}, []units.CPUTime{0, 0}, []units.CPUTime{30, 10}},
		"without ksoftirqd":  {[]units.CPUTime{50, 10}, []units.CPUTime{20, 0}, []units.CPUTime{30, 10}},
		"nowhere to be seen": {[]units.CPUTime{0, 0}, []units.CPUTime{0, 0}, []units.CPUTime{8, 32}},
	} {
		table := newTestTable()
		copy(table.softirqd, c.softirqd)
		table.node.Unattributed, table.interrupts, table.node.Weightless = 40, 40, [attribution.Weights]units.CPUTime{0, 40}
		usage := divideTable(newTwoPackages(t), &table, c.interrupt...)
		assert.Equal(t, c.want, []units.CPUTime{usage[0].Unattributed, usage[1].Unattributed}, name)
		for i := range usage {
			assert.Equal(t, [attribution.Weights]units.CPUTime{0, c.want[i]}, usage[i].Weightless, "%s: only of memory", name)
		}
	}
}
