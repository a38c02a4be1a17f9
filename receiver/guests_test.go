// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

const (
	uuidA = "0a1b2c3d-0000-4000-8000-00000000000a"
	uuidB = "0a1b2c3d-0000-4000-8000-00000000000b"
)

// qemu returns the process of a virtual machine, in the cgroup that libvirt makes for it.
func qemu(name, uuid string) *hostsim.Process {
	const exe = "/usr/bin/qemu-system-x86_64"
	return &hostsim.Process{
		Parent: 1, Comm: "qemu-system-x86", Exe: exe, Args: []string{exe, "-name", "guest=" + name, "-uuid", uuid},
		Cgroup: "0::/machine.slice/machine-qemu-1-" + uuid[:4] + ".scope/libvirt/emulator",
	}
}

// guestsIn tells the virtual machines by the directory.
func guestsIn(dir string) func(*Config) {
	return func(c *Config) { c.Guests = configoptional.Some(GuestsConfig{Path: dir}) }
}

// told returns the content of a file of a machine's tree.
func told(t *testing.T, dir, file string) string {
	t.Helper()
	synctest.Wait()
	text, err := os.ReadFile(filepath.Join(dir, file))
	require.NoError(t, err)
	return strings.TrimSuffix(string(text), "\n")
}

// toldEnergy returns the energy of a zone in a machine's tree, in joules.
func toldEnergy(t *testing.T, dir, zone string) float64 {
	t.Helper()
	number, err := strconv.ParseUint(told(t, dir, zone+"/energy_uj"), 10, 63)
	require.NoError(t, err)
	return float64(number) / joule
}

func TestATreeHasWhatTheMachinesSeriesHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "guests")
		n := newTestNode(t, guestsIn(dir), func(c *Config) {
			c.Zones = []power.Kind{power.Package, power.DRAM}
			c.Attribution.Idle = "equal"
		})
		n.host.Zones["intel-rapl:0:0"] = &hostsim.Zone{Name: "dram", Max: 65_712_999_613, Energy: joule}
		n.host.Zones["intel-rapl:1"] = &hostsim.Zone{Name: "package-1", Max: 262_143_328_850}
		n.host.Processes[10], n.host.Processes[11] = qemu("a", uuidA), qemu("b", uuidB)
		n.start()
		for i := range 5 {
			n.host.Zones["intel-rapl:0:0"].Energy += 7_654_321
			n.run(123_456_789, map[int]int64{10: 300, 11: int64(100 * i)})
			for name, uuid := range map[string]string{"a": uuidA, "b": uuidB} {
				for zone, energyZone := range map[string]string{"intel-rapl:0": "package", "intel-rapl:0/intel-rapl:0:0": "dram"} {
					series := n.sum("vm.energy", attrs{"vm.id": uuid}, "energy.zone="+energyZone)
					assert.InDelta(t, series, toldEnergy(t, filepath.Join(dir, name), zone), 1e-9, "%s %s", name, zone)
					assert.Positive(t, series)
				}
				assert.Equal(t, strconv.Itoa(2*(i+1)), told(t, filepath.Join(dir, name), "generation"))
			}
		}
	})
}

func TestAMachinesLastEnergyIsInItsTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		n := newTestNode(t, guestsIn(dir))
		n.host.Processes[10] = qemu("a", uuidA)
		n.start()
		n.run(600*joule, map[int]int64{10: 500})
		delete(n.host.Processes, 10)
		n.run(600*joule, nil)
		last := n.one("vm.energy").value
		n.run(600*joule, nil)
		assert.Empty(t, n.points("vm.energy", nil))
		assert.InDelta(t, last, toldEnergy(t, filepath.Join(dir, "a"), "intel-rapl:0"), 1e-9)
		generation := told(t, filepath.Join(dir, "a"), "generation")

		// The machine starts again, as another process. Its total goes on.
		n.host.Processes[11] = qemu("a", uuidA)
		n.host.Processes[11].Start = ticksSince(n.host)
		n.run(600*joule, nil)
		n.run(600*joule, map[int]int64{11: 500})
		assert.InDelta(t, last+n.one("vm.energy").value, toldEnergy(t, filepath.Join(dir, "a"), "intel-rapl:0"), 1e-9)
		assert.NotEqual(t, generation, told(t, filepath.Join(dir, "a"), "generation"))
	})
}

func TestATreeGoesOnAfterTheReceiverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var sum float64
		var epoch string
		for i := range 3 {
			n := newTestNode(t, guestsIn(dir))
			n.host.Processes[10] = qemu("a", uuidA)
			require.NoError(t, n.host.Render())
			require.NoError(t, n.s.start(context.Background(), n))
			n.run(600*joule, map[int]int64{10: 500})
			sum += n.one("vm.energy").value
			require.NoError(t, n.s.shutdown(context.Background()))
			assert.InDelta(t, sum, toldEnergy(t, filepath.Join(dir, "a"), "intel-rapl:0"), 1e-9)
			if i == 0 {
				epoch = told(t, filepath.Join(dir, "a"), "epoch")
			}
			assert.Equal(t, epoch, told(t, filepath.Join(dir, "a"), "epoch"))
		}
	})
}

// A zone that is modeled in one part of a series and measured in the other counts once.
func TestAZoneIsToldOverAllItsSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		n := newTestNode(t, guestsIn(dir), withModel(40, 120))
		zone := n.host.Zones["intel-rapl:0"]
		delete(n.host.Zones, "intel-rapl:0")
		n.host.Processes[10] = qemu("a", uuidA)
		n.start()
		n.run(0, map[int]int64{10: 500})
		n.host.Zones["intel-rapl:0"] = zone
		for range 5 {
			n.run(100*joule, map[int]int64{10: 500})
		}
		points := n.points("vm.energy", nil)
		require.Len(t, points, 2, "modeled and measured")
		assert.InDelta(t, points[0].value+points[1].value, toldEnergy(t, filepath.Join(dir, "a"), "intel-rapl:0"), 1e-9)
	})
}

func TestAMachineWithoutASeriesIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		n := newTestNode(t, guestsIn(dir), func(c *Config) { c.Series.VMs.Max = 1 })
		n.host.Processes[10], n.host.Processes[20] = qemu("a", uuidA), qemu("b", uuidB)
		n.start()
		n.run(600*joule, map[int]int64{10: 100, 20: 10})
		synctest.Wait()
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 1)
		assert.Equal(t, "a", entries[0].Name())
	})
}

// Any user can start a program with a hypervisor's name, a machine's name, and no UUID or one that another has.
func TestAUsersProgramWithAMachinesNameNeverHasItsTree(t *testing.T) {
	for name, args := range map[string][]string{"without a UUID": nil, "two with one UUID": {"-uuid", uuidA}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				n := newTestNode(t, guestsIn(dir))
				genuine := qemu("b", uuidB)
				for pid := 10; pid < 12; pid++ {
					forged := qemu("b", uuidA)
					forged.Args = append(forged.Args[:3], args...)
					forged.Cgroup = "0::/user.slice/user-1000.slice/user@1000.service"
					n.host.Processes[pid] = forged
				}
				n.start()
				n.run(600*joule, map[int]int64{10: 500, 11: 500})
				assert.Contains(t, told(t, filepath.Join(dir, "b"), "vm_id"), "user@1000.service/")
				n.host.Processes[12] = genuine
				genuine.Start = ticksSince(n.host)
				n.run(600*joule, nil)
				n.run(600*joule, map[int]int64{10: 500, 11: 400, 12: 100})
				n.run(600*joule, map[int]int64{10: 500, 11: 400, 12: 100})
				assert.Equal(t, uuidB, told(t, filepath.Join(dir, "b"), "vm_id"))
				assert.InDelta(t, n.one("vm.energy", "vm.id="+uuidB).value, toldEnergy(t, filepath.Join(dir, "b"), "intel-rapl:0"), 1e-9)
			})
		})
	}
}

func TestMachinesThatCannotBeToldAreACondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "guests")
		require.NoError(t, os.WriteFile(dir, nil, 0o600))
		n := newTestNode(t, guestsIn(dir))
		n.host.Processes[10] = qemu("a", uuidA)
		n.start()
		for range 4 {
			n.run(600*joule, map[int]int64{10: 500})
			synctest.Wait()
		}
		assert.Equal(t, []string{"Degraded guests"}, n.logged(), "once")
		assert.ErrorContains(t, n.status[0].Err(), dir+": not a directory")
		require.NoError(t, os.Remove(dir))
		n.run(600*joule, map[int]int64{10: 500})
		assert.InDelta(t, n.one("vm.energy").value, toldEnergy(t, filepath.Join(dir, "a"), "intel-rapl:0"), 1e-9, "nothing is lost")
		n.run(600*joule, map[int]int64{10: 500})
		assert.Equal(t, []string{"Degraded guests", "Recovered guests"}, n.logged())
	})
}

func TestNothingIsWrittenWhereNoGuestsAreConfigured(t *testing.T) {
	n := newTestNode(t)
	n.host.Processes[10] = qemu("a", uuidA)
	n.start()
	n.run(600*joule, map[int]int64{10: 500})
	assert.Nil(t, n.s.guests.publisher)
	assert.Zero(t, testing.AllocsPerRun(10, func() { _ = n.s.guests.tell(n.s.ledger, nil) }))
}

func TestCollectingMachinesAllocatesNothing(t *testing.T) {
	n := newTestNode(t)
	for i := range 200 {
		n.host.Processes[1000+i] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/bin/app"}
	}
	n.host.Processes[10], n.host.Processes[11] = qemu("a", uuidA), qemu("b", uuidB)
	n.start()
	n.run(600*joule, map[int]int64{10: 500, 11: 300})
	assert.LessOrEqual(t, math.Round(testing.AllocsPerRun(100, func() { n.s.guests.collect(n.s.ledger) })), 0.0)
	require.Len(t, n.s.guests.vms, 2)
}
