// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

func modeledHost(c *Config) {
	c.Meters.Use, c.Model = only(), configoptional.Some(config.ModelConfig{IdlePower: 10, MaxPower: 50})
}

func TestConfiguredStaticPowerReplacesUtilization(t *testing.T) {
	measured := power.Class{Zone: power.Package, Method: power.Measured}
	for name, c := range map[string]struct {
		edit  func(*Config)
		known map[power.Class]float64
		idle  float64 // of 10 s in which half of the CPU time was used, and 100 J
	}{
		"of a model":                        {modeledHost, map[power.Class]float64{}, 100},
		"of a model, which nobody asks for": {modeledHost, nil, -1},
		"of a sensor":                       {func(*Config) {}, map[power.Class]float64{measured: 3}, 30},
		"of a sensor, unknown":              {func(*Config) {}, map[power.Class]float64{}, 50},
		"as configured": {func(c *Config) {
			c.Attribution.StaticPower, c.Zones = fixedPower(map[power.Kind]float64{power.Package: 1}), []power.Kind{power.Package}
		}, map[power.Class]float64{measured: 3}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t, c.edit)
			n.process(10, "app")
			n.embedded.StaticPower = c.known
			n.start()
			half := int64(n.host.CPUs) * 500 // ticks
			n.run(100*joule, map[int]int64{10: half})

			idle, active := n.one("system.energy", "energy.state=idle").value, n.one("system.energy", "energy.state=active").value
			if c.idle < 0 { // by utilization
				assert.InDelta(t, idle, active, 1e-3)
				return
			}
			assert.InDelta(t, c.idle, idle, 1e-3)
		})
	}
}

// answering is a meter that answers on request of the test.
type answering struct {
	kind   power.Kind
	source power.Method
	listed bool
	at     time.Time
	zone   *power.Zone
}

func (a *answering) Read(context.Context, power.Sample) ([]power.Reading, error) {
	if !a.listed {
		return nil, nil
	}
	if a.zone == nil {
		a.zone = &power.Zone{ID: string(a.kind), Kind: a.kind, Method: a.source}
	}
	return []power.Reading{{Zone: a.zone, At: a.at, Total: units.Joule}}, nil
}

func (*answering) Close() error { return nil }

func TestOnlyMetersWithAttributedEnergyAreAwaited(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		sensor, rapl answering
		meter        string // of the sensor
		waits        bool
	}{
		"nothing has answered":                   {meter: "ipmi", waits: true},
		"RAPL has":                               {meter: "ipmi", rapl: answering{kind: power.Package, source: power.Measured, listed: true, at: now}},
		"RAPL has, and not what is configured":   {meter: "http", rapl: answering{kind: power.Package, source: power.Measured, listed: true, at: now}, waits: true},
		"only a model has":                       {meter: "ipmi", rapl: answering{kind: power.Package, source: power.Modeled, listed: true, at: now}, waits: true},
		"a zone is listed, and not read":         {meter: "ipmi", sensor: answering{kind: power.Platform, source: power.Measured, listed: true}, waits: true},
		"the whole machine's meter has answered": {meter: "http", sensor: answering{kind: power.Platform, source: power.Measured, listed: true, at: now}, rapl: answering{kind: power.Package, source: power.Measured, listed: true, at: now}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			n.useMeters(power.Member{Name: c.meter, Meter: &c.sensor}, power.Member{Name: "powercap", Meter: &c.rapl})
			n.start()
			e := &Embedded{scraper: n.s}
			assert.Equal(t, c.waits, e.Waits())
			attributed := power.Platform
			if c.rapl.listed {
				attributed = power.Package
			}
			for _, r := range e.Attributed() {
				assert.Equal(t, attributed, r.Zone.Kind)
			}
		})
	}
}
