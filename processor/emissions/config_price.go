// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// PriceConfig selects who tells the price: one of Value to File.
type PriceConfig struct {
	// Value is a price in units of the currency for each kWh. It may be negative.
	Value configoptional.Optional[float64] `mapstructure:"value"`
	// Tariff depends on the time of day and the day of the week.
	Tariff configoptional.Optional[TariffConfig] `mapstructure:"tariff"`
	// Prometheus and File are asked.
	Prometheus configoptional.Optional[PrometheusConfig] `mapstructure:"prometheus"`
	File       configoptional.Optional[FileConfig]       `mapstructure:"file"`

	// Currency is the ISO 4217 code of the currency.
	Currency string `mapstructure:"currency"`
	// Unit is what a price of Prometheus or of a file is for: kWh or MWh.
	Unit string `mapstructure:"unit"`
	// MaxAge is how long a value holds after its period, or after its file was written. 0 is the provider's default.
	MaxAge time.Duration `mapstructure:"max_age"`

	_ struct{}
}

// TariffConfig is a tariff of several prices.
type TariffConfig struct {
	// TimeZone is an IANA name, such as Europe/Berlin.
	TimeZone string `mapstructure:"time_zone"`
	// Value is the price at all other times. Without it the times must cover the week.
	Value configoptional.Optional[float64] `mapstructure:"value"`
	// Times have prices of their own.
	Times []TimesConfig `mapstructure:"times"`

	_ struct{}
}

// TimesConfig are hours of the day, on some days of the week or on all.
type TimesConfig struct {
	// From and Until are times of the day, such as 22:00. If Until is not after From, it is on the next day.
	From  string `mapstructure:"from"`
	Until string `mapstructure:"until"`
	// Days are those on which it begins, such as mon. All if it is empty.
	Days []string `mapstructure:"days"`
	// Value is the price.
	Value float64 `mapstructure:"value"`

	_ struct{}
}

// priceUnits are the values of unit.
var priceUnits = map[string]signal.Unit{"": signal.PerKWh, "kWh": signal.PerKWh, "MWh": signal.PerMWh}

// priceSource is one way to know the price.
type priceSource struct {
	name  string // of the setting
	isSet func(c *PriceConfig) bool
	open  func(c *PriceConfig, o *opening) (*source, error)
}

var priceSources = []priceSource{
	{
		"value", func(c *PriceConfig) bool { return c.Value.HasValue() },
		func(c *PriceConfig, o *opening) (*source, error) { return openNumber(*c.Value.Get(), o) },
	},
	{
		"tariff", func(c *PriceConfig) bool { return c.Tariff.HasValue() },
		func(c *PriceConfig, _ *opening) (*source, error) { return c.Tariff.Get().open() },
	},
	{
		"prometheus", func(c *PriceConfig) bool { return c.Prometheus.HasValue() },
		func(c *PriceConfig, o *opening) (*source, error) { return c.Prometheus.Get().open(o) },
	},
	{
		"file", func(c *PriceConfig) bool { return c.File.HasValue() },
		func(c *PriceConfig, o *opening) (*source, error) { return c.File.Get().open(o) },
	},
}

func defaultPrice() PriceConfig {
	return PriceConfig{
		Prometheus: configoptional.Default(PrometheusConfig{ClientConfig: clientAt(""), Interval: prometheusInterval}),
	}
}

// UnmarshalScalar refuses a number in place of the section: a price without a currency.
func (c *PriceConfig) UnmarshalScalar(value confmap.ScalarValue) error {
	if value.GetRaw() == nil {
		return confmap.ErrValueNotApplicable
	}
	return errors.New("must be a section such as {value: 0.31, currency: EUR}")
}

// source returns the source that is set.
func (c *PriceConfig) source() (*priceSource, error) {
	set, names := map[string]bool{}, make([]string, len(priceSources))
	var found *priceSource
	for i := range priceSources {
		s := &priceSources[i]
		names[i] = s.name
		if set[s.name] = s.isSet(c); set[s.name] {
			found = s
		}
	}
	return found, onlyOne(set, names)
}

// Validate checks what can be checked without asking a provider.
func (c *PriceConfig) Validate() error {
	var errs []error
	s, err := c.source()
	if err != nil {
		errs = append(errs, err)
	}
	if c.Value.HasValue() {
		if _, err := parseRate(*c.Value.Get(), signal.Prices); err != nil {
			errs = append(errs, fmt.Errorf("value: %w", err))
		}
	}
	if len(c.Currency) != 3 || strings.ContainsFunc(c.Currency, func(r rune) bool { return r < 'A' || r > 'Z' }) {
		errs = append(errs, fmt.Errorf("currency: must be an ISO 4217 code such as EUR, is %q", c.Currency))
	}
	switch _, ok := priceUnits[c.Unit]; {
	case !ok:
		errs = append(errs, fmt.Errorf("unit: must be one of kWh, MWh, is %q", c.Unit))
	case err == nil && c.Unit == "MWh" && (s.name == "value" || s.name == "tariff"):
		errs = append(errs, fmt.Errorf("unit: must not be MWh: %s is per kWh", s.name))
	}
	if c.MaxAge < 0 {
		errs = append(errs, fmt.Errorf("max_age: must not be negative, is %v", c.MaxAge))
	}
	return errors.Join(errs...)
}

// open opens the price. It does not wait for a provider.
func (c *PriceConfig) open(ctx context.Context, host component.Host, set component.TelemetrySettings) (*source, error) {
	s, err := c.source()
	if err != nil {
		return nil, fmt.Errorf("price: %w", err)
	}
	opened, err := s.open(c, &opening{
		Context: ctx, host: host, set: set, maxAge: c.MaxAge, in: signal.Prices, unit: priceUnits[c.Unit], currency: c.Currency,
	})
	if err != nil {
		return nil, fmt.Errorf("price::%s: %w", s.name, err)
	}
	opened.currency = c.Currency
	set.Logger.Info("Price selected", zap.String("provider", opened.provider), zap.String("currency", c.Currency))
	return opened, nil
}

// Validate checks the tariff.
func (c *TariffConfig) Validate() error {
	_, err := c.tariff()
	return err
}

func (c *TariffConfig) open() (*source, error) {
	tariff, err := c.tariff()
	return &source{Signal: tariff, provider: "tariff"}, err
}

// tariff returns the configured tariff.
func (c *TariffConfig) tariff() (*signal.Tariff, error) {
	zone, err := time.LoadLocation(c.TimeZone)
	if err != nil || c.TimeZone == "" || c.TimeZone == "Local" {
		return nil, fmt.Errorf("time_zone: must be a name such as Europe/Berlin, is %q", c.TimeZone)
	}
	var other *signal.Rate
	if c.Value.HasValue() {
		rate, err := parseRate(*c.Value.Get(), signal.Prices)
		if err != nil {
			return nil, fmt.Errorf("value: %w", err)
		}
		other = &rate
	}
	times := make([]signal.Times, len(c.Times))
	for i := range c.Times {
		if times[i], err = c.Times[i].times(); err != nil {
			return nil, fmt.Errorf("times::%d::%w", i, err)
		}
	}
	tariff, err := signal.NewTariff(zone, times, other)
	if err != nil {
		return nil, fmt.Errorf("times: %w", err)
	}
	return tariff, nil
}

// times returns the configured times. The error begins with the name of a setting.
func (c *TimesConfig) times() (t signal.Times, err error) {
	if t.From, err = signal.ParseClock(c.From); err != nil {
		return t, fmt.Errorf("from: %w, is %q", err, c.From)
	}
	if t.Until, err = signal.ParseClock(c.Until); err != nil {
		return t, fmt.Errorf("until: %w, is %q", err, c.Until)
	}
	for i, text := range c.Days {
		day, err := signal.ParseWeekday(text)
		if err != nil {
			return t, fmt.Errorf("days::%d: %w, is %q", i, err, text)
		}
		t.Days = append(t.Days, day)
	}
	if t.Rate, err = parseRate(c.Value, signal.Prices); err != nil {
		return t, fmt.Errorf("value: %w", err)
	}
	return t, nil
}
