// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/processor/emissions/grid"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal/provider"
)

// IntensityConfig selects the source of the carbon intensity: exactly one of Value to File.
type IntensityConfig struct {
	// Value is an intensity in g CO2e per kWh.
	Value configoptional.Optional[float64] `mapstructure:"value"`
	// Grid is a country or a cloud region in the table of yearly means.
	Grid string `mapstructure:"grid"`
	// ElectricityMaps and the following sources are polled.
	ElectricityMaps   configoptional.Optional[ElectricityMapsConfig]   `mapstructure:"electricity_maps"`
	WattTime          configoptional.Optional[WattTimeConfig]          `mapstructure:"watttime"`
	UKCarbonIntensity configoptional.Optional[UKCarbonIntensityConfig] `mapstructure:"uk_carbon_intensity"`
	Prometheus        configoptional.Optional[PrometheusConfig]        `mapstructure:"prometheus"`
	File              configoptional.Optional[FileConfig]              `mapstructure:"file"`

	// MaxAge is how long a value holds after its period, or after its file was written. 0 selects
	// the default of the source.
	MaxAge time.Duration `mapstructure:"max_age"`
	// Accounting is location or market, and Type average or marginal. Sources that determine them
	// accept no other value.
	Accounting string `mapstructure:"accounting"`
	Type       string `mapstructure:"type"`

	_ struct{}
}

const (
	location = "location"
	market   = "market"
	average  = "average"
	marginal = "marginal"
)

// intensitySource is a source of the carbon intensity.
type intensitySource struct {
	name          string // of the setting
	isSet         func(c *IntensityConfig) bool
	open          func(c *IntensityConfig, o *opening) (*source, error)
	intensityType string // average or marginal, at the location; empty if the user sets it
}

var intensitySources = []intensitySource{
	{
		"value", func(c *IntensityConfig) bool { return c.Value.HasValue() },
		func(c *IntensityConfig, _ *opening) (*source, error) { return openNumber(*c.Value.Get()) }, "",
	},
	{
		"grid", func(c *IntensityConfig) bool { return c.Grid != "" },
		func(c *IntensityConfig, o *opening) (*source, error) { return openGrid(c.Grid, o) }, average,
	},
	{
		"electricity_maps", func(c *IntensityConfig) bool { return c.ElectricityMaps.HasValue() },
		func(c *IntensityConfig, o *opening) (*source, error) { return c.ElectricityMaps.Get().open(o) }, average,
	},
	{
		"watttime", func(c *IntensityConfig) bool { return c.WattTime.HasValue() },
		func(c *IntensityConfig, o *opening) (*source, error) { return c.WattTime.Get().open(o) }, marginal,
	},
	{
		"uk_carbon_intensity", func(c *IntensityConfig) bool { return c.UKCarbonIntensity.HasValue() },
		func(c *IntensityConfig, o *opening) (*source, error) { return c.UKCarbonIntensity.Get().open(o) }, average,
	},
	{
		"prometheus", func(c *IntensityConfig) bool { return c.Prometheus.HasValue() },
		func(c *IntensityConfig, o *opening) (*source, error) { return c.Prometheus.Get().open(o) }, "",
	},
	{
		"file", func(c *IntensityConfig) bool { return c.File.HasValue() },
		func(c *IntensityConfig, o *opening) (*source, error) { return c.File.Get().open(o) }, "",
	},
}

func defaultIntensity() IntensityConfig {
	return IntensityConfig{
		ElectricityMaps:   configoptional.Default(ElectricityMapsConfig{ClientConfig: clientAt(provider.ElectricityMapsEndpoint)}),
		WattTime:          configoptional.Default(WattTimeConfig{ClientConfig: clientAt(provider.WattTimeEndpoint)}),
		UKCarbonIntensity: configoptional.Default(UKCarbonIntensityConfig{ClientConfig: clientAt(provider.UKCarbonIntensityEndpoint)}),
		Prometheus:        configoptional.Default(PrometheusConfig{ClientConfig: clientAt(""), PollInterval: prometheusInterval}),
	}
}

// UnmarshalScalar decodes a number in place of the section as Value.
func (c *IntensityConfig) UnmarshalScalar(value confmap.ScalarValue) error {
	if value.GetRaw() == nil {
		return confmap.ErrValueNotApplicable
	}
	var number float64
	if value.Unmarshal(&number) != nil { // its text is that of the decoder
		return fmt.Errorf("must be a number of g/kWh, or a section such as {grid: FRA}, is %v", value.GetRaw())
	}
	*c = IntensityConfig{Value: configoptional.Some(number)}
	return nil
}

// source returns the source that is set.
func (c *IntensityConfig) source() (*intensitySource, error) {
	set, names := map[string]bool{}, make([]string, len(intensitySources))
	var found *intensitySource
	for i := range intensitySources {
		s := &intensitySources[i]
		names[i] = s.name
		if set[s.name] = s.isSet(c); set[s.name] {
			found = s
		}
	}
	return found, onlyOne(set, names)
}

// Validate checks the section without contacting a provider. The error for an unknown grid lists similar names.
func (c *IntensityConfig) Validate() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...)))
	}
	s, err := c.source()
	if err != nil {
		errs = append(errs, err)
	}
	if c.Value.HasValue() {
		if _, err := parseRate(*c.Value.Get()); err != nil {
			wrong("value", "%w, is %v", err, *c.Value.Get())
		}
	}
	if c.Grid != "" {
		if _, err := grid.Lookup(c.Grid); err != nil {
			wrong("grid", "%w", err)
		}
	}
	if c.MaxAge < 0 {
		wrong("max_age", "must not be negative, is %v", c.MaxAge)
	}
	if c.Accounting != "" && c.Accounting != location && c.Accounting != market {
		wrong("accounting", "must be one of %s, %s, is %q", location, market, c.Accounting)
	}
	if c.Type != "" && c.Type != average && c.Type != marginal {
		wrong("type", "must be one of %s, %s, is %q", average, marginal, c.Type)
	}
	if err == nil && s.intensityType != "" {
		if c.Accounting != "" && c.Accounting != location {
			wrong("accounting", "must not be %s: %s provides the intensity of the location", c.Accounting, s.name)
		}
		if c.Type != "" && c.Type != s.intensityType {
			wrong("type", "must not be %s: %s provides the %s intensity", c.Type, s.name, s.intensityType)
		}
	}
	return errors.Join(errs...)
}

// open opens the carbon intensity. open does not wait for a provider.
func (c *IntensityConfig) open(ctx context.Context, host component.Host, set component.TelemetrySettings) (*source, error) {
	s, err := c.source()
	if err != nil {
		return nil, fmt.Errorf("intensity: %w", err)
	}
	opened, err := s.open(c, &opening{Context: ctx, host: host, set: set, maxAge: c.MaxAge})
	if err != nil {
		return nil, fmt.Errorf("intensity::%s: %w", s.name, err)
	}
	opened.accounting = cmp.Or(c.Accounting, location)
	opened.intensityType = cmp.Or(c.Type, s.intensityType, average)
	opened.plausibility.logger = set.Logger
	if rate, ok := opened.Signal.(signal.Constant); ok {
		opened.plausibility.check(signal.Rate(rate))
	}
	set.Logger.Info("Carbon intensity selected", zap.String("provider", opened.provider), zap.String("region", opened.region),
		zap.String("accounting", opened.accounting), zap.String("type", opened.intensityType))
	return opened, nil
}

// openNumber opens a number of the configuration.
func openNumber(value float64) (*source, error) {
	rate, err := parseRate(value)
	return &source{Signal: signal.Constant(rate), provider: "number"}, err
}

// openGrid opens an entry of the table and logs the year of its mean.
func openGrid(place string, o *opening) (*source, error) {
	p, err := grid.Lookup(place)
	if err != nil {
		return nil, err
	}
	year := "unknown"
	if p.Year != 0 {
		year = fmt.Sprint(p.Year)
	}
	o.set.Logger.Info("Carbon intensity is a yearly mean", zap.String("region", p.ID), zap.String("name", p.Name),
		zap.Float64("g_per_kWh", float64(p.Rate)/1e6), zap.String("year", year))
	return &source{Signal: signal.Constant(p.Rate), provider: "grid", region: p.ID}, nil
}
