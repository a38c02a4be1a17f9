// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/numa"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// newTwoPackages returns the domains of a node whose CPU 0 is in one package and whose CPU 1 is in
// another.
func newTwoPackages(t *testing.T) *domains {
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, "sys/devices/system/cpu", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("online", "0-1\n")
	for i := range 2 {
		write(fmt.Sprintf("cpu%d/topology/physical_package_id", i), fmt.Sprintln(i))
	}
	topology, err := divide.OpenTopology(root)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, topology.Close()) })
	return newDomains(topology)
}

// begin starts an interval in which each package had so much CPU time of processes.
func begin(d *domains, usage []attribution.Usage, process ...units.CPUTime) {
	m := &Measurement{Table: &proc.Table{}, Domains: make([]cpu.Node, len(process))}
	for i := range process {
		if d.last != nil {
			m.Domains[i] = d.last[i]
		}
	}
	d.begin(m, usage)
	for i, used := range process {
		m.Domains[i].Busy += used
		m.Domains[i].Process += used
		m.Domains[i].Total += 1000
	}
	d.begin(m, usage)
}

func TestClaimsAreDividedByPackageAndAddUp(t *testing.T) {
	d, usage := newTwoPackages(t), make([]attribution.Usage, 2)
	begin(d, usage, 100, 400)
	node := attribution.Usage{Claims: []attribution.Claim{
		{Claimant: 1, CPU: 30, Weights: [attribution.Weights]uint64{7}},
		{Claimant: 2, CPU: 101, Weights: [attribution.Weights]uint64{10, 1}},
		{Claimant: 3, Weights: [attribution.Weights]uint64{5}},
		{Claimant: 4, CPU: 8, ShortLived: true},
	}, Unattributed: 90, Unweighed: [attribution.Weights]bool{true}}
	d.claimed([]units.CPUTime{30, 0}, nil)
	d.claimed([]units.CPUTime{25, 75}, nil)
	d.claimed(nil, &proc.Process{Sight: proc.Sight{LastCPU: 1}})
	d.claimed(nil, nil) // as all before
	d.divide(&node, 0)
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
		assert.Equal(t, node.Unweighed, u.Unweighed)
	}
}

func TestAZoneHasTheDomainOfItsPackage(t *testing.T) {
	d := newTwoPackages(t)
	for domain, want := range map[units.Domain]int{"package-0": 1, "package-1": 2, "package-2": 0, units.NodeCPUs: 0} {
		assert.Equal(t, want, d.of(&power.Zone{Domain: domain}), domain)
	}
	var none *domains
	assert.Zero(t, none.of(&power.Zone{Domain: "package-1"}), "a node that is not divided")
	assert.Zero(t, none.number())
}

func TestWeightsOfMemoryAreWhereTheMemoryIs(t *testing.T) {
	d, usage := newTwoPackages(t), make([]attribution.Usage, 2)
	begin(d, usage, 100, 400)
	d.numa, d.held = &numa.Places{}, [attribution.Weights]bool{false, true}
	node := attribution.Usage{Claims: []attribution.Claim{
		{Claimant: 1, CPU: 30, Weights: [attribution.Weights]uint64{9, 90}},
		{Claimant: 2, CPU: 10, Weights: [attribution.Weights]uint64{3, 10}},
		{Claimant: 3, Weights: [attribution.Weights]uint64{0, 60}},
	}, Unattributed: 20}
	for _, memory := range [][]uint64{{0, 2, 1}, {0, 0, 0}, {1, 1, 0}} { // the last is elsewhere
		d.claimed([]units.CPUTime{1, 0}, nil)
		d.memory = append(d.memory, memory...)
	}
	d.divide(&node, 20)
	assert.Equal(t, []attribution.Claim{
		{Claimant: 1, CPU: 30, Weights: [attribution.Weights]uint64{9, 0}},
		{Claimant: 2, CPU: 10, Weights: [attribution.Weights]uint64{3, 10}},
		{Claimant: 3, Weights: [attribution.Weights]uint64{0, 30}},
	}, usage[0].Claims, "what is not known is where it ran")
	assert.Equal(t, []attribution.Claim{
		{Claimant: 1, Weights: [attribution.Weights]uint64{0, 60}},
		{Claimant: 3, Weights: [attribution.Weights]uint64{0, 30}},
	}, usage[1].Claims)
	for i := range usage {
		assert.Equal(t, [attribution.Weights]attribution.Average{{}, {Weight: 160, CPU: 40}}, usage[i].Averages)
	}
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
		d, usage := newTwoPackages(t), make([]attribution.Usage, 2)
		begin(d, usage, 100, 400)
		copy(d.interrupt, c.interrupt)
		copy(d.ofSoftirqd(), c.softirqd)
		node := attribution.Usage{Unattributed: 40, Weightless: [attribution.Weights]units.CPUTime{0, 40}}
		d.divide(&node, 40)
		assert.Equal(t, c.want, []units.CPUTime{usage[0].Unattributed, usage[1].Unattributed}, name)
		for i := range usage {
			assert.Equal(t, [attribution.Weights]units.CPUTime{0, c.want[i]}, usage[i].Weightless, "%s: only of memory", name)
		}
	}
}
