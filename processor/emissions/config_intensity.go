// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/processor/emissions/grid"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal/provider"
)

// The settings of providers, for programs that set them in Go.
type (
	// ElectricityMapsConfig configures Electricity Maps.
	ElectricityMapsConfig = provider.ElectricityMaps
	// FileConfig configures a file with intensities.
	FileConfig = provider.File
	// PrometheusConfig configures a query of a Prometheus server.
	PrometheusConfig = provider.Prometheus
	// UKCarbonIntensityConfig configures the service of Great Britain's system operator.
	UKCarbonIntensityConfig = provider.UKCarbonIntensity
	// WattTimeConfig configures WattTime.
	WattTimeConfig = provider.WattTime
)

// IntensityConfig selects the source of the carbon intensity: exactly one of Value to File.
type IntensityConfig struct {
	// Value is an intensity in g CO2e per kWh.
	Value configoptional.Optional[float64] `mapstructure:"value"`
	// Grid is a country or a cloud region in the table of yearly means.
	Grid string `mapstructure:"grid"`
	// ElectricityMaps and the following fields are providers that are polled. A provider is selected by
	// its section, even an empty one.
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
)

func createDefaultIntensity() IntensityConfig {
	return IntensityConfig{
		ElectricityMaps:   configoptional.Default(provider.NewElectricityMaps()),
		WattTime:          configoptional.Default(provider.NewWattTime()),
		UKCarbonIntensity: configoptional.Default(provider.NewUKCarbonIntensity()),
		Prometheus:        configoptional.Default(provider.NewPrometheus()),
		File:              configoptional.Default(FileConfig{}),
	}
}

// choice is a source that the section may select.
type choice struct {
	name  string
	isSet bool
	// kind is average or marginal if the source determines it. Such a source provides the intensity of
	// the location. Otherwise kind is empty.
	kind     string
	settings provider.Settings // of a provider
}

func (c *IntensityConfig) choices() []choice {
	return []choice{
		{"value", c.Value.HasValue(), "", nil},
		{"grid", c.Grid != "", provider.Average, nil},
		{"electricity_maps", c.ElectricityMaps.HasValue(), provider.Average, c.ElectricityMaps.Get()},
		{"watttime", c.WattTime.HasValue(), provider.Marginal, c.WattTime.Get()},
		{"uk_carbon_intensity", c.UKCarbonIntensity.HasValue(), provider.Average, c.UKCarbonIntensity.Get()},
		{"prometheus", c.Prometheus.HasValue(), "", c.Prometheus.Get()},
		{"file", c.File.HasValue(), "", c.File.Get()},
	}
}

// UnmarshalScalar decodes a number in place of the section as Value.
func (c *IntensityConfig) UnmarshalScalar(value confmap.ScalarValue) error {
	if value.GetRaw() == nil {
		return confmap.ErrValueNotApplicable
	}
	var number float64
	if value.Unmarshal(&number) != nil { // the text of the error is the decoder's
		return fmt.Errorf("must be a number of g/kWh, or a section such as {grid: FRA}, is %v", value.GetRaw())
	}
	*c = IntensityConfig{Value: configoptional.Some(number)}
	return nil
}

// source returns the source that is set.
func (c *IntensityConfig) source() (found choice, err error) {
	var names []string
	for _, s := range c.choices() {
		names = append(names, s.name)
		switch {
		case !s.isSet:
		case found.isSet:
			return choice{}, fmt.Errorf("%s: must not be set together with %s", s.name, found.name)
		default:
			found = s
		}
	}
	if !found.isSet {
		err = fmt.Errorf("one of %s must be set: there is no default", strings.Join(names, ", "))
	}
	return found, err
}

// Validate checks the section without contacting a provider. The error for an unknown grid lists similar names.
func (c *IntensityConfig) Validate() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...)))
	}
	source, err := c.source()
	if err != nil {
		errs = append(errs, err)
	}
	if c.Value.HasValue() {
		if _, err := c.rate(); err != nil {
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
	switch accounting := cmp.Or(c.Accounting, location); {
	case accounting != location && accounting != market:
		wrong("accounting", "must be one of %s, %s, is %q", location, market, accounting)
	case accounting != location && source.kind != "":
		wrong("accounting", "must not be %s: %s provides the intensity of the location", accounting, source.name)
	}
	switch kind := cmp.Or(c.Type, source.kind, provider.Average); {
	case kind != provider.Average && kind != provider.Marginal:
		wrong("type", "must be one of %s, %s, is %q", provider.Average, provider.Marginal, kind)
	case source.kind != "" && kind != source.kind:
		wrong("type", "must not be %s: %s provides the %s intensity", kind, source.name, source.kind)
	}
	return errors.Join(errs...)
}

// rate returns Value as a rate.
func (c *IntensityConfig) rate() (signal.Rate, error) {
	return signal.Parse(strconv.FormatFloat(*c.Value.Get(), 'f', -1, 64), signal.GramsPerKWh)
}
