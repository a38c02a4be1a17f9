// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"math"
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
	"golang.org/x/tools/txtar"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/power/model/catalog"
	"github.com/energyreceiver/energyreceiver/internal/power/model/machine"
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

// The machines are the fixtures of the package machine. docs/virtual-machines.md has the table.
func TestAutoHasAModelOfEachCloudsMachines(t *testing.T) {
	names, err := filepath.Glob("../internal/power/model/machine/testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, instance := range []string{"", "n2-standard-2"} {
		t.Setenv(machine.InstanceVariable, instance)
		for _, name := range names {
			if instance != "" && !strings.Contains(name, instance) {
				continue
			}
			archive, err := txtar.ParseFile(name)
			require.NoError(t, err)
			root := t.TempDir()
			for _, f := range archive.Files[1:] {
				write(t, filepath.Join(root, f.Name), string(f.Data))
			}
			what, err := machine.Read(root, os.Getenv)
			require.NoError(t, err, name)
			curves, err := modelCurves(&config.ModelConfig{}, what, []power.Kind{power.Package})
			require.NoError(t, err, name)
			require.Len(t, curves, 1, name)
			c := curves[0]
			t.Logf("| %s | %v | %s | %s | %s | %s |", strings.TrimSuffix(filepath.Base(name), ".txtar"), what, c.Basis,
				watts(c.Curve.Watts(0)), watts(c.Curve.Watts(1)), inPercent(c.ExpectedError))
			assert.Positive(t, c.ExpectedError, name)
			assert.Less(t, c.Curve.Watts(0), c.Curve.Watts(1), name)
		}
	}
}

func TestErrorsAreToldInPercent(t *testing.T) {
	for share, want := range map[float64]string{0.0577: "5.8 %", 0.2: "20 %", 0.0999: "10 %", 1.062: "106 %", 0.031: "3.1 %"} {
		assert.Equal(t, want, inPercent(share))
	}
}

func TestVirtualMachineWithoutIdlePowerUsesNothingAtRest(t *testing.T) {
	n, _ := withoutSensor(t, func(c *Config) { c.Model = configoptional.Some(config.ModelConfig{Idle: config.ModelIdleNone}) })
	describeMachine(t, n)
	n.start()
	n.run(0, nil)
	for _, p := range n.points("hw.energy", nil) {
		assert.InDelta(t, 0, p.value, 1e-6, p.attributes["hw.type"])
	}
	n.run(0, map[int]int64{1: 1000})
	for _, p := range n.points("hw.energy", nil) {
		assert.Positive(t, p.value, p.attributes["hw.type"])
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

func TestMachineThatNothingTellsOfIsACondition(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*Config)
		want string
	}{
		"auto":       {withAutoModel, "no energy sensor found and no power model available; no energy is reported: "},
		"only model": {func(c *Config) { withAutoModel(c); c.Meters.Use = only() }, "no power model: identify the machine: "},
	} {
		t.Run(name, func(t *testing.T) {
			n, tel := withoutSensor(t, c.edit)
			require.NoError(t, n.host.Render())
			write(t, filepath.Join(n.host.Root(), "sys/devices/system/cpu/online"), "\n")
			n.startAsIs()
			for range 3 {
				n.scrapeAsIs()
			}
			assert.Equal(t, []string{"Degraded energy sensor"}, n.logged())
			require.Len(t, n.status, 1)
			require.ErrorContains(t, n.status[0].Err(), c.want)
			require.ErrorContains(t, n.status[0].Err(), "no power model: identify the machine: open ")
			assert.NotContains(t, n.status[0].Err().Error(), "CAP_DAC_READ_SEARCH")
			assert.Empty(t, n.points("hw.energy", nil))
			_, err := tel.GetMetric("otelcol_receiver_energy_model_expected_error")
			assert.Error(t, err)
		})
	}
}

func TestMachineThatNothingTellsOfIsNothingWrongWhereASensorIsRead(t *testing.T) {
	n := newTestNode(t, withAutoModel)
	require.NoError(t, n.host.Render())
	write(t, filepath.Join(n.host.Root(), "sys/devices/system/cpu/online"), "\n")
	n.startAsIs()
	n.scrapeAsIs()
	assert.Empty(t, n.logged())
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
		power.Package: {Curve: curve, Error: 0.02, Seconds: 600, Highest: 1},
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

func TestTrainedModelThatCannotBeReadIsACondition(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "broken.json"), "{")
	for name, path := range map[string]string{"missing": filepath.Join(dir, "missing"), "broken": filepath.Join(dir, "broken.json"), "directory": dir} {
		t.Run(name, func(t *testing.T) {
			n, _ := withoutSensor(t, withModelFile(path))
			describeMachine(t, n)
			n.start()
			n.run(0, nil)
			assert.Equal(t, []string{"Degraded energy sensor"}, n.logged())
			require.ErrorContains(t, n.status[0].Err(), "no power model available; no energy is reported: ")
			assert.NotContains(t, n.status[0].Err().Error(), "\n")
		})
	}
}

func TestTwoPowersHaveTheCurveOfServers(t *testing.T) {
	curve, err := statedCurve(&config.ModelConfig{IdlePower: 40, MaxPower: 120})
	require.NoError(t, err)
	assert.InDelta(t, 40, curve.Curve.Watts(0), 1e-9)
	assert.InDelta(t, 120, curve.Curve.Watts(1), 1e-9)
	assert.Greater(t, curve.Curve.Watts(0.5), 85.0, "servers use more than half of it at half load")
}

func TestTwoPowersHaveTheErrorOfTheirCurve(t *testing.T) {
	what := machine.Machine{CPU: cloudCPU, Threads: 96}
	for name, c := range map[string]struct {
		m    config.ModelConfig
		want float64
	}{
		"the package":       {config.ModelConfig{IdlePower: 40, MaxPower: 120}, catalog.BetweenError(what, "")},
		"the whole machine": {config.ModelConfig{IdlePower: 40, MaxPower: 120, Zone: power.Platform}, 0},
		"points":            {config.ModelConfig{Points: []config.ModelPoint{{Power: 40}}}, 0},
	} {
		curves, err := modelCurves(&c.m, what, []power.Kind{c.m.ZoneKind()})
		require.NoError(t, err, name)
		require.Len(t, curves, 1, name)
		assert.InDelta(t, c.want, curves[0].ExpectedError, 0, name)
	}
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

// BenchmarkOpenModel opens model: auto on this machine, and on one with 1,024 CPUs.
func BenchmarkOpenModel(b *testing.B) {
	large := b.TempDir()
	var info strings.Builder
	for i := range 1024 {
		fmt.Fprintf(&info, "processor\t: %d\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 173\nmodel name\t: Intel(R) Xeon(R) 6787P\nflags\t\t: fpu %s\n\n",
			i, strings.Repeat("flag ", 300))
		dir := filepath.Join(large, fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology", i))
		require.NoError(b, os.MkdirAll(dir, 0o755))
		require.NoError(b, os.WriteFile(filepath.Join(dir, "core_cpus_list"), fmt.Appendf(nil, "%d-%d\n", i&^1, i|1), 0o600))
		require.NoError(b, os.WriteFile(filepath.Join(dir, "package_cpus_list"), fmt.Appendf(nil, "%d-%d\n", i&^255, i|255), 0o600))
	}
	require.NoError(b, os.MkdirAll(filepath.Join(large, "proc"), 0o755))
	require.NoError(b, os.WriteFile(filepath.Join(large, "proc/cpuinfo"), []byte(info.String()), 0o600))
	require.NoError(b, os.WriteFile(filepath.Join(large, "proc/meminfo"), []byte("MemTotal: 4294967296 kB\n"), 0o600))
	require.NoError(b, os.WriteFile(filepath.Join(large, "sys/devices/system/cpu/online"), []byte("0-1023\n"), 0o600))
	for name, root := range map[string]string{"this machine": "/", "1024 CPUs": large} {
		b.Run(name, func(b *testing.B) {
			cfg := simpleConfig()
			cfg.RootPath, cfg.Model = root, configoptional.Some(config.ModelConfig{})
			most := 0.0
			for b.Loop() {
				began := b.Elapsed()
				meter, err := openModel(b.Context(), &meterOptions{Config: cfg})
				require.NoError(b, err)
				require.IsType(b, &modelMeter{}, meter)
				most = math.Max(most, (b.Elapsed() - began).Seconds())
			}
			b.ReportMetric(most*1e3, "ms/worst")
		})
	}
}
