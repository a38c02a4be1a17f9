// SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

func TestACorrectionHasBounds(t *testing.T) {
	for setting, values := range map[string]struct{ good, bad []any }{
		"lag":    {[]any{"0s", "5s", "2m"}, []any{"-1s", "121s", "soon", 5}},
		"factor": {[]any{0.1, 1, 1.19, 10}, []any{0, -1, 0.09, 10.1, math.NaN(), math.Inf(1)}},
		"offset": {[]any{-10000, -3, 0, 0.25, 10000}, []any{-10001, 10001, math.NaN()}},
	} {
		for _, meter := range []string{"ipmi", "hwmon", "redfish", "http/a"} {
			load := func(value any) error {
				section := map[string]any{setting: value}
				switch meter {
				case "redfish":
					section["endpoint"] = "https://bmc.example"
				case "http/a":
					section["endpoint"], section["unit"] = "http://a.example", "W"
				}
				cfg := Default()
				if err := confmap.NewFromStringMap(map[string]any{"meters": map[string]any{meter: section}}).Unmarshal(cfg); err != nil {
					return err
				}
				return confmap.Validate(cfg)
			}
			for _, value := range values.good {
				assert.NoError(t, load(value), "%s::%s: %v", meter, setting, value)
			}
			for _, value := range values.bad {
				assert.ErrorContains(t, load(value), setting, "%s::%s: %v", meter, setting, value)
			}
		}
	}
}

// Usage is kept for five minutes: with a longer poll interval the lag would have no effect.
func TestALagBoundsThePollInterval(t *testing.T) {
	for _, c := range []struct{ lag, poll, wrong string }{
		{"2m", "3m", ""},
		{"2m", "181s", "meters::ipmi::lag: of 2m0s requires a poll_interval of at most 3m0s, is 3m1s"},
		{"0s", "10m", ""},
	} {
		cfg := Default()
		require.NoError(t, confmap.NewFromStringMap(map[string]any{
			"meters": map[string]any{"ipmi": map[string]any{"lag": c.lag, "poll_interval": c.poll}},
		}).Unmarshal(cfg))
		if err := confmap.Validate(cfg); c.wrong == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, c.wrong)
		}
	}
}

func TestEachMeterHasItsOwnCorrection(t *testing.T) {
	cfg := Default()
	cfg.Meters.HTTP = map[component.ID]drivers.HTTPConfig{}
	for name, factor := range map[string]float64{"a": 2, "b": 3} {
		plug := drivers.HTTPConfig{CorrectionConfig: drivers.CorrectionConfig{Factor: factor}}
		cfg.Meters.HTTP[component.MustNewIDWithName("http", name)] = plug
	}
	cfg.Meters.Hwmon.Offset, cfg.Meters.IPMI.Lag = 4, time.Second
	for _, c := range []struct {
		meter string
		zone  power.Zone
		want  power.Correction
	}{
		{"http", power.Zone{ID: "http:a"}, power.Correction{Factor: 2_000_000}},
		{"http", power.Zone{ID: "http:b"}, power.Correction{Factor: 3_000_000}},
		{"hwmon", power.Zone{Kind: power.Platform}, power.Correction{Factor: 1_000_000, Offset: 4_000_000}},
		{"hwmon", power.Zone{Kind: power.Package}, power.Correction{}},
		{"ipmi", power.Zone{Kind: power.Platform}, power.Correction{Factor: 1_000_000, Lag: time.Second}},
	} {
		assert.Equal(t, c.want, cfg.Meters.Correction(c.meter)(&c.zone), "%s %s", c.meter, c.zone.ID)
	}
	assert.Nil(t, cfg.Meters.Correction("powercap"))
}
