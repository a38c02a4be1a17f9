// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/power/model/trained"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadatatest"
)

func withAutoModel(c *Config) { c.Model = configoptional.Some(config.ModelConfig{}) }

func withModelFile(path string) func(*Config) {
	return func(c *Config) { c.Model = configoptional.Some(config.ModelConfig{File: path}) }
}

// cloudCPU is in the catalog.
const cloudCPU = "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"

// describeMachine makes the simulated host, with its one CPU, a virtual machine with 8 GiB of memory.
func describeMachine(t testing.TB, n *testNode) {
	t.Helper()
	proc := filepath.Join(n.host.Root(), "proc")
	require.NoError(t, os.MkdirAll(proc, 0o755))
	for name, text := range map[string]string{
		"cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: " + cloudCPU + "\nflags\t\t: fpu hypervisor\n\n",
		"meminfo": "MemTotal:        8388608 kB\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(proc, name), []byte(text), 0o600))
	}
}

// withoutSensor is a node whose only meter can be a model.
func withoutSensor(t *testing.T, edit ...func(*Config)) (*testNode, *componenttest.Telemetry) {
	t.Helper()
	n, tel := observedNode(t, edit...)
	delete(n.host.Zones, "intel-rapl:0")
	return n, tel
}

// selected returns the zones of which the log says that a power model was selected, and its words.
func (n *testNode) selected() map[string]map[string]any {
	zones := map[string]map[string]any{}
	for _, e := range n.logs.FilterMessage("Power model selected").All() {
		fields := e.ContextMap()
		zones[fields["zone"].(string)] = fields
	}
	return zones
}

func TestAutoModelsThePackageAndTheMemoryOfAMachineWithoutASensor(t *testing.T) {
	n, tel := withoutSensor(t, withAutoModel)
	describeMachine(t, n)
	n.start()
	n.run(0, map[int]int64{1: 500})
	energies := map[string]float64{}
	for _, p := range n.points("hw.energy", nil, "energy.method=modeled") {
		energies[p.attributes["hw.type"]] = p.value
	}
	assert.Positive(t, energies["cpu"])
	assert.Positive(t, energies["memory"])
	assert.Len(t, energies, 2)
	assert.Empty(t, n.logged())

	said := n.selected()
	require.Contains(t, said, "package")
	require.Contains(t, said, "dram")
	assert.Contains(t, said["package"]["basis"], "8259CL")
	assert.Equal(t, cloudCPU+", 1 CPU, 8 GiB, virtual", said["package"]["machine"])
	for zone, fields := range said {
		assert.NotEmpty(t, fields["basis"], zone)
		assert.Regexp(t, `^\d+ W|^\d+\.\d+ W`, fields["idle_power"], zone)
		assert.Regexp(t, `^\d+ W|^\d+\.\d+ W`, fields["max_power"], zone)
		assert.Regexp(t, `^[0-9.]+ %$`, fields["expected_error"], zone)
	}
	m, err := tel.GetMetric("otelcol_receiver_energy_model_expected_error")
	require.NoError(t, err)
	points := m.Data.(metricdata.Gauge[float64]).DataPoints
	require.Len(t, points, 2)
	for _, p := range points {
		assert.True(t, p.Value > 0 && p.Value < 1, p)
	}
}

func TestExpectedErrorIsReportedOnlyWhileAZoneIsModeled(t *testing.T) {
	n, tel := observedNode(t, withAutoModel, func(c *Config) { c.Zones = []power.Kind{power.Package} })
	describeMachine(t, n)
	n.host.Zones["intel-rapl:0"].Content = "not yet\n"
	n.start()
	n.run(0, nil)
	m, err := tel.GetMetric("otelcol_receiver_energy_model_expected_error")
	require.NoError(t, err)
	value := m.Data.(metricdata.Gauge[float64]).DataPoints[0].Value
	metadatatest.AssertEqualReceiverEnergyModelExpectedError(t, tel, []metricdata.DataPoint[float64]{observed(value, "energy.zone", "package")}, whenever)
	n.host.Zones["intel-rapl:0"].Content = ""
	n.run(10*joule, nil)
	n.run(10*joule, nil)
	_, err = tel.GetMetric("otelcol_receiver_energy_model_expected_error")
	require.Error(t, err, "measured")
}

// A power curve from 0 W to the TDP is CodeCarbon's TDP * load.
func TestACurveFromZeroToTheTDPGivesEachProcessTDPTimesLoad(t *testing.T) {
	n := newTestNode(t, func(c *Config) {
		c.Meters.Use, c.Model = only(), configoptional.Some(linear(0, 120))
		c.Attribution.StaticPower = fixedPower(map[power.Kind]float64{power.Package: 0})
	})
	n.host.CPUs = 4
	n.process(10, "train")
	n.process(20, "other")
	n.start()
	n.run(0, map[int]int64{1: 400, 10: 1200, 20: 400})
	n.expect(energies{"10": 360, "20": 120}, 1e-6)
	t.Attr("tdp-load", fmt.Sprintf("%.6g, %.6g J", n.energy("10"), n.energy("20")))
}

func TestAMachineWithoutASensorAndWithoutAModelIsACondition(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.json")
	write(t, broken, "{")
	unknown := func(n *testNode) {
		require.NoError(t, n.host.Render())
		write(t, filepath.Join(n.host.Root(), "sys/devices/system/cpu/online"), "\n")
	}
	known := func(n *testNode) {
		describeMachine(t, n)
		require.NoError(t, n.host.Render())
	}
	const unavailable = "no energy sensor found and no power model available: no energy is reported: "
	for name, c := range map[string]struct {
		edit    func(*Config)
		prepare func(*testNode)
		want    []string
	}{
		"none":              {func(*Config) {}, known, []string{"no energy sensor found and no power model configured: no energy is reported"}},
		"auto":              {withAutoModel, unknown, []string{unavailable, "no power model: identify the machine: open "}},
		"only model":        {func(c *Config) { withAutoModel(c); c.Meters.Use = only() }, unknown, []string{"no power model: identify the machine: open "}},
		"missing file":      {withModelFile(filepath.Join(dir, "missing")), known, []string{unavailable}},
		"broken file":       {withModelFile(broken), known, []string{unavailable}},
		"directory of such": {withModelFile(dir), known, []string{unavailable}},
	} {
		t.Run(name, func(t *testing.T) {
			n, tel := withoutSensor(t, c.edit)
			c.prepare(n)
			n.startAsIs()
			for range 3 {
				n.scrapeAsIs()
			}
			assert.Equal(t, []string{"Degraded energy sensor"}, n.logged())
			require.Len(t, n.status, 1)
			for _, text := range c.want {
				require.ErrorContains(t, n.status[0].Err(), text)
			}
			if name == "none" {
				figure, _, _ := strings.Cut(n.status[0].Err().Error(), " (")
				t.Attr("no-sensor", figure)
			}
			assert.NotContains(t, n.status[0].Err().Error(), "CAP_DAC_READ_SEARCH")
			assert.NotContains(t, n.status[0].Err().Error(), "\n")
			assert.Empty(t, n.points("hw.energy", nil))
			_, err := tel.GetMetric("otelcol_receiver_energy_model_expected_error")
			assert.Error(t, err)
		})
	}
}

func TestAutoOfAnUnknownCPUIsItsNumberOfThreads(t *testing.T) {
	n, _ := withoutSensor(t, withAutoModel)
	n.start() // the simulated host has no cpuinfo, and one CPU online
	n.run(0, nil)
	said := n.selected()
	require.Contains(t, said, "package")
	assert.NotContains(t, said, "dram", "its size is not known")
	assert.Contains(t, said["package"]["basis"], "unknown CPU")
	incomplete := n.logs.FilterMessage("Power model incomplete").All()
	require.Len(t, incomplete, 1)
	assert.Equal(t, zap.WarnLevel, incomplete[0].Level)
	assert.Contains(t, incomplete[0].ContextMap()["error"], "no power model of dram: ")
	assert.Empty(t, n.logged())
}

func TestAModelWithoutDRAMIsNoWarningWhereASensorIsInUse(t *testing.T) {
	n := newTestNode(t, withAutoModel)
	n.start()
	n.run(0, nil)
	incomplete := n.logs.FilterMessage("Power model incomplete").All()
	require.Len(t, incomplete, 1)
	assert.Equal(t, zap.InfoLevel, incomplete[0].Level)
}

func TestTrainedModelIsUsed(t *testing.T) {
	dir := t.TempDir()
	n, _ := withoutSensor(t, withModelFile(dir))
	describeMachine(t, n)
	require.NoError(t, n.host.Render())
	what, err := machine.Read(n.host.Root(), os.Getenv)
	require.NoError(t, err)
	curve, err := model.Linear(10, 30)
	require.NoError(t, err)
	file := trained.Model{Created: n.host.Now(), Machine: what, Zones: map[power.Kind]trained.Zone{
		power.Package: {Curve: curve, Error: 0.02, Seconds: 600, Utilization: []float64{0, 1}},
	}}
	text, err := file.Encode()
	require.NoError(t, err)
	write(t, filepath.Join(dir, "node.json"), string(text))
	n.start()
	n.run(0, map[int]int64{1: 500})
	assert.InDelta(t, 200, n.one("hw.energy", "hw.type=cpu", "energy.method=modeled").value, 1e-5, "half busy: 20 W for 10 s")
	assert.Equal(t, "10 W", n.selected()["package"]["idle_power"])
	assert.Equal(t, "30 W", n.selected()["package"]["max_power"])
}

func TestPowerOfMemoryCanBeStated(t *testing.T) {
	for name, m := range map[string]config.ModelConfig{
		"powers": {IdlePower: 40, MaxPower: 120, MemoryPower: 0.5},
		"auto":   {MemoryPower: 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := withoutSensor(t, func(c *Config) { c.Model = configoptional.Some(m) })
			describeMachine(t, n)
			n.start()
			n.run(0, map[int]int64{1: 500})
			assert.InDelta(t, 40, n.one("hw.energy", "hw.type=memory").value, 1e-5, "8 GiB, 4 W, 10 s")
		})
	}
}
