// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/energyreceiver/energyreceiver/connector/energyspans/internal/metadata"
	"github.com/energyreceiver/energyreceiver/internal/conditions"
)

// energySpans is the connector.
type energySpans struct {
	cfg     *Config
	next    consumer.Metrics
	now     func() time.Time
	release func() // removes the connector from the factory

	telemetry  *metadata.TelemetryBuilder
	id         attribute.KeyValue
	conditions *conditions.Conditions

	sending sync.Mutex // held while points are sent, so that they are sent in order

	mu      sync.Mutex // guards the fields below
	tracker *tracker
	flushed time.Time // when points were last sent
	foreign time.Time // when foreign energy was last dropped
}

func newEnergySpans(cfg *Config, set connector.Settings, next consumer.Metrics) (*energySpans, error) {
	telemetry, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	return &energySpans{
		cfg: cfg, next: next, now: time.Now, release: func() {},
		telemetry: telemetry, id: attribute.String("connector", set.ID.String()),
		conditions: conditions.New("Energy of spans", set.Logger), tracker: newTracker(cfg),
	}, err
}

// traces is the side of the connector that receives traces.
type traces struct{ *energySpans }

// profiles is the side of the connector that receives profiles.
type profiles struct{ *energySpans }

// Start implements component.Component.
func (t traces) Start(context.Context, component.Host) error {
	t.start()
	return nil
}

// Start implements component.Component.
func (p profiles) Start(_ context.Context, host component.Host) error {
	p.conditions.Host = host
	p.start()
	return nil
}

// start sets the start timestamp of the first series.
func (e *energySpans) start() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.flushed.IsZero() {
		e.flushed = e.now()
		e.tracker.stamp = e.flushed.Round(0)
	}
}

// Capabilities implements consumer.Traces and xconsumer.Profiles.
func (*energySpans) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

// Shutdown implements component.Component.
func (t traces) Shutdown(context.Context) error {
	t.release()
	return nil
}

// Shutdown implements component.Component. It sends all energy, because no more spans will arrive.
func (p profiles) Shutdown(ctx context.Context) error {
	p.release()
	p.mu.Lock()
	p.tracker.advance(p.now())
	p.tracker.forgetBefore(p.tracker.now.Add(1))
	p.mu.Unlock()
	p.sending.Lock()
	defer p.sending.Unlock()
	return p.flush(ctx)
}

// ConsumeTraces implements consumer.Traces.
func (t traces) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tracker.advance(t.now())
	t.tracker.store(td)
	t.countEvicted(ctx)
	return nil
}

// ConsumeProfiles implements xconsumer.Profiles. It does not return an error if points cannot be
// sent. The energy has been added and is part of the next points. If the batch were sent again, its
// energy would count twice.
func (p profiles) ConsumeProfiles(ctx context.Context, pd pprofile.Profiles) error {
	p.add(ctx, pd)
	if p.sending.TryLock() {
		defer p.sending.Unlock()
		if p.isDue() {
			p.conditions.Set("metrics", p.flush(ctx))
		}
	}
	return nil
}

// add adds the energy of profiles.
func (e *energySpans) add(ctx context.Context, pd pprofile.Profiles) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tracker.advance(e.now())
	b := newBatch(ctx, pd, e.cfg.Labels)
	b.each(e.tracker.add)
	e.report(ctx, b.dropped)
	e.countEvicted(ctx)
}

func (e *energySpans) isDue() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now().Sub(e.flushed) >= e.cfg.FlushInterval
}

// flush sends a point of each series. The caller holds sending.
func (e *energySpans) flush(ctx context.Context) error {
	e.mu.Lock()
	md := e.tracker.flush()
	flush := e.tracker.flushes
	e.flushed = e.tracker.now
	e.mu.Unlock()
	if md.DataPointCount() > 0 {
		if err := e.next.ConsumeMetrics(ctx, md); err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tracker.delivered = flush
	return nil
}

// countEvicted adds the evicted spans and waiting energy to the connector's own metrics.
func (e *energySpans) countEvicted(ctx context.Context) {
	if n := e.tracker.evicted; n > 0 {
		e.telemetry.ConnectorEnergyspansEvictedItems.Add(ctx, n, metric.WithAttributeSet(attribute.NewSet(e.id)))
		e.tracker.evicted = 0
	}
}
