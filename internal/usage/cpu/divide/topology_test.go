// SPDX-License-Identifier: Apache-2.0

package divide

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide/dividetest"
)

func openTopology(t testing.TB, root string) *Topology {
	t.Helper()
	topology, err := OpenTopology(root)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, topology.Close()) })
	return topology
}

func TestDomainsAreNamedAsTheRAPLDriverNamesZones(t *testing.T) {
	intel, amd := "processor\t: 0\nvendor_id\t: GenuineIntel\n\n", "processor\t: 0\nvendor_id\t: AuthenticAMD\n\n"
	for name, c := range map[string]struct {
		vendor string
		cpus   [][2]string
		want   []units.Domain
		of     []int
		zones  []string
	}{
		"packages":            {intel, [][2]string{{"0", "0"}, {"1", "0"}, {"0", "0"}, {"1", "0"}}, []units.Domain{"package-0", "package-1"}, []int{0, 1, 0, 1}, nil},
		"any order":           {intel, [][2]string{{"36", "0"}, {"4", "0"}}, []units.Domain{"package-4", "package-36"}, []int{1, 0}, nil},
		"dies":                {intel, [][2]string{{"0", "0"}, {"0", "1"}, {"1", "0"}}, []units.Domain{"package-0-die-0", "package-0-die-1", "package-1-die-0"}, []int{0, 1, 2}, nil},
		"one package of dies": {"", [][2]string{{"0", "0"}, {"0", "1"}}, []units.Domain{"package-0-die-0", "package-0-die-1"}, []int{0, 1}, nil},
		"AMD's dies":          {amd, [][2]string{{"0", "0"}, {"0", "1"}, {"1", "2"}, {"1", "3"}}, []units.Domain{"package-0", "package-1"}, []int{0, 0, 1, 1}, nil},
		"dies in zones of packages": {
			intel, [][2]string{{"0", "0"}, {"0", "1"}, {"1", "0"}}, []units.Domain{"package-0", "package-1"}, []int{0, 0, 1},
			[]string{"package-0", "package-1", "dram"},
		},
		"dies in zones of dies": {
			intel, [][2]string{{"0", "0"}, {"0", "1"}}, []units.Domain{"package-0-die-0", "package-0-die-1"}, []int{0, 1},
			[]string{"package-0-die-0", "psys"},
		},
		"dies of one CPU": {intel, [][2]string{{"0", "3"}, {"1", "3"}}, []units.Domain{"package-0", "package-1"}, []int{0, 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			root := dividetest.MachineOf(t, c.cpus...)
			dividetest.Put(t, root, map[string]string{"proc/cpuinfo": c.vendor})
			for i, zone := range c.zones {
				dividetest.Put(t, root, map[string]string{fmt.Sprintf("sys/class/powercap/intel-rapl:%d/name", i): zone + "\n"})
			}
			topology := openTopology(t, root)
			assert.Equal(t, c.want, topology.Domains())
			for cpu, domain := range c.of {
				assert.Equal(t, domain, topology.Of(int32(cpu)), "CPU %d", cpu)
			}
		})
	}
}

func TestAZoneFindsItsDomain(t *testing.T) {
	topology := openTopology(t, dividetest.MachineOf(t, [2]string{"0", "0"}, [2]string{"1", "0"}))
	for domain, want := range map[units.Domain]int{"package-0": 0, "package-1": 1, "package-1-die-2": 1, "package-2": -1, units.NodeCPUs: -1} {
		i, ok := topology.Index(domain)
		assert.Equal(t, want >= 0, ok, domain)
		assert.Equal(t, max(want, 0), i, domain)
	}
	byDie := openTopology(t, dividetest.MachineOf(t, [2]string{"0", "0"}, [2]string{"0", "1"}))
	_, ok := byDie.Index("package-0")
	assert.False(t, ok, "a zone of both dies has no domain")
}

func TestAMachineOfOnePackageHasNoTopology(t *testing.T) {
	_, err := OpenTopology(dividetest.MachineOf(t, [2]string{"0", "0"}, [2]string{"0", "0"}))
	require.ErrorIs(t, err, errOneDomain)
	_, err = OpenTopology(dividetest.MachineOf(t, [2]string{"-1", "0"}, [2]string{"-1", "0"}))
	require.ErrorIs(t, err, errNoPackage)
	var many [][2]string
	for i := range MaxDomains + 1 {
		many = append(many, [2]string{fmt.Sprint(i), "0"})
	}
	_, err = OpenTopology(dividetest.MachineOf(t, many...))
	require.ErrorIs(t, err, ErrTooManyDomains)
	require.ErrorContains(t, err, "it has 17, package-0 to package-16. The energy of each is attributed by the CPU time on the whole node")
	_, err = OpenTopology(dividetest.MachineOf(t, many[:MaxDomains]...))
	require.NoError(t, err)
	root := dividetest.MachineOf(t, [2]string{"0", "0"}, [2]string{"1", "0"})
	dividetest.Put(t, root, map[string]string{dividetest.SysCPU + "online": "?"})
	_, err = OpenTopology(root)
	require.Error(t, err)
	_, err = OpenTopology(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestCPUsThatComeAndGoAreNoticedWithinASecond(t *testing.T) {
	root := dividetest.MachineOf(t, [2]string{"0", "0"}, [2]string{"1", "0"}, [2]string{"1", "0"}, [2]string{"7", "0"})
	dividetest.Put(t, root, map[string]string{dividetest.SysCPU + "online": "0-1\n"})
	topology := openTopology(t, root)
	now := 100 * time.Second
	online := func(list string) []uint64 {
		dividetest.Put(t, root, map[string]string{dividetest.SysCPU + "online": list})
		now += time.Second
		topology.Refresh(now)
		return topology.cpus
	}
	assert.Equal(t, []uint64{1, 1}, topology.cpus)
	changes := topology.changes
	assert.Equal(t, []uint64{1, 1}, online("0-1\n"))
	assert.Equal(t, changes, topology.changes)
	assert.Equal(t, []uint64{1, 2}, online("0-2\n"))
	assert.Equal(t, 1, topology.Of(2))
	assert.Equal(t, []uint64{0, 2}, online("1-2\n"))
	assert.Zero(t, topology.Of(0), "a CPU that is offline stays where it was")
	assert.Equal(t, []uint64{1, 2}, online("1-3\n"), "a package that was not there is in the first domain")
	assert.Zero(t, topology.Of(3))
	assert.Equal(t, []uint64{1, 2}, online("1-"), "what cannot be read stays as it was")
	dividetest.Put(t, root, map[string]string{dividetest.SysCPU + "online": "0\n"})
	topology.Refresh(now + refreshAfter/2)
	assert.Equal(t, []uint64{1, 2}, topology.cpus, "it looks once a second")
	assert.Zero(t, topology.Of(-1))
	assert.Zero(t, topology.Of(1<<20))
}
