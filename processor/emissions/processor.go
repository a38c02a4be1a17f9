// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"context"
	"errors"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/processor"
)

// emissionsProcessor adds emissions and cost to metrics of energy.
type emissionsProcessor struct {
	cfg *Config
	set processor.Settings

	intensity, price *source // nil if it is not configured
}

func newEmissionsProcessor(cfg *Config, set processor.Settings) (*emissionsProcessor, error) {
	return &emissionsProcessor{cfg: cfg, set: set}, nil
}

// start opens the signals.
func (p *emissionsProcessor) start(ctx context.Context, host component.Host) (err error) {
	if c := p.cfg.Intensity.Get(); c != nil {
		if p.intensity, err = c.open(ctx, host, p.set.TelemetrySettings); err != nil {
			return err
		}
	}
	if c := p.cfg.Price.Get(); c != nil {
		p.price, err = c.open(ctx, host, p.set.TelemetrySettings)
	}
	return err
}

func (p *emissionsProcessor) shutdown(context.Context) error {
	var errs []error
	for _, s := range []*source{p.intensity, p.price} {
		if s != nil && s.close != nil {
			errs = append(errs, s.close())
		}
	}
	return errors.Join(errs...)
}

func (p *emissionsProcessor) process(_ context.Context, md pmetric.Metrics) (pmetric.Metrics, error) {
	return md, nil
}
