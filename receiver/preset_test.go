// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

var errNoClocks = errors.New("no counters")

// accurateNode is a machine that supports all default rules.
func accurateNode(t *testing.T, edit ...func(*Config)) *testNode {
	n := newTestNode(t, append([]func(*Config){func(c *Config) {
		c.Attribution.Preset = ""
		c.Storage = storageID.String()
	}}, edit...)...)
	n.host.CPUs, n.host.CPU.IRQ = 4, 1
	n.host.Topology = []hostsim.Place{{Siblings: []int{0, 2}}, {Package: 1}, {Siblings: []int{0, 2}}, {Package: 1}}
	for name, zone := range map[string]string{"intel-rapl:1": "package-1", "intel-rapl:0:0": "dram", "intel-rapl:1:0": "dram"} {
		n.host.Zones[name] = &hostsim.Zone{Name: zone, Max: 262_143_328_850}
	}
	n.host.Clocks = map[int]int64{0: 1_000_000, 1: 2_000_000, 2: 1_000_000, 3: 2_000_000}
	n.host.Files = map[string]string{bootIDFile: "first\n"}
	n.extensions = map[component.ID]component.Component{storageID: &memoryStorage{stored: map[string][]byte{}}}
	n.openExact()
	n.openClocks()
	n.machine.FindHardware = func(string) (*perfevent.Hardware, error) { return &perfevent.Hardware{}, nil }
	return n
}

// startsWindows starts the node, and checks the length of its windows.
func (n *testNode) startsWindows(length time.Duration) {
	n.t.Helper()
	n.start()
	require.Equal(n.t, length, n.window)
}

// receiver/internal/rules tests which rules are selected.
func TestTheLogSaysOnceWhichDefaultRulesTheMachineSupports(t *testing.T) {
	n := accurateNode(t)
	n.startsWindows(time.Second)
	n.run(joule, nil)
	logged := n.logs.FilterMessage("Attribution rules selected").All()
	require.Len(t, logged, 1)
	assert.Equal(t, zap.InfoLevel, logged[0].Level)
	assert.Equal(t, map[string]any{"unavailable": []any{}, "enabled": []any{
		"window: 1s", "attribution::scope: zone", "attribution::static_power: trained", "attribution::weight: frequency_squared",
		"attribution::smt_weight: 0.6", "attribution::interrupts: unattributed", "attribution::weight::dram: cache_misses",
	}}, logged[0].ContextMap())
	assert.Empty(t, n.logs.FilterMessage("Setting has no effect").All())

	preset := newTestNode(t, func(c *Config) { c.Attribution.Preset = config.PresetKavanagh })
	preset.start()
	assert.Empty(t, preset.logs.FilterMessage("Attribution rules selected").All())
}

// Half of the CPU time of 10 s is used.
func TestModeledEnergyHasTheStaticPowerOfItsModelByDefault(t *testing.T) {
	n := newTestNode(t, modeledHost, func(c *Config) { c.Attribution.Preset = "" })
	n.process(10, "app")
	n.startsWindows(time.Second)
	n.run(0, map[int]int64{10: int64(n.host.CPUs) * 500})
	n.expect(energies{"idle": 100}, 1e-3)
}

// The trees have no CPU topology, are not of this kernel, and are read without BPF.
func TestRecordedHostsLackTheirPartsOfTheDefaultRules(t *testing.T) {
	want := []string{
		"window", "attribution::scope", "attribution::static_power", "attribution::weight", "attribution::smt_weight",
		"attribution::interrupts", "attribution::weight::dram",
	}
	for _, host := range []string{"cloud-vm", "guest"} {
		inBubble(t, host, func(t *testing.T) {
			n := recorded(t, host, func(c *Config) {
				c.Attribution, c.CPUTime = config.Default().Attribution, cpu.KindProcfs
				c.CollectionInterval = time.Second // no windows, which would follow the time of this machine
			})
			logged := n.logs.FilterMessage("Attribution rules selected").All()
			require.Len(t, logged, 1)
			var lacking []string
			for _, part := range logged[0].ContextMap()["unavailable"].([]any) {
				setting, _, _ := strings.Cut(part.(string), ": ")
				lacking = append(lacking, setting)
			}
			assert.Equal(t, want, lacking)
			idle := n.sum("system.energy", nil, "energy.state=idle")
			assert.Equal(t, host == "guest", idle == 0, "all energy that a hypervisor reports is active, modeled energy is split")
		})
	}
}

func TestTheRulesAreLoggedWhenSlowMetersHaveAnswered(t *testing.T) {
	for name, c := range map[string]struct {
		listed  int // collections after which the meter answers, 0 if never
		told    int // collections after which the parts are reported
		lacking int // parts
	}{
		"it answers":    {2, 2, 0},
		"it never does": {0, 6, 1}, // the zone of memory
	} {
		n := accurateNode(t)
		m := &answering{kind: power.DRAM, source: power.Measured}
		n.useMeters(power.Member{Name: "ipmi", Meter: m})
		n.startsWindows(time.Second)
		for i := 1; i <= 7; i++ {
			m.listed = i == c.listed || m.listed
			m.at = n.host.Now()
			n.run(0, nil)
			logged := n.logs.FilterMessage("Attribution rules selected").All()
			assert.Equal(t, i >= c.told, len(logged) == 1, "%s, collection %d", name, i)
			for _, line := range logged {
				assert.Len(t, line.ContextMap()["unavailable"], c.lacking, name)
			}
		}
	}
}

func TestAMachineThatDoesNotMeasureTheOtherOfThePresetIsNoProblem(t *testing.T) {
	fromPreset := func(c *Config) { c.PresetOther = true }
	n := newTestNode(t, withOther, fromPreset)
	n.start()
	for range 10 {
		n.run(10*joule, map[int]int64{1: 125})
	}
	assert.Empty(t, n.logged())
	lacks := n.logs.FilterMessage("Zone other not reported: no meter has read platform or psys").All()
	require.Len(t, lacks, 1)
	assert.Equal(t, zap.InfoLevel, lacks[0].Level)

	other := newOtherNode(t, withModel(40, 120), fromPreset)
	defer unreadablePackage()()
	other.start()
	other.use(100*joule, 0, 6*joule)
	assert.Len(t, other.points("system.energy", nil, "energy.zone=package", "energy.method=modeled"), 2)
	assert.Empty(t, other.points("system.energy", nil, "energy.zone=other"))
	assert.Empty(t, other.reasons("zone other"))
}

// Psys contains package and memory. A psys without a sensor stands still, as the first interval shows.
func TestScaphandreAttributesPSysOrPackageAndMemory(t *testing.T) {
	type zoneKinds = []power.Kind
	var host []string
	for _, with := range []struct {
		zones zoneKinds
		psys  uint64
		want  map[string]float64
	}{
		{zoneKinds{power.Package, power.DRAM, power.GPU}, 50, map[string]float64{"psys": 100}},
		{zoneKinds{power.Package, power.DRAM, power.GPU}, 0, map[string]float64{"package": 30, "dram": 10}},
		{zoneKinds{power.Package, power.Core, power.Uncore, power.DRAM, power.GPU}, 50, map[string]float64{"psys": 100}},
		{zoneKinds{power.DRAM, power.Package}, 50, map[string]float64{"psys": 100}},
		{zoneKinds{power.Package, power.DRAM, power.Other}, 50, map[string]float64{"psys": 100}},
		{zoneKinds{power.Package, power.GPU}, 50, map[string]float64{"package": 60}},
	} {
		n := newTestNode(t, func(c *Config) {
			c.Attribution.Preset, c.Zones = config.PresetScaphandre, with.zones
		})
		n.host.Zones["intel-rapl:0:0"] = &hostsim.Zone{Name: "dram", Max: 1e12}
		n.host.Zones["intel-rapl:1"] = &hostsim.Zone{Name: "psys", Max: 1e12, Energy: 7 * joule}
		n.start()
		for range 2 {
			n.host.Zones["intel-rapl:0:0"].Energy += 10 * joule
			n.host.Zones["intel-rapl:1"].Energy += with.psys * joule
			n.run(30*joule, map[int]int64{1: 400})
		}
		all := 0.0
		for zone, joules := range with.want {
			assert.InDelta(t, joules, n.sum("system.energy", nil, "energy.zone="+zone), 1e-6, zone)
			all += joules
		}
		assert.InDelta(t, all, n.sum("system.energy", nil), 1e-6, "no part is added to the whole")
		assert.InDelta(t, 0.4*all, n.sum("process.energy", nil), 1e-6, "0.4 of the CPU time is used")
		attributed := n.logs.FilterMessage("Energy of psys is attributed: the preset prefers it to package and dram").Len()
		assert.Equal(t, with.want["psys"] > 0, attributed == 1, "only a psys that is attributed is logged")
		host = append(host, fmt.Sprintf("%.6g", all))
	}
	t.Attr("host", strings.Join(host, ", ")+" J")
}

func TestAPresetWhoseEventsAreNotCountedIsNoError(t *testing.T) {
	for _, preset := range []config.Preset{config.PresetKepler09, config.PresetSmartWatts} {
		n := newTestNode(t, func(c *Config) {
			c.Attribution.Preset, c.Window = preset, c.CollectionInterval
			c.Zones = append(slices.Clone(c.Zones), power.Other) // without a meter of the machine
		})
		n.machine.FindHardware = func(string) (*perfevent.Hardware, error) { return nil, errNoClocks }
		n.start()
		n.run(600*joule, map[int]int64{1: 100})
		lines := n.logs.FilterMessage("Hardware events cannot be counted: the preset's weights are CPU time").All()
		require.Len(t, lines, 1, preset)
		assert.Equal(t, errNoClocks.Error(), lines[0].ContextMap()["error"])
		assert.Empty(t, n.logged(), preset)
		assert.Empty(t, n.status, preset)
		assert.Zero(t, n.logs.FilterMessage("Allocation key selected").Len(), preset)
	}
}

func TestAReceiverThatOnlyMeasuresAContainerMakesNoWindowsByDefault(t *testing.T) {
	n := accurateNode(t, (*Config).ShowContainer)
	n.embedded.Container = idA
	n.start()
	assert.Zero(t, n.window)
}
