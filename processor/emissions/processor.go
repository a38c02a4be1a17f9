// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/energyreceiver/energyreceiver/internal/conditions"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/account"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/metadata"
)

// emissionsProcessor adds emissions to energy metrics.
type emissionsProcessor struct {
	cfg *Config
	set processor.Settings
	now func() time.Time

	intensity *source // nil if it is not configured
	labels    []label // of emissions

	mu         sync.Mutex // of all below
	ids        identities
	names      map[string]string // of emissions, by the name of the energy metric
	accounts   *account.Accounts
	embodied   *embodied // nil if it is not configured
	gauge      *gauge    // nil if it is disabled
	conditions *conditions.Conditions
	swept      time.Time // when silent series were last removed
	telemetry  telemetry
}

func newEmissionsProcessor(cfg *Config, set processor.Settings) (*emissionsProcessor, error) {
	p := &emissionsProcessor{cfg: cfg, set: set, now: time.Now, ids: newIdentities(), names: map[string]string{}}
	p.conditions = conditions.New("Emissions", set.Logger)
	var err error
	p.telemetry, err = newTelemetry(set)
	return p, err
}

// start opens the carbon intensity. Energy used before start does not count.
func (p *emissionsProcessor) start(ctx context.Context, host component.Host) (err error) {
	if c := p.cfg.Intensity.Get(); c != nil {
		if p.intensity, err = c.open(ctx, host, p.set.TelemetrySettings); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conditions.Host = host
	p.swept = p.now()
	o := account.Options{PUE: p.cfg.PUE, MaxSeries: p.cfg.MaxSeries, Since: p.swept}
	if p.intensity != nil {
		p.labels = labels(p.intensity)
		o.Signal = p.intensity.Signal
		if p.cfg.Metrics.ElectricityCarbonIntensity.Enabled {
			p.gauge = newGauge(p.set.BuildInfo.Version, p.intensity)
		}
	}
	p.accounts = account.New(o)
	if c := p.cfg.Embodied.Get(); c != nil && p.cfg.Metrics.HostEmbodiedEmissions.Enabled {
		p.embodied = newEmbodied(c, p.swept, p.cfg.MaxSeries)
	}
	return p.telemetry.observe(func() int64 {
		p.mu.Lock()
		defer p.mu.Unlock()
		return int64(p.accounts.Len())
	})
}

func (p *emissionsProcessor) shutdown(context.Context) error {
	p.telemetry.builder.Shutdown() // before the source, and without the lock that its callbacks wait for
	if p.intensity != nil && p.intensity.close != nil {
		p.intensity.close()
	}
	return nil
}

// process adds emissions to a batch of metrics. The result of the next consumer does not matter:
// values are cumulative, and a batch may be sent again.
func (p *emissionsProcessor) process(ctx context.Context, md pmetric.Metrics) (pmetric.Metrics, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	p.accounts.Begin(now)
	b := batch{emissionsProcessor: p, md: md, now: now}
	b.add()
	p.gauge.add(md, &p.accounts.Latest)
	p.telemetry.count(ctx, &b)
	p.reportConditions(&b)
	p.sweep(now)
	return md, nil
}

var (
	errTooManySeries = errors.New("there are more series than max_series: the others have no emissions")
	errDelta         = errors.New("energy with delta temporality has no emissions: cumulative counters are required")
	errUnknown       = errors.New("unknown for the time in which energy was used: that energy has no emissions")
)

// reportConditions reports conditions after a batch.
func (p *emissionsProcessor) reportConditions(b *batch) {
	p.reportIntensity()
	if b.skips[account.Full] > 0 {
		p.conditions.Set("series", errTooManySeries)
	}
	if b.skips[metadata.AttributeSkipReasonTemporality] > 0 {
		p.conditions.Set("temporality", errDelta)
	}
}

// reportIntensity reports whether a carbon intensity is available, as a condition.
func (p *emissionsProcessor) reportIntensity() {
	if p.intensity == nil {
		return
	}
	var err error
	if p.intensity.err != nil {
		err = p.intensity.err()
	}
	switch {
	case err != nil:
		err = fmt.Errorf("%s: %w", p.intensity.provider, err)
	case p.accounts.Missed > 0:
		err = errUnknown
	case !p.accounts.Latest.Known:
		return // there was no energy: the last condition still holds
	}
	if p.accounts.Latest.Known {
		p.intensity.plausibility.check(p.accounts.Latest.Mean.Rate)
	}
	p.conditions.Set("carbon intensity", err)
}

// sweep removes series that have been silent.
func (p *emissionsProcessor) sweep(now time.Time) {
	if now.Sub(p.swept) < p.cfg.MaxStaleness/4 {
		return
	}
	p.swept = now
	p.accounts.Forget(now.Add(-p.cfg.MaxStaleness))
	if p.embodied != nil {
		p.embodied.forget(now.Add(-p.cfg.MaxStaleness))
	}
	if p.accounts.Len() < p.cfg.MaxSeries {
		p.conditions.Set("series", nil)
	}
}

// telemetry is the processor's internal telemetry, which metadata.yaml describes.
type telemetry struct {
	builder *metadata.TelemetryBuilder
	own     metric.MeasurementOption
}

func newTelemetry(set processor.Settings) (t telemetry, err error) {
	t.own = metric.WithAttributes(attribute.String("processor", set.ID.String()))
	t.builder, err = metadata.NewTelemetryBuilder(set.TelemetrySettings)
	return t, err
}

// observe registers the callback of the number of series. It ends when the builder shuts down.
func (t *telemetry) observe(series func() int64) error {
	return t.builder.RegisterProcessorEmissionsSeriesCallback(func(_ context.Context, o metric.Int64Observer) error {
		o.Observe(series(), t.own)
		return nil
	})
}

// count counts energy and points without emissions.
func (t *telemetry) count(ctx context.Context, b *batch) {
	if b.accounts.Missed > 0 {
		t.builder.ProcessorEmissionsUnaccountedEnergy.Add(ctx, float64(b.accounts.Missed)/1e6, t.own)
	}
	for why, n := range b.skips {
		if n > 0 && account.Reason(why) != account.Counted {
			reason := attribute.String("skip.reason", account.Reason(why).String())
			t.builder.ProcessorEmissionsSkippedPoints.Add(ctx, n, t.own, metric.WithAttributes(reason))
		}
	}
}
