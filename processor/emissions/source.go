// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"cmp"
	"context"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/processor/emissions/grid"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal/provider"
)

// source is an opened carbon intensity with its attributes.
type source struct {
	signal.Signal
	provider, region string // region is empty if the provider has none

	accounting    string // location or market
	intensityType string // average or marginal

	// err returns why the current intensity may be missing, or nil. Its text changes only with
	// the reason. It may be nil.
	err func() error
	// plausibility checks the values in use.
	plausibility plausibility
	// close stops polling. It may be nil.
	close func()
}

// open opens the carbon intensity. It does not wait for a provider.
func (c *IntensityConfig) open(ctx context.Context, host component.Host, set component.TelemetrySettings) (*source, error) {
	found, err := c.source()
	if err != nil {
		return nil, fmt.Errorf("intensity: %w", err)
	}
	s := &source{
		provider: found.name, accounting: cmp.Or(c.Accounting, location), plausibility: plausibility{logger: set.Logger},
		intensityType: cmp.Or(c.Type, found.kind, provider.Average),
	}
	switch {
	case found.settings != nil:
		err = s.poll(found.settings, &provider.Opening{Context: ctx, Host: host, Telemetry: set, MaxAge: c.MaxAge})
	case c.Grid != "":
		err = s.lookup(c.Grid, set.Logger)
	default:
		s.provider = "number"
		var rate signal.Rate
		rate, err = c.rate()
		s.Signal = signal.Constant(rate)
	}
	if err != nil {
		return nil, fmt.Errorf("intensity::%s: %w", found.name, err)
	}
	if rate, ok := s.Signal.(signal.Constant); ok {
		s.plausibility.check(signal.Rate(rate))
	}
	set.Logger.Info("Carbon intensity selected", zap.String("provider", s.provider), zap.String("region", s.region),
		zap.String("accounting", s.accounting), zap.String("type", s.intensityType))
	return s, nil
}

// poll opens a provider and starts to poll it.
func (s *source) poll(settings provider.Settings, o *provider.Opening) error {
	opened, err := settings.Open(o)
	if err != nil {
		return err
	}
	poller := signal.Poll(opened.Provider, opened.Options)
	s.Signal, s.region, s.err, s.close = poller, opened.Region, poller.Err, poller.Close
	return nil
}

// lookup uses an entry of the table of yearly means, and logs its year.
func (s *source) lookup(place string, logger *zap.Logger) error {
	p, err := grid.Lookup(place)
	if err != nil {
		return err
	}
	year := "unknown"
	if p.Year != 0 {
		year = fmt.Sprint(p.Year)
	}
	logger.Info("Carbon intensity is a yearly mean", zap.String("region", p.ID), zap.String("name", p.Name),
		zap.Float64("g_per_kWh", float64(p.Rate)/1e6), zap.String("year", year))
	s.Signal, s.region = signal.Constant(p.Rate), p.ID
	return nil
}
