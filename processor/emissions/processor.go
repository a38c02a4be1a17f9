// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/account"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/metadata"
)

// emissionsProcessor adds emissions and cost to metrics of energy.
type emissionsProcessor struct {
	cfg *Config
	set processor.Settings
	now func() time.Time

	intensity, price *source // nil if it is not configured
	quantities       []quantity

	mu         sync.Mutex // of all below
	ids        identities
	names      names
	accounts   *account.Accounts
	embodied   *embodied // nil if it is not configured
	gauges     *gauges
	conditions conditions
	swept      time.Time // when what is silent was forgotten last
	telemetry  telemetry
}

func newEmissionsProcessor(cfg *Config, set processor.Settings) (*emissionsProcessor, error) {
	p := &emissionsProcessor{cfg: cfg, set: set, now: time.Now, ids: newIdentities()}
	p.names = names{ids: p.ids, all: map[string]*metricNames{}}
	p.conditions = conditions{logger: set.Logger, active: map[string]error{}}
	var err error
	p.telemetry, err = newTelemetry(set)
	return p, err
}

// start opens the signals. Energy that was used before does not count.
func (p *emissionsProcessor) start(ctx context.Context, host component.Host) (err error) {
	if c := p.cfg.Intensity.Get(); c != nil {
		if p.intensity, err = c.open(ctx, host, p.set.TelemetrySettings); err != nil {
			return err
		}
	}
	if c := p.cfg.Price.Get(); c != nil {
		if p.price, err = c.open(ctx, host, p.set.TelemetrySettings); err != nil {
			return errors.Join(err, p.closeSources())
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conditions.host = host
	p.swept = p.now()
	p.quantities = newQuantities(p.intensity, p.price)
	p.gauges = newGauges(p.cfg, p.set.BuildInfo.Version, p.intensity, p.price)
	o := account.Options{PUE: p.cfg.PUE, MaxSeries: p.cfg.MaxSeries, Since: p.swept}
	if p.intensity != nil {
		o.Signals[account.Emissions] = p.intensity.Signal
	}
	if p.price != nil {
		o.Signals[account.Cost] = p.price.Signal
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
	p.telemetry.builder.Shutdown() // before signals, and without the lock that its callbacks wait for
	return p.closeSources()
}

// closeSources ends what the signals do.
func (p *emissionsProcessor) closeSources() error {
	var errs []error
	for _, s := range []*source{p.intensity, p.price} {
		if s != nil && s.close != nil {
			errs = append(errs, s.close())
			s.close = nil
		}
	}
	return errors.Join(errs...)
}

// process adds emissions and cost to a batch of metrics. What the next consumer does with them changes nothing: the values are
// cumulative, and the same batch may come again.
func (p *emissionsProcessor) process(ctx context.Context, md pmetric.Metrics) (pmetric.Metrics, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	p.accounts.Begin(now)
	b := batch{emissionsProcessor: p, md: md, now: now}
	b.add()
	p.gauges.add(md, &p.accounts.Latest)
	p.telemetry.count(ctx, &b)
	p.tell(&b)
	p.sweep(now)
	return md, nil
}

// The conditions that are told by the counts of a batch.
var (
	errTooManySeries = errors.New("there are more series than max_series: those beyond have no emissions and no cost")
	errDelta         = errors.New("energy with delta temporality has no emissions and no cost: a cumulative counter is needed")
	errUnknown       = errors.New("not known for the time in which energy was used: that energy has no emissions or cost")
)

// tell tells what a batch has shown.
func (p *emissionsProcessor) tell(b *batch) {
	p.report(account.Emissions, "carbon intensity", p.intensity)
	p.report(account.Cost, "price", p.price)
	if b.skips[skipLimit] > 0 {
		p.conditions.set("series", errTooManySeries)
	}
	if b.skips[skipTemporality] > 0 {
		p.conditions.set("temporality", errDelta)
	}
}

// report reports whether a signal is known, as a condition.
func (p *emissionsProcessor) report(q account.Quantity, name string, s *source) {
	if s == nil {
		return
	}
	var err error
	if s.trouble != nil {
		err = s.trouble()
	}
	switch {
	case err != nil:
	case p.accounts.Missed[q] > 0:
		err = errUnknown
	case !p.accounts.Latest.Known[q]:
		return // there was no energy: what was told last still holds
	}
	p.conditions.set(name, err)
}

// sweep forgets what has been silent.
func (p *emissionsProcessor) sweep(now time.Time) {
	if now.Sub(p.swept) < p.cfg.ForgetAfter/4 {
		return
	}
	p.swept = now
	p.accounts.Forget(now.Add(-p.cfg.ForgetAfter))
	if p.embodied != nil {
		p.embodied.forget(now.Add(-p.cfg.ForgetAfter))
	}
	if p.accounts.Len() < p.cfg.MaxSeries {
		p.conditions.set("series", nil)
	}
}

// telemetry is the processor's internal telemetry, which metadata.yaml describes.
type telemetry struct {
	builder   *metadata.TelemetryBuilder
	processor attribute.KeyValue
	missed    [account.NumQuantities][]metric.AddOption
	skips     [numSkips][]metric.AddOption
}

func newTelemetry(set processor.Settings) (t telemetry, err error) {
	t.processor = attribute.String("processor", set.ID.String())
	with := func(key, value string) []metric.AddOption {
		return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(t.processor, attribute.String(key, value)))}
	}
	t.missed[account.Emissions] = with("quantity", metadata.AttributeQuantityEmissions.String())
	t.missed[account.Cost] = with("quantity", metadata.AttributeQuantityCost.String())
	for _, why := range metadata.MapAttributeSkipReason {
		t.skips[why] = with("skip.reason", why.String())
	}
	t.builder, err = metadata.NewTelemetryBuilder(set.TelemetrySettings)
	return t, err
}

// observe registers the callback of the number of series. It ends when the builder shuts down.
func (t *telemetry) observe(series func() int64) error {
	with := metric.WithAttributeSet(attribute.NewSet(t.processor))
	return t.builder.RegisterProcessorEmissionsSeriesCallback(func(_ context.Context, o metric.Int64Observer) error {
		o.Observe(series(), with)
		return nil
	})
}

// count counts what has no emissions or cost.
func (t *telemetry) count(ctx context.Context, b *batch) {
	for q, energy := range b.accounts.Missed {
		if energy > 0 {
			t.builder.ProcessorEmissionsUnaccountedEnergy.Add(ctx, float64(energy)/1e6, t.missed[q]...)
		}
	}
	for why, n := range b.skips {
		if n > 0 {
			t.builder.ProcessorEmissionsSkippedPoints.Add(ctx, n, t.skips[why]...)
		}
	}
}
