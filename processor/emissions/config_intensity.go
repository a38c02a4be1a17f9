// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
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
	// ElectricityMaps and the following fields are providers that are polled.
	ElectricityMaps   *ElectricityMapsConfig   `mapstructure:"electricity_maps"`
	WattTime          *WattTimeConfig          `mapstructure:"watttime"`
	UKCarbonIntensity *UKCarbonIntensityConfig `mapstructure:"uk_carbon_intensity"`
	Prometheus        *PrometheusConfig        `mapstructure:"prometheus"`
	File              *FileConfig              `mapstructure:"file"`

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

// providers returns the fields of providers by the names of their settings, and these names in order.
func (c *IntensityConfig) providers() (fields map[string]reflect.Value, names []string) {
	fields = map[string]reflect.Value{}
	for field, value := range reflect.ValueOf(c).Elem().Fields() {
		if field.Type.Implements(reflect.TypeFor[provider.Settings]()) {
			name := field.Tag.Get(confmap.MapstructureTag)
			fields[name], names = value, append(names, name)
		}
	}
	return fields, names
}

// Unmarshal implements confmap.Unmarshaler. A provider is selected by its section, even an empty one.
func (c *IntensityConfig) Unmarshal(conf *confmap.Conf) error {
	fields, _ := c.providers()
	for name, field := range fields {
		if conf.IsSet(name) {
			field.Set(reflect.New(field.Type().Elem()))
			field.Interface().(provider.Settings).SetDefaults()
		}
		if conf.Get(name) == nil {
			conf.Delete(name)
		}
	}
	return conf.Unmarshal(c)
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

// source returns the name of the source that is set, and its settings if it is a provider.
func (c *IntensityConfig) source() (found string, settings provider.Settings, err error) {
	fields, names := c.providers()
	names = append([]string{"value", "grid"}, names...)
	for _, name := range names {
		field, isProvider := fields[name]
		switch {
		case name == "value" && !c.Value.HasValue(), name == "grid" && c.Grid == "", isProvider && field.IsNil():
			continue
		case found != "":
			return "", nil, fmt.Errorf("%s: must not be set together with %s: nothing is mixed", name, found)
		case isProvider:
			settings = field.Interface().(provider.Settings)
		}
		found = name
	}
	if found == "" {
		return "", nil, fmt.Errorf("one of %s must be set: there is no default", strings.Join(names, ", "))
	}
	return found, settings, nil
}

// typeOf returns the type of the intensities of a source, average or marginal. It is empty if the
// user sets the type.
func typeOf(source string, settings provider.Settings) string {
	switch {
	case settings != nil:
		return settings.Type()
	case source == "grid":
		return provider.Average
	}
	return ""
}

// Validate checks the section without contacting a provider. The error for an unknown grid lists similar names.
func (c *IntensityConfig) Validate() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...)))
	}
	source, settings, err := c.source()
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
	provided := typeOf(source, settings)
	switch accounting := cmp.Or(c.Accounting, location); {
	case accounting != location && accounting != market:
		wrong("accounting", "must be one of %s, %s, is %q", location, market, accounting)
	case accounting != location && provided != "":
		wrong("accounting", "must not be %s: %s provides the intensity of the location", accounting, source)
	}
	switch kind := cmp.Or(c.Type, provided, provider.Average); {
	case kind != provider.Average && kind != provider.Marginal:
		wrong("type", "must be one of %s, %s, is %q", provider.Average, provider.Marginal, kind)
	case provided != "" && kind != provided:
		wrong("type", "must not be %s: %s provides the %s intensity", kind, source, provided)
	}
	return errors.Join(errs...)
}

// rate returns Value as a rate.
func (c *IntensityConfig) rate() (signal.Rate, error) {
	return signal.Parse(strconv.FormatFloat(*c.Value.Get(), 'f', -1, 64), signal.GramsPerKWh)
}
