// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/meters"
)

// guestNode is the receiver in a virtual machine whose hypervisor writes a tree.
type guestNode struct {
	*testNode
	generation int
}

// inGuest runs a test in a synctest bubble. The machine has a powercap zone of its own, which a guest must not read.
func inGuest(t *testing.T, test func(*guestNode), edit ...func(*Config)) {
	synctest.Test(t, func(t *testing.T) {
		edit = append(edit, func(c *Config) { c.Meters.Powercap.Path = filepath.Join(c.RootPath, "mnt/energy") })
		n := &guestNode{testNode: newTestNode(t, edit...)}
		n.host.Processes[100] = &hostsim.Process{Comm: "a"}
		n.host.Processes[200] = &hostsim.Process{Comm: "b"}
		test(n)
	})
}

// tell writes a generation with the totals in µJ of zones, whose name follows their ID.
func (n *guestNode) tell(epoch string, zones map[string]uint64) {
	n.t.Helper()
	n.generation += 2
	files := map[string]string{"generation": fmt.Sprint(n.generation), "epoch": epoch, "update_time": "1700000000000000000"}
	for zone, energy := range zones {
		dir, name, _ := strings.Cut(zone, " ")
		files[dir+"/name"], files[dir+"/energy_uj"] = name, fmt.Sprint(energy)
	}
	for name, text := range files {
		name = filepath.Join(n.s.cfg.Meters.Powercap.Path, name)
		require.NoError(n.t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(n.t, os.WriteFile(name, []byte(text+"\n"), 0o600))
	}
}

// pass lets ten seconds pass, in which processes run, and scrapes.
func (n *guestNode) pass(used map[int]int64) {
	n.t.Helper()
	time.Sleep(10 * time.Second)
	synctest.Wait()
	n.run(7*joule, used)
}

const (
	vmPackage = "intel-rapl:0 package-0"
	vmDRAM    = "intel-rapl:0/intel-rapl:0:0 dram"
	vmPSys    = "intel-rapl:1 psys"
)

func TestAGuestSharesWhatItsHostReports(t *testing.T) {
	inGuest(t, func(n *guestNode) {
		n.tell("A", map[string]uint64{vmPackage: 5000, vmDRAM: 100, vmPSys: 9000})
		n.start()
		n.pass(map[int]int64{100: 100})
		n.tell("A", map[string]uint64{vmPackage: 5000 + 3_000_001, vmDRAM: 100 + 500_003, vmPSys: 9000 + 8*joule})
		n.pass(map[int]int64{100: 300, 200: 100})
		n.tell("A", map[string]uint64{})
		n.pass(map[int]int64{100: 300, 200: 100})

		of := func(zone string) attrs { return attrs{"energy.zone": zone, "energy.method": "reported"} }
		assert.InDelta(t, 3.000001, n.sum("system.energy", of("package")), 1e-9)
		assert.InDelta(t, 0.500003, n.sum("system.energy", of("dram")), 1e-9)
		assert.InDelta(t, 3.000001, n.one("hw.energy", "hw.id=intel-rapl:0", "hw.name=package-0", "energy.method=reported").value, 1e-9)
		assert.InDelta(t, 8, n.one("hw.energy", "energy.zone=psys", "hw.id=intel-rapl:1", "energy.method=reported").value, 1e-9)
		assert.Len(t, n.points("system.energy", nil), 4, "package and dram, active and idle")
		assert.Len(t, n.logs.FilterMessage("Meter selected: energy is reported by the hypervisor").All(), 1)
		assert.Empty(t, n.logged())
	}, func(c *Config) { c.Zones = []power.Kind{power.Package, power.DRAM} })
}

func TestAGuestWhoseHostHasOnlyAMeterOfTheWholeMachine(t *testing.T) {
	inGuest(t, func(n *guestNode) {
		n.tell("A", map[string]uint64{vmPSys: 9000})
		n.start()
		n.pass(nil)
		n.tell("A", map[string]uint64{vmPSys: 9000 + 4*joule})
		n.pass(map[int]int64{100: 300})
		n.pass(map[int]int64{100: 300})
		assert.InDelta(t, 4, n.sum("system.energy", attrs{"energy.zone": "psys", "energy.method": "reported"}), 1e-9)
	})
}

func TestAGuestsEnergyWaitsWhileItsHostReportsNothing(t *testing.T) {
	inGuest(t, func(n *guestNode) {
		n.tell("A", map[string]uint64{vmPackage: 0})
		n.start()
		n.pass(nil)
		for range 20 { // stale after three minutes, as one interval of the host is not known
			n.pass(map[int]int64{100: 100})
		}
		assert.Contains(t, n.logged(), "Degraded energy zones")
		n.tell("A", map[string]uint64{vmPackage: 100 * joule})
		n.pass(map[int]int64{200: 100})
		n.pass(map[int]int64{200: 100})
		a := n.one("process.energy", pid(100), "energy.zone=package").value
		assert.Greater(t, a, 5*n.one("process.energy", pid(200), "energy.zone=package").value, "who ran while nothing was reported")
	})
}

func TestAMigrationAddsNoEnergy(t *testing.T) {
	inGuest(t, func(n *guestNode) {
		n.tell("A", map[string]uint64{vmPackage: 50 * joule})
		n.start()
		n.pass(nil)
		n.tell("B", map[string]uint64{vmPackage: 900 * joule})
		n.pass(map[int]int64{100: 100})
		n.pass(map[int]int64{100: 100})
		assert.Zero(t, n.sum("system.energy", nil))
		n.tell("B", map[string]uint64{vmPackage: 902 * joule})
		n.pass(map[int]int64{100: 100})
		n.pass(map[int]int64{100: 100})
		assert.InDelta(t, 2, n.sum("system.energy", nil), 1e-9)
		assert.Equal(t, int64(1), n.s.meters.Tallies["intel-rapl:0"].Resets)
	})
}

func TestATreeThatIsNotThereIsToldWhateverElseIsRead(t *testing.T) {
	inGuest(t, func(n *guestNode) {
		n.hwmon(map[string]uint64{"energy1_input": 1000})
		n.start()
		n.pass(nil)
		n.pass(nil)
		assert.Contains(t, n.logged(), "Degraded energy sensor")
		assert.ErrorContains(t, n.s.conditions.Err("energy sensor"), "meters::powercap::path "+n.s.cfg.Meters.Powercap.Path+": no such file or directory")
		assert.Empty(t, n.points("system.energy", nil, "hw.id=intel-rapl:0"), "the machine's own zones are not read")
	})
}

func TestAModelStandsInForATreeThatIsNotThere(t *testing.T) {
	inGuest(t, func(n *guestNode) {
		n.start()
		n.pass(map[int]int64{100: 100})
		n.pass(map[int]int64{100: 100})
		modeled := n.sum("system.energy", attrs{"energy.method": "modeled"})
		assert.Positive(t, modeled)
		n.tell("A", map[string]uint64{vmPackage: 0})
		for range 3 {
			n.pass(map[int]int64{100: 100})
		}
		n.tell("A", map[string]uint64{vmPackage: 5 * joule})
		n.pass(map[int]int64{100: 100})
		n.pass(map[int]int64{100: 100})
		assert.InDelta(t, 5, n.sum("system.energy", attrs{"energy.method": "reported"}), 1e-9)
	}, withModel(40, 120))
}

func TestWithATreeThereIsNoOtherRAPL(t *testing.T) {
	for _, used := range [][]config.MeterKind{config.LocalMeters, only(config.MeterPowercap), only(config.MeterPerf)} {
		cfg := simpleConfig()
		cfg.Meters.Use, cfg.Meters.Powercap.Path = used, "/mnt/energy"
		set, err := meters.Open(t.Context(), cfg, componenttest.NewNopHost(), componenttest.NewNopTelemetrySettings())
		require.NoError(t, err)
		for _, m := range set.Status() {
			if m.Family == "rapl" {
				assert.Equal(t, string(config.MeterPowercap), m.Name)
				assert.IsType(t, &power.Poller{}, m.Meter)
			}
		}
		require.NoError(t, set.Close())
	}
}

func TestTheConfigurationOfThePageHasNoSettingWithoutEffect(t *testing.T) {
	page, err := os.ReadFile("../docs/virtual-machines.md")
	require.NoError(t, err)
	for _, block := range regexp.MustCompile("(?s)```yaml\nreceivers:\n  energy:\n(.*?)```").FindAllSubmatch(page, -1) {
		cfg := loaded(t, string(regexp.MustCompile("(?m)^    ").ReplaceAll(block[1], nil)))
		for setting, reason := range cfg.WithoutEffect(true) {
			t.Errorf("%s: %s", setting, reason)
		}
	}
}

func TestReportedEnergyThatIsSplitAgainIsWarnedOf(t *testing.T) {
	for name, c := range map[string]struct {
		static map[power.Kind]config.StaticPowerConfig
		warned bool
	}{
		"default": {nil, true}, "utilization": {allStatic(config.StaticUtilization), true}, "minimum": {allStatic(config.StaticMinimum), false},
		"fixed": {fixedPower(map[power.Kind]float64{power.Package: 0, power.DRAM: 0, power.GPU: 0}), false},
	} {
		inGuest(t, func(n *guestNode) {
			n.start()
			assert.Equal(t, c.warned, n.logs.FilterField(zap.String("setting", "attribution::static_power")).Len() == 1, name)
		}, func(cfg *Config) { cfg.Attribution.StaticPower = c.static })
	}
	n := newTestNode(t, func(*Config) {})
	n.start()
	assert.Zero(t, n.logs.FilterField(zap.String("setting", "attribution::static_power")).Len(), "the machine's own zones")
}

func TestWrongSettingsOfThePowercapPathAreNamed(t *testing.T) {
	with := func(path string, others ...string) map[string]any {
		meters := map[string]any{"powercap": map[string]any{"path": path}}
		for _, other := range others {
			meters[other] = map[string]any{"port": 1}
		}
		return map[string]any{"meters": meters}
	}
	assert.NoError(t, validated(t, with("/mnt/energy")))
	assert.ErrorContains(t, validated(t, with("energy")), `meters::powercap::path: must be an absolute path, is "energy"`)
	assert.ErrorContains(t, validated(t, with("/mnt/energy", "vsock")), "meters::powercap::path: must not be set together with vsock")
}
