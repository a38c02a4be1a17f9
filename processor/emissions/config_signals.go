// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// IntensityConfig selects who tells the carbon intensity.
type IntensityConfig struct {
	// Value is an intensity in g CO2e for each kWh.
	Value float64 `mapstructure:"value"`
	// Accounting is location or market.
	Accounting string `mapstructure:"accounting"`
	// Signal is average or marginal.
	Signal string `mapstructure:"signal"`

	_ struct{}
}

// PriceConfig selects who tells the price.
type PriceConfig struct {
	// Value is a price in units of the currency for each kWh. It may be negative.
	Value float64 `mapstructure:"value"`
	// Currency is the ISO 4217 code of the currency.
	Currency string `mapstructure:"currency"`

	_ struct{}
}

const (
	location = "location"
	market   = "market"
	average  = "average"
	marginal = "marginal"

	maxIntensity = 10_000 // g/kWh; lignite has some 1,200
	maxPrice     = 1e6
)

// Validate checks the intensity.
func (c *IntensityConfig) Validate() error {
	var errs []error
	if !within(c.Value, 0, maxIntensity) {
		errs = append(errs, fmt.Errorf("value: must be from 0 to %d g/kWh, is %v", maxIntensity, c.Value))
	}
	if c.Accounting != "" && c.Accounting != location && c.Accounting != market {
		errs = append(errs, fmt.Errorf("accounting: must be one of %s, %s, is %q", location, market, c.Accounting))
	}
	if c.Signal != "" && c.Signal != average && c.Signal != marginal {
		errs = append(errs, fmt.Errorf("signal: must be one of %s, %s, is %q", average, marginal, c.Signal))
	}
	return errors.Join(errs...)
}

// Validate checks the price.
func (c *PriceConfig) Validate() error {
	var errs []error
	if !within(c.Value, -maxPrice, maxPrice) {
		errs = append(errs, fmt.Errorf("value: must be from %v to %v, is %v", -maxPrice, maxPrice, c.Value))
	}
	if len(c.Currency) != 3 || strings.ContainsFunc(c.Currency, func(r rune) bool { return r < 'A' || r > 'Z' }) {
		errs = append(errs, fmt.Errorf("currency: must be an ISO 4217 code such as EUR, is %q", c.Currency))
	}
	return errors.Join(errs...)
}

// source is a signal that was opened, and what is said of it in attributes.
type source struct {
	signal.Signal
	provider, region string // region is empty where there is none

	accounting, basis string // of an intensity: location or market, average or marginal
	currency          string // of a price

	// trouble returns why the signal may not be known now, nil if it is. Its text changes only with the reason. It is called after
	// each batch.
	trouble func() error
	// close ends what the signal does on goroutines of its own.
	close func() error
}

// open opens the carbon intensity. It does not wait for a provider.
func (c *IntensityConfig) open(_ context.Context, _ component.Host, _ component.TelemetrySettings) (*source, error) {
	return &source{
		Signal: constant(math.Round(c.Value * 1e6)), provider: "number",
		accounting: withDefault(c.Accounting, location), basis: withDefault(c.Signal, average),
	}, nil
}

// open opens the price. It does not wait for a provider.
func (c *PriceConfig) open(_ context.Context, _ component.Host, _ component.TelemetrySettings) (*source, error) {
	return &source{Signal: constant(math.Round(c.Value * 1e6)), provider: "number", currency: c.Currency}, nil
}

func withDefault(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// constant is a rate that never changes.
type constant signal.Rate

// Mean returns the rate.
func (c constant) Mean(_, _ time.Time) (m signal.Mean, ok bool) {
	return signal.Mean{Rate: signal.Rate(c)}, true
}
