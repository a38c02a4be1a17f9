// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// put writes files below a root.
func put(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

const sysCPU = "sys/devices/system/cpu/"

// machineOf returns a machine whose CPUs are in these packages and dies.
func machineOf(t testing.TB, cpus ...[2]string) (root string) {
	root = t.TempDir()
	put(t, root, map[string]string{sysCPU + "online": fmt.Sprintf("0-%d\n", len(cpus)-1)})
	for i, c := range cpus {
		dir := fmt.Sprintf("%scpu%d/topology/", sysCPU, i)
		put(t, root, map[string]string{dir + "physical_package_id": c[0] + "\n", dir + "die_id": c[1] + "\n"})
	}
	return root
}

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
	}{
		"packages":            {intel, [][2]string{{"0", "0"}, {"1", "0"}, {"0", "0"}, {"1", "0"}}, []units.Domain{"package-0", "package-1"}, []int{0, 1, 0, 1}},
		"any order":           {intel, [][2]string{{"36", "0"}, {"4", "0"}}, []units.Domain{"package-4", "package-36"}, []int{1, 0}},
		"dies":                {intel, [][2]string{{"0", "0"}, {"0", "1"}, {"1", "0"}}, []units.Domain{"package-0-die-0", "package-0-die-1", "package-1-die-0"}, []int{0, 1, 2}},
		"one package of dies": {"", [][2]string{{"0", "0"}, {"0", "1"}}, []units.Domain{"package-0-die-0", "package-0-die-1"}, []int{0, 1}},
		"AMD's dies":          {amd, [][2]string{{"0", "0"}, {"0", "1"}, {"1", "2"}, {"1", "3"}}, []units.Domain{"package-0", "package-1"}, []int{0, 0, 1, 1}},
		"dies of one CPU":     {intel, [][2]string{{"0", "3"}, {"1", "3"}}, []units.Domain{"package-0", "package-1"}, []int{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			root := machineOf(t, c.cpus...)
			put(t, root, map[string]string{"proc/cpuinfo": c.vendor})
			topology := openTopology(t, root)
			assert.Equal(t, c.want, topology.Domains())
			for cpu, domain := range c.of {
				assert.Equal(t, domain, topology.Of(int32(cpu)), "CPU %d", cpu)
			}
		})
	}
}

func TestZonesOfWholePackagesMakeTheirDiesOneDomain(t *testing.T) {
	for _, zones := range []struct {
		names []string
		want  []units.Domain
	}{
		{[]string{"package-0", "package-1", "dram"}, []units.Domain{"package-0", "package-1"}},
		{[]string{"package-0-die-0", "package-1-die-0", "psys"}, []units.Domain{"package-0-die-0", "package-0-die-1", "package-1-die-0"}},
		{[]string{"psys"}, []units.Domain{"package-0-die-0", "package-0-die-1", "package-1-die-0"}},
	} {
		root := machineOf(t, [2]string{"0", "0"}, [2]string{"0", "1"}, [2]string{"1", "0"})
		for i, name := range zones.names {
			put(t, root, map[string]string{fmt.Sprintf("sys/class/powercap/intel-rapl:%d/name", i): name + "\n"})
		}
		assert.Equal(t, zones.want, openTopology(t, root).Domains(), zones.names)
	}
}

func TestAZoneFindsItsDomain(t *testing.T) {
	topology := openTopology(t, machineOf(t, [2]string{"0", "0"}, [2]string{"1", "0"}))
	for domain, want := range map[units.Domain]int{"package-0": 0, "package-1": 1, "package-1-die-2": 1, "package-2": -1, units.NodeCPUs: -1} {
		i, ok := topology.Index(domain)
		assert.Equal(t, want >= 0, ok, domain)
		assert.Equal(t, max(want, 0), i, domain)
	}
	byDie := openTopology(t, machineOf(t, [2]string{"0", "0"}, [2]string{"0", "1"}))
	_, ok := byDie.Index("package-0")
	assert.False(t, ok, "a zone of both dies has no domain")
}

func TestAMachineOfOnePackageHasNoTopology(t *testing.T) {
	_, err := OpenTopology(machineOf(t, [2]string{"0", "0"}, [2]string{"0", "0"}))
	require.ErrorIs(t, err, errOneDomain)
	_, err = OpenTopology(machineOf(t, [2]string{"-1", "0"}, [2]string{"-1", "0"}))
	require.ErrorIs(t, err, errNoPackage)
	var many [][2]string
	for i := range MaxDomains + 1 {
		many = append(many, [2]string{fmt.Sprint(i), "0"})
	}
	_, err = OpenTopology(machineOf(t, many...))
	require.ErrorIs(t, err, errTooManyDomains)
	_, err = OpenTopology(machineOf(t, many[:MaxDomains]...))
	require.NoError(t, err)
	root := machineOf(t, [2]string{"0", "0"}, [2]string{"1", "0"})
	put(t, root, map[string]string{sysCPU + "online": "?"})
	_, err = OpenTopology(root)
	require.Error(t, err)
	_, err = OpenTopology(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestCPUsThatComeAndGoAreNoticedWithinASecond(t *testing.T) {
	root := machineOf(t, [2]string{"0", "0"}, [2]string{"1", "0"}, [2]string{"1", "0"}, [2]string{"7", "0"})
	put(t, root, map[string]string{sysCPU + "online": "0-1\n"})
	topology := openTopology(t, root)
	now := 100 * time.Second
	online := func(list string) []uint64 {
		put(t, root, map[string]string{sysCPU + "online": list})
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
	put(t, root, map[string]string{sysCPU + "online": "0\n"})
	topology.Refresh(now + recheck/2)
	assert.Equal(t, []uint64{1, 2}, topology.cpus, "it looks once a second")
	assert.Zero(t, topology.Of(-1))
	assert.Zero(t, topology.Of(1<<20))
}

// twoSockets returns a simulated machine of two sockets with so many CPUs each.
func twoSockets(t *testing.T, cpus int) *hostsim.Machine {
	m := hostsim.NewMachine(t.TempDir(), &hostsim.Socket{CPUs: cpus}, &hostsim.Socket{CPUs: cpus})
	require.NoError(t, m.Render())
	return m
}

// run adds a process to a socket.
func run(m *hostsim.Machine, socket int, demand float64) *hostsim.Task {
	task := m.Init().Spawn()
	task.Socket, task.Demand = socket, demand
	return task
}

func TestDomainsHaveTheCPUTimeOfTheirOwnCPUs(t *testing.T) {
	m := twoSockets(t, 2)
	run(m, 0, 1.5)
	run(m, 1, 0.25)
	source := openProcfs(Options{Root: m.Host.Root(), Topology: openTopology(t, m.Host.Root())})
	_, err := source.ReadNode()
	require.NoError(t, err)
	assert.Equal(t, []Node{{}, {}}, source.Domains(), "the baseline")
	m.Step(10 * time.Second)
	require.NoError(t, m.Render())
	node, err := source.ReadNode()
	require.NoError(t, err)
	domains := source.Domains()
	for i, busy := range []units.CPUTime{15 * units.Second, 2500 * millisecond} {
		assert.InDelta(t, float64(busy), float64(domains[i].Busy), float64(10*Tick), "domain %d", i)
		assert.InDelta(t, float64(20*units.Second), float64(domains[i].Total), float64(10*Tick), "domain %d", i)
	}
	assert.InDelta(t, float64(node.Total), float64(domains[0].Total+domains[1].Total), float64(20*Tick))
}

func TestTimeOfAnOfflineCPUIsKept(t *testing.T) {
	m := twoSockets(t, 2)
	h := m.Host
	h.EachCPU = []hostsim.CPU{{User: 100}, {User: 200}, {User: 300}, {User: 400}}
	source := openProcfs(Options{Root: h.Root(), Topology: openTopology(t, h.Root())})
	read := func(cpus int) (busy []units.CPUTime) {
		t.Helper()
		h.CPUs = cpus
		require.NoError(t, h.Render())
		_, err := source.ReadNode()
		require.NoError(t, err)
		for _, d := range source.Domains() {
			busy = append(busy, d.Busy/Tick)
		}
		return busy
	}
	read(4)
	h.EachCPU[3].User += 10
	h.EachCPU[0].User += 5
	assert.Equal(t, []units.CPUTime{5, 0}, read(3))
	assert.Equal(t, []units.CPUTime{5, 10}, read(4), "late, not lost")
	h.EachCPU[3].User = 3
	assert.Equal(t, []units.CPUTime{5, 10}, read(4), "never back")
}

func TestATruncatedCPULineIsAnErrorAndChangesNothing(t *testing.T) {
	m := twoSockets(t, 1)
	source := openProcfs(Options{Root: m.Host.Root(), Topology: openTopology(t, m.Host.Root())})
	text := "cpu  10 0 0 10\ncpu0 5 0 0 5\ncpu1 5 0 0 5\nbtime 1\n"
	write := func(text string) { put(t, m.Host.Root(), map[string]string{"proc/stat": text}) }
	write(text)
	_, err := source.ReadNode()
	require.NoError(t, err)
	later := strings.NewReplacer("10", "30", "5", "15").Replace(text)
	for _, bad := range []string{later[:len("cpu  30 0 0 30\ncpu0 15 0 0 15\ncpu1 1")], strings.Replace(later, "cpu1", "cpux", 1), strings.Replace(later, "cpu1 15", "cpu1 -15", 1)} {
		write(bad)
		node, err := source.ReadNode()
		require.Error(t, err, bad)
		assert.Zero(t, node)
		assert.Equal(t, []Node{{}, {}}, source.Domains())
	}
	write(later)
	node, err := source.ReadNode()
	require.NoError(t, err)
	assert.Equal(t, Node{Busy: 20 * Tick, Total: 40 * Tick, Process: 20 * Tick}, node)
	assert.Equal(t, []Node{{Busy: 10 * Tick, Total: 20 * Tick, Process: 10 * Tick}, {Busy: 10 * Tick, Total: 20 * Tick, Process: 10 * Tick}}, source.Domains())
}
