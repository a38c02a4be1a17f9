// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/config/configauth"
	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

func withModel(idle, most float64) func(*Config) {
	return func(c *Config) {
		c.Model = configoptional.Some(linear(idle, most))
	}
}

func withMeter(m ...string) func(*Config) { return func(c *Config) { c.Meters.Use = m } }

func TestAnEmptyRootIsReportedAndTheReceiverStarts(t *testing.T) {
	n := newTestNode(t)
	n.startAsIs()
	for range 3 {
		n.scrapeAsIs()
		assert.Zero(t, n.md.MetricCount())
	}
	assert.ElementsMatch(t, []string{"Degraded node CPU time", "Degraded energy sensor"}, n.logged(), "one line each")
	require.Equal(t, []componentstatus.Status{componentstatus.StatusRecoverableError}, n.statuses())
	assert.ErrorContains(t, n.status[0].Err(), "proc/stat")
	assert.ErrorContains(t, n.status[0].Err(), "no powercap interface")

	n.host.Processes[10] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/bin/app", User: 90_000}
	n.host.Zones["intel-rapl:0"].Energy += 1000 * joule
	n.host.Run(10*time.Second, nil) // the meter is looked for less and less often
	n.scrape()
	assert.ElementsMatch(t, []string{"Degraded node CPU time", "Degraded energy sensor",
		"Recovered node CPU time", "Recovered energy sensor"}, n.logged())
	assert.Equal(t, []componentstatus.Status{componentstatus.StatusRecoverableError, componentstatus.StatusOK}, n.statuses())
	assert.Zero(t, n.sum("system.energy", nil), "the baseline is when they appeared")
	assert.Zero(t, n.one("hw.energy").value)
	baseline := n.one("process.energy", pid(10))
	assert.Zero(t, baseline.value)
	assert.Equal(t, baseline.at, baseline.start)

	n.run(100*joule, map[int]int64{10: 500})
	assert.InDelta(t, 50, n.one("process.energy", pid(10)).value, 1e-6)
	assert.Equal(t, baseline.start, n.one("process.energy", pid(10)).start)
}

func TestWhatTheConfigurationNeedsAndLacksIsAnErrorAtStart(t *testing.T) {
	gpus := func(n *testNode) { n.cfg.Meters.GPU.Extensions = []component.ID{nvmlID} }
	for want, edit := range map[string]func(*testNode){
		`storage: extension "file_storage" is not enabled: add it to extensions and to service::extensions, ` +
			`or set the absolute path of a directory`: func(n *testNode) { n.cfg.Storage = storageID.String() },
		`storage: extension "nvml" is not a storage extension: add one, such as file_storage, to extensions and to service::extensions, ` +
			`or set the absolute path of a directory`: func(n *testNode) {
			n.cfg.Storage = nvmlID.String()
			n.extensions = map[component.ID]component.Component{nvmlID: struct{ component.Component }{}}
		},
		`gpu::extensions: extension "nvml" is not enabled: add it to extensions and to service::extensions`: gpus,
		`gpu::extensions: "nvml" is not an extension that reads GPUs`: func(n *testNode) {
			gpus(n)
			n.extensions = map[component.ID]component.Component{nvmlID: &memoryStorage{}}
		},
		"open meter http: meters::http/a: ": func(n *testNode) {
			plug := drivers.HTTPConfig{NumberConfig: drivers.NumberConfig{Unit: "W"}}
			plug.Auth = configoptional.Some(configauth.Config{AuthenticatorID: component.MustNewID("basicauth")})
			n.cfg.Meters.HTTP = map[component.ID]drivers.HTTPConfig{plugID: plug}
		},
		"open meter model: ": func(n *testNode) {
			n.cfg.Model = configoptional.Some(config.ModelConfig{IdlePower: 120, MaxPower: 40})
		},
		"attribution::weight cycles: " + perfevent.ErrOldKernel.Error(): func(n *testNode) {
			n.cfg.Attribution.Weight = allWeight(config.WeightCycles)
			n.machine.FindHardware = func(string) (*perfevent.Hardware, error) { return nil, perfevent.ErrOldKernel }
		},
	} {
		n := newTestNode(t)
		edit(n)
		require.NoError(t, n.host.Render())
		require.ErrorContains(t, n.tryBegin(), want)
		n.stop()
	}
}

// From the collection in which a package is found, it is attributed and psys is only measured, as on other machines. No
// energy of psys is lost meanwhile.
func TestAZoneThatAppearsTakesThePlaceOfPSys(t *testing.T) {
	n := newTestNode(t)
	psys := n.host.Zones["intel-rapl:0"]
	psys.Name = "psys"
	n.start()
	found, total := 0, 0.0
	for i := range 6 {
		if i == 1 {
			n.host.Zones["intel-rapl:1"] = &hostsim.Zone{Name: "package-0", Max: 1e12, Energy: 777 * joule}
		}
		psys.Energy += 20 * joule
		n.run(10*joule, map[int]int64{1: 400})
		total = max(total, n.sum("system.energy", nil, "energy.zone=psys"))
		if len(n.points("system.energy", nil, "energy.zone=package")) > 0 {
			found++
		}
	}
	// Zones are discovered every ten seconds: psys was attributed until the package was found.
	assert.Equal(t, 5, found)
	assert.InDelta(t, 40, total, 1e-6)
	assert.InDelta(t, 16, n.one("process.energy", pid(1), "energy.zone=package").value, 1e-6)
	assert.InDelta(t, 16, n.one("process.energy", pid(1), "energy.zone=psys").value, 1e-6, "its energy until then remains")
	assert.Empty(t, n.points("process.power", nil, "energy.zone=psys"))
	assert.InDelta(t, 120, n.one("hw.energy", "energy.zone=psys").value, 1e-6)
	assert.Equal(t, 1, n.logs.FilterMessage("Energy of psys is attributed: the machine has no other zone").Len())
	assert.Equal(t, 1, n.logs.FilterMessage("Energy of the configured zones is attributed").Len())
}

func TestAFixedStaticPowerDoesNotApplyToPSys(t *testing.T) {
	for watts, want := range map[float64]float64{0: 8, 0.5: 15} { // of 20 J in 10 s, 40 % busy
		n := newTestNode(t, func(c *Config) {
			c.Zones = []power.Kind{power.Package}
			stated := map[power.Kind]float64{power.Package: 1}
			if watts > 0 {
				stated[power.PSys] = watts
			}
			c.Attribution.StaticPower = fixedPower(stated)
		})
		n.host.Zones["intel-rapl:0"].Name = "psys"
		n.start()
		n.host.Zones["intel-rapl:0"].Energy += 20 * joule
		n.run(0, map[int]int64{1: 400})
		assert.InDelta(t, want, n.one("process.energy", pid(1)).value, 1e-6, watts)
	}
}

func TestProcessesThatCannotBeReadAreNotLoggedOneByOne(t *testing.T) {
	n := newTestNode(t)
	for p := 10; p < 210; p++ {
		n.process(p, "app")
	}
	n.start()
	n.run(100*joule, map[int]int64{10: 100, 20: 100})
	before := n.logs.Len()
	for p := 10; p < 210; p++ {
		dir := filepath.Join(n.host.Root(), "proc", fmt.Sprint(p))
		for _, name := range []string{"stat", "exe", "cgroup", "cmdline"} {
			if p%2 == 0 || name != "stat" {
				require.NoError(t, os.RemoveAll(filepath.Join(dir, name)))
				require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755)) // exists, and cannot be read
			}
		}
	}
	for range 3 {
		n.scrapeAsIs()
		n.balance()
	}
	assert.Equal(t, before, n.logs.Len(), "%v", n.logs.All()[before:])
}
