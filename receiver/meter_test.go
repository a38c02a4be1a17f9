// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/meters"
)

// hwmon sets the energy counters of a POWER9 chip, by label.
func (n *testNode) hwmon(counters map[string]uint64) {
	n.t.Helper()
	dir := filepath.Join(n.host.Root(), "sys/class/hwmon/hwmon0")
	require.NoError(n.t, os.MkdirAll(dir, 0o700))
	write := func(name, text string) {
		require.NoError(n.t, os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600))
	}
	write("name", "ibmpowernv")
	for i, label := range []string{"Chip 0", "Chip 0 Memory", "System"} {
		if energy, ok := counters[label]; ok {
			write("energy"+strconv.Itoa(i+1)+"_label", label)
			write("energy"+strconv.Itoa(i+1)+"_input", strconv.FormatUint(energy, 10))
		}
	}
}

func TestAutoTakesHwmonWhereThereIsNoPowercap(t *testing.T) {
	for _, meters := range [][]config.MeterKind{config.LocalMeters, only(config.MeterHwmon)} {
		n := newTestNode(t, withMeter(meters...), withModel(40, 120))
		delete(n.host.Zones, "intel-rapl:0")
		n.hwmon(map[string]uint64{"Chip 0": 5 * joule, "Chip 0 Memory": 1 * joule, "System": 7 * joule})
		n.start()
		n.hwmon(map[string]uint64{"Chip 0": 105 * joule, "Chip 0 Memory": 21 * joule, "System": 307 * joule})
		n.run(0, map[int]int64{1: 1000})
		assert.InDelta(t, 100, n.one("process.energy", pid(1), "energy.zone=package", "energy.method=measured").value, 1e-6)
		assert.InDelta(t, 20, n.one("process.energy", pid(1), "energy.zone=dram").value, 1e-6)
		assert.InDelta(t, 100, n.one("hw.energy", "hw.id=ibmpowernv:Chip 0", "hw.type=cpu").value, 1e-6)
		assert.InDelta(t, 300, n.one("hw.host.energy", "hw.id=host").value, 1e-6)
		assert.Equal(t, 1, n.logs.FilterMessageSnippet("measured by hwmon").Len())
		assert.Empty(t, n.logged(), "a missing powercap interface is no condition")
	}
}

func TestAPlatformSensorAloneIsAttributedInPlaceOfPackage(t *testing.T) {
	for name, edit := range map[string]func(*Config){
		"default":      func(*Config) {},
		"with a model": withModel(40, 120),
		"beside a zone of its own kind that is missing": func(c *Config) { c.Zones = []power.Kind{power.Package, power.PSys} },
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t, edit)
			delete(n.host.Zones, "intel-rapl:0")
			n.hwmon(map[string]uint64{"System": 7 * joule})
			n.start()
			n.hwmon(map[string]uint64{"System": 27 * joule})
			n.run(0, map[int]int64{1: 400})
			assert.InDelta(t, 20, n.one("hw.host.energy", "energy.method=measured").value, 1e-6)
			assert.InDelta(t, 8, n.one("process.energy", pid(1), "energy.zone=platform").value, 1e-6)
			assert.Len(t, n.points("system.energy", nil), 2, "active and idle of platform")
			assert.Equal(t, 1, n.logs.FilterMessage("Energy of platform is attributed: the machine has no other zone").Len())
			assert.Zero(t, n.logs.FilterMessageSnippet("modeled").Len())
			assert.Empty(t, n.logged(), "nothing is wrong")
		})
	}
}

// The zone of hwmon that has ended does not halve the static power of the one that powercap reads instead.
func TestAZoneOfAPreferredMeterHasTheWholeStaticPowerOfItsKind(t *testing.T) {
	n := newTestNode(t, func(c *Config) {
		c.Attribution.StaticPower = fixedPower(map[power.Kind]float64{power.Package: 10, power.DRAM: 0})
	})
	zone := n.host.Zones["intel-rapl:0"]
	delete(n.host.Zones, "intel-rapl:0")
	n.hwmon(map[string]uint64{"Chip 0": 5 * joule})
	n.start()
	n.hwmon(map[string]uint64{"Chip 0": 505 * joule})
	n.run(0, map[int]int64{1: 500})
	assert.InDelta(t, 100, n.one("system.energy", "energy.zone=package", "energy.state=idle").value, 1e-6)
	n.host.Zones["intel-rapl:0"] = zone
	n.run(0, map[int]int64{1: 500}) // the baseline
	n.run(500*joule, map[int]int64{1: 500})
	assert.InDelta(t, 200, n.one("system.energy", "energy.zone=package", "energy.state=idle").value, 1e-6)
	assert.InDelta(t, 800, n.one("system.energy", "energy.zone=package", "energy.state=active").value, 1e-6)
}

func TestAPermissionIsMissedOnlyForAMeterThatWouldBeUsed(t *testing.T) {
	for name, c := range map[string]struct {
		rapl bool
		want []string
	}{
		"of no use beside powercap": {true, nil},
		"that a model replaces":     {false, []string{"Degraded energy sensor"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t, withModel(40, 120))
			if !c.rapl {
				delete(n.host.Zones, "intel-rapl:0")
			}
			n.hwmon(map[string]uint64{"Chip 0": 5 * joule})
			require.NoError(t, n.host.Render())
			defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
				if strings.HasSuffix(path, "_label") {
					return nil, fs.ErrPermission
				}
				return got, err
			})()
			n.start()
			n.run(10*joule, map[int]int64{1: 1000})
			assert.Equal(t, c.want, n.logged())
			if c.want != nil {
				assert.ErrorContains(t, n.status[0].Err(), "CAP_DAC_READ_SEARCH")
			}
		})
	}
}

// A model is used until a slow meter has answered. What it had counted stays, and its series end.
func TestAModelGivesWayToAPlatformThatAnswersLate(t *testing.T) {
	n := newTestNode(t, withModel(40, 120))
	bmc := &fakeMeter{}
	n.s.meters.OpenSet = func(context.Context, *Config, component.Host, component.TelemetrySettings) (*power.Set, error) {
		curve, err := meters.StatedCurve(n.s.cfg.Model.Get())
		return power.NewSet(power.Member{Name: string(config.MeterRedfish), Meter: bmc},
			power.Member{Name: string(config.MeterModel), Meter: model.New(curve), StandsIn: true}), err
	}
	n.host.Processes[2] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/bin/app"}
	n.start()
	assert.Empty(t, n.logged(), "nothing is said while it has not answered")
	n.run(0, map[int]int64{2: 500})
	modeled := n.one("process.energy", pid(2), "energy.method=modeled").value
	assert.InDelta(t, 400, modeled, 1e-6)
	zone := &power.Zone{ID: "bmc", Kind: power.Platform, Method: power.Measured}
	for i := range 3 {
		bmc.readings = []power.Reading{{Zone: zone, Total: units.Energy(1000*i) * joule, At: n.host.Now().Add(9 * time.Second)}}
		n.run(0, map[int]int64{2: 500})
	}
	assert.InDelta(t, 1000, n.one("process.energy", pid(2), "energy.zone=platform").value, 1e-6)
	assert.InDelta(t, 2000, n.one("hw.host.energy", "hw.id=host").value, 1e-6)
	assert.InDelta(t, modeled, n.one("process.energy", pid(2), "energy.method=modeled").value, 1e-6)
	assert.Empty(t, n.points("process.power", nil, "energy.method=modeled"))
	assert.Empty(t, n.logged())
}

func TestABMCIsNotAskedForWhatAPreferredMeterReads(t *testing.T) {
	n := newTestNode(t)
	set, err := meters.Open(t.Context(), n.s.cfg, n, n.s.set.TelemetrySettings)
	require.NoError(t, err)
	defer func() { require.NoError(t, set.Close()) }()
	only := map[string]power.Kind{}
	for _, meter := range set.Status() {
		only[meter.Name] = meter.Only
	}
	assert.Equal(t, power.Platform, only[string(config.MeterIPMI)])
	assert.Empty(t, only[string(config.MeterHwmon)])
}

// fakeMeter returns what the test sets.
type fakeMeter struct {
	readings []power.Reading
	err      error
}

func (m *fakeMeter) Read(context.Context, power.Sample) ([]power.Reading, error) {
	return m.readings, m.err
}

func (*fakeMeter) Close() error { return nil }

func TestWhatIsSaidOfSeveralMeters(t *testing.T) {
	missing := func(text string) *fakeMeter { return &fakeMeter{err: fmt.Errorf("%s: %w", text, fs.ErrNotExist)} }
	denied := func(text string) *fakeMeter {
		return &fakeMeter{err: fmt.Errorf("%s: %w: %w", text, power.ErrNoZones, fs.ErrPermission)}
	}
	reads := func(kind power.Kind, err error) *fakeMeter {
		zone := &power.Zone{ID: string(kind), Kind: kind, Method: power.Measured}
		return &fakeMeter{readings: []power.Reading{{Zone: zone, Err: err, At: time.Now()}}}
	}
	fails := func(err error) *fakeMeter { return &fakeMeter{err: err} }
	both := func(kind power.Kind, err error) *fakeMeter {
		m := reads(kind, err)
		m.err = err
		return m
	}
	refused := errors.New("the BMC refuses the login")
	waits := &fakeMeter{}
	const (
		grants   = ": run the collector as root"
		noSensor = "no energy sensor found and no power model configured; no energy is reported (model: auto would estimate it)"
	)
	for name, c := range map[string]struct {
		edit   func(*Config)
		meters map[config.MeterKind]*fakeMeter
		sensor string // what is said, empty if nothing
		zones  string
	}{
		"nothing": {
			meters: map[config.MeterKind]*fakeMeter{config.MeterPowercap: missing("no powercap"), config.MeterPerf: missing("no perf"), config.MeterIPMI: missing("no BMC")},
			sensor: noSensor + ": no powercap: file does not exist",
		},
		"a BMC has not answered yet": {
			meters: map[config.MeterKind]*fakeMeter{config.MeterRedfish: waits, config.MeterPowercap: missing("no powercap"), config.MeterPerf: denied("perf"), config.MeterIPMI: waits},
			sensor: "perf: no usable zone: permission denied" + grants,
		},
		"only BMCs, which have not answered yet": {
			meters: map[config.MeterKind]*fakeMeter{config.MeterRedfish: waits, config.MeterPowercap: missing("no powercap"), config.MeterIPMI: waits},
		},
		"a BMC that is configured and fails": {
			meters: map[config.MeterKind]*fakeMeter{config.MeterRedfish: fails(refused), config.MeterPowercap: missing("no powercap"), config.MeterPerf: missing("no perf")},
			sensor: "the BMC refuses the login",
		},
		"the same beside RAPL": {
			meters: map[config.MeterKind]*fakeMeter{config.MeterRedfish: fails(refused), config.MeterPowercap: reads(power.Package, nil)},
			sensor: "the BMC refuses the login",
		},
		"a BMC that was read and fails": {
			meters: map[config.MeterKind]*fakeMeter{config.MeterRedfish: both(power.Platform, refused), config.MeterPowercap: reads(power.Package, nil)},
			zones:  "cannot read platform: the BMC refuses the login",
		},
		"a meter that is not used because another one is": {
			meters: map[config.MeterKind]*fakeMeter{config.MeterRedfish: reads(power.Platform, nil), config.MeterIPMI: both(power.Platform, refused)},
		},
		"the same, configured: it is closed": {
			meters: map[config.MeterKind]*fakeMeter{config.MeterHTTP: reads(power.Platform, nil), config.MeterRedfish: both(power.Platform, refused)},
		},
		"several fail": {
			meters: map[config.MeterKind]*fakeMeter{config.MeterHTTP: fails(errors.New("http:a: timeout")), config.MeterRedfish: fails(refused), config.MeterPowercap: reads(power.Package, nil)},
			sensor: "http:a: timeout; the BMC refuses the login",
		},
		"RAPL may not be read": {
			meters: map[config.MeterKind]*fakeMeter{config.MeterHTTP: reads(power.Platform, nil), config.MeterPowercap: missing("no powercap"), config.MeterPerf: denied("perf")},
			sensor: "perf: no usable zone: permission denied" + grants,
		},
		"the package may be read by perf, not by powercap": {
			meters: map[config.MeterKind]*fakeMeter{config.MeterPowercap: reads(power.Package, fs.ErrPermission), config.MeterPerf: reads(power.Package, nil)},
		},
		"a BMC may not be read": {
			meters: map[config.MeterKind]*fakeMeter{config.MeterPowercap: reads(power.Package, nil), config.MeterIPMI: denied("BMC ipmi0")},
		},
		"a BMC alone may not be read": {
			edit:   withModel(40, 120),
			meters: map[config.MeterKind]*fakeMeter{config.MeterPowercap: missing("no powercap"), config.MeterIPMI: denied("BMC ipmi0"), config.MeterModel: {readings: modeled()}},
			sensor: "BMC ipmi0: no usable zone: permission denied" + grants,
		},
		"a BMC alone may not be read, and there is no model": {
			meters: map[config.MeterKind]*fakeMeter{config.MeterPowercap: missing("no powercap"), config.MeterIPMI: denied("BMC ipmi0")},
			sensor: noSensor + ": no powercap: file does not exist; " +
				"BMC ipmi0: no usable zone: permission denied" + grants,
		},
		"a model stands in": {
			edit:   withModel(40, 120),
			meters: map[config.MeterKind]*fakeMeter{config.MeterPowercap: missing("no powercap"), config.MeterPerf: missing("no perf"), config.MeterModel: {readings: modeled()}},
		},
		"zones of several meters": {
			meters: map[config.MeterKind]*fakeMeter{config.MeterHTTP: reads(power.DRAM, errors.New("timeout")), config.MeterPowercap: reads(power.Package, fs.ErrPermission)},
			zones:  "cannot read dram, package: timeout; permission denied" + grants,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.edit == nil {
				c.edit = func(*Config) {}
			}
			n := newTestNode(t, c.edit)
			var members []power.Member
			for _, kind := range []config.MeterKind{
				config.MeterHTTP, config.MeterRedfish, config.MeterGPU, config.MeterVsock, config.MeterPowercap, config.MeterPerf,
				config.MeterCray, config.MeterHwmon, config.MeterIPMI, config.MeterModel,
			} {
				if m := c.meters[kind]; m != nil {
					members = append(members, meters.Member(kind, m))
				}
			}
			n.s.meters.Set = power.NewSet(members...)
			for range 2 {
				n.s.meters.Read(t.Context(), power.Sample{At: time.Now()}, n.s.conditions)
				n.s.conditions.Settle()
				for condition, want := range map[string]string{"energy sensor": c.sensor, "energy zones": c.zones} {
					got := ""
					if err := n.s.conditions.Err(condition); err != nil {
						got = err.Error()
					}
					if strings.HasSuffix(want, grants) {
						got, _, _ = strings.Cut(got, strings.TrimPrefix(grants, ": "))
						got += strings.TrimPrefix(grants, ": ")
					}
					assert.Equal(t, want, got, condition)
				}
			}
			assert.LessOrEqual(t, len(n.logged()), 1, "it is logged once")
		})
	}
}

func modeled() []power.Reading {
	return []power.Reading{{Zone: &power.Zone{ID: "model:0", Kind: power.Package, Method: power.Modeled}, At: time.Now()}}
}
