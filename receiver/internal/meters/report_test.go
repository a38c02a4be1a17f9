// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/energyreceiver/energyreceiver/internal/conditions"
	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// fakeMeter returns what the test sets.
type fakeMeter struct {
	readings []power.Reading
	err      error
}

func (m *fakeMeter) Read(context.Context, power.Sample) ([]power.Reading, error) {
	return m.readings, m.err
}

func (*fakeMeter) Close() error { return nil }

func TestTheErrorsOfSeveralMetersAreOneCondition(t *testing.T) {
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
		noSensor = "no energy sensor found and no power model configured: no energy is reported (set model: auto to estimate energy)"
	)
	for name, c := range map[string]struct {
		model  bool
		meters map[string]*fakeMeter
		sensor string // the condition, empty if it does not hold
		zones  string
	}{
		"nothing": {
			meters: map[string]*fakeMeter{"powercap": missing("no powercap"), "perf": missing("no perf"), "ipmi": missing("no BMC")},
			sensor: noSensor + ": no powercap: file does not exist",
		},
		"a BMC has not answered yet": {
			meters: map[string]*fakeMeter{"redfish": waits, "powercap": missing("no powercap"), "perf": denied("perf"), "ipmi": waits},
			sensor: "perf: no usable zone: permission denied" + grants,
		},
		"only BMCs, which have not answered yet": {
			meters: map[string]*fakeMeter{"redfish": waits, "powercap": missing("no powercap"), "ipmi": waits},
		},
		"a BMC that is configured and fails": {
			meters: map[string]*fakeMeter{"redfish": fails(refused), "powercap": missing("no powercap"), "perf": missing("no perf")},
			sensor: "the BMC refuses the login",
		},
		"the same next to RAPL": {
			meters: map[string]*fakeMeter{"redfish": fails(refused), "powercap": reads(power.Package, nil)},
			sensor: "the BMC refuses the login",
		},
		"a BMC that was read and fails": {
			meters: map[string]*fakeMeter{"redfish": both(power.Platform, refused), "powercap": reads(power.Package, nil)},
			zones:  "cannot read platform: the BMC refuses the login",
		},
		"a meter that is not used because another one is": {
			meters: map[string]*fakeMeter{"redfish": reads(power.Platform, nil), "ipmi": both(power.Platform, refused)},
		},
		"the same, configured: it is closed": {
			meters: map[string]*fakeMeter{"http": reads(power.Platform, nil), "redfish": both(power.Platform, refused)},
		},
		"several fail": {
			meters: map[string]*fakeMeter{"http": fails(errors.New("http:a: timeout")), "redfish": fails(refused), "powercap": reads(power.Package, nil)},
			sensor: "http:a: timeout; the BMC refuses the login",
		},
		"RAPL may not be read": {
			meters: map[string]*fakeMeter{"http": reads(power.Platform, nil), "powercap": missing("no powercap"), "perf": denied("perf")},
			sensor: "perf: no usable zone: permission denied" + grants,
		},
		"the package may be read by perf, not by powercap": {
			meters: map[string]*fakeMeter{"powercap": reads(power.Package, fs.ErrPermission), "perf": reads(power.Package, nil)},
		},
		"a BMC may not be read": {
			meters: map[string]*fakeMeter{"powercap": reads(power.Package, nil), "ipmi": denied("BMC ipmi0")},
		},
		"a BMC alone may not be read": {
			model:  true,
			meters: map[string]*fakeMeter{"powercap": missing("no powercap"), "ipmi": denied("BMC ipmi0"), "model": {readings: modeled()}},
			sensor: "BMC ipmi0: no usable zone: permission denied" + grants,
		},
		"a BMC alone may not be read, and there is no model": {
			meters: map[string]*fakeMeter{"powercap": missing("no powercap"), "ipmi": denied("BMC ipmi0")},
			sensor: noSensor + ": no powercap: file does not exist; " +
				"BMC ipmi0: no usable zone: permission denied" + grants,
		},
		"a model stands in": {
			model:  true,
			meters: map[string]*fakeMeter{"powercap": missing("no powercap"), "perf": missing("no perf"), "model": {readings: modeled()}},
		},
		"zones of several meters": {
			meters: map[string]*fakeMeter{"http": reads(power.DRAM, errors.New("timeout")), "powercap": reads(power.Package, fs.ErrPermission)},
			zones:  "cannot read dram, package: timeout; permission denied" + grants,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := simpleConfig()
			if c.model {
				cfg.Model = configoptional.Some(config.ModelConfig{IdlePower: 40, MaxPower: 120})
			}
			core, logs := observer.New(zap.WarnLevel)
			wrong := conditions.New("Collection", zap.New(core))
			var members []power.Member
			for _, driver := range drivers.All {
				if meter := c.meters[driver.Name]; meter != nil {
					members = append(members, driver.Member(meter))
				}
			}
			m := New(cfg, zap.New(core), power.NewSet(members...), nil)
			for range 2 {
				m.Read(t.Context(), power.Sample{At: time.Now()}, wrong)
				wrong.Settle()
				for condition, want := range map[string]string{"energy sensor": c.sensor, "energy zones": c.zones} {
					got := ""
					if err := wrong.Err(condition); err != nil {
						got = err.Error()
					}
					if strings.HasSuffix(want, grants) {
						got, _, _ = strings.Cut(got, strings.TrimPrefix(grants, ": "))
						got += strings.TrimPrefix(grants, ": ")
					}
					assert.Equal(t, want, got, condition)
				}
			}
			assert.LessOrEqual(t, logs.FilterMessage("Collection degraded").Len(), 1, "it is logged once")
		})
	}
}

func modeled() []power.Reading {
	return []power.Reading{{Zone: &power.Zone{ID: "model:0", Kind: power.Package, Method: power.Modeled}, At: time.Now()}}
}
