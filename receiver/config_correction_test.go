// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadatatest"
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
				cfg := config.Default()
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
		cfg := config.Default()
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
	cfg := config.Default()
	a, b := config.DefaultHTTPConfig(), config.DefaultHTTPConfig()
	a.Factor, b.Factor = 2, 3
	cfg.Meters.HTTP = map[component.ID]config.HTTPConfig{component.MustNewIDWithName("http", "a"): a, component.MustNewIDWithName("http", "b"): b}
	cfg.Meters.Hwmon.Offset, cfg.Meters.IPMI.Lag = 4, time.Second
	for _, c := range []struct {
		meter config.MeterKind
		zone  power.Zone
		want  power.Correction
	}{
		{config.MeterHTTP, power.Zone{ID: "http:a"}, power.Correction{Factor: 2_000_000}},
		{config.MeterHTTP, power.Zone{ID: "http:b"}, power.Correction{Factor: 3_000_000}},
		{config.MeterHwmon, power.Zone{Kind: power.Platform}, power.Correction{Factor: 1_000_000, Offset: 4_000_000}},
		{config.MeterHwmon, power.Zone{Kind: power.Package}, power.Correction{}},
		{config.MeterIPMI, power.Zone{Kind: power.Platform}, power.Correction{Factor: 1_000_000, Lag: time.Second}},
		{config.MeterPowercap, power.Zone{Kind: power.Package}, power.Correction{}},
	} {
		assert.Equal(t, c.want, cfg.Meters.Correction(c.meter, &c.zone), "%s %s", c.meter, c.zone.ID)
	}
}

// The BMC shows 100 W of 122 W.
func TestACorrectionIsAppliedLoggedAndCounted(t *testing.T) {
	n, tel := observedNode(t, func(cfg *Config) {
		cfg.Zones = []power.Kind{power.Platform}
		cfg.Meters.IPMI.Factor, cfg.Meters.IPMI.Offset = 1.25, -3
	})
	m := newPolledMeter(n, 5*time.Second, 0, 100)
	n.start()
	for range 10 {
		m.pass(10*time.Second, map[int]int64{1: 500})
		n.scrape()
	}
	assert.InDelta(t, 12_200, n.one("hw.host.energy").value, 1e-6)
	assert.InDelta(t, 12_200, n.sum("system.energy", nil), 1e-6)
	assert.InDelta(t, 122, n.one("hw.host.power").value, 1e-6)
	metadatatest.AssertEqualReceiverEnergyZoneFactor(t, tel, []metricdata.DataPoint[float64]{observed(1.25, "hw.id", "bmc")}, whenever)
	logged := n.logs.FilterMessage("Meter corrected").All()
	require.Len(t, logged, 1)
	assert.Equal(t, map[string]any{"meter": "ipmi", "zone": "bmc", "lag": time.Duration(0), "factor": 1.25, "offset": -3.0}, logged[0].ContextMap())
	assert.Empty(t, n.logged())
}
