// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"context"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/energyreceiver/energyreceiver/connector/energyspans/internal/metadata"
)

// energySpans is the connector. The energy of all its series and of what waits for a span is that of all
// profiles, in whole microjoules.
type energySpans struct {
	cfg     *Config
	next    consumer.Metrics
	now     func() time.Time
	release func() // of the factory

	telemetry *metadata.TelemetryBuilder
	own       metric.MeasurementOption

	mu      sync.Mutex
	spans   spans
	series  series
	waiting []waiting // in the order of arrival
	flushed time.Time
}

// waiting is energy of samples whose span is not known yet.
type waiting struct {
	since time.Time
	span  spanID
	group group // without a span
	µJ    uint64
}

func newEnergySpans(cfg *Config, set connector.Settings, next consumer.Metrics) (*energySpans, error) {
	telemetry, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	return &energySpans{
		telemetry: telemetry, own: metric.WithAttributeSet(attribute.NewSet(attribute.String("connector", set.ID.String()))),
		cfg: cfg, next: next, now: time.Now, release: func() {},
		spans:  spans{wait: cfg.Wait, max: cfg.MaxSpans, of: map[spanID]span{}},
		series: series{max: cfg.MaxSeries, labels: cfg.Labels, of: map[group]uint64{}},
	}, err
}

// traces is the side of the connector that receives traces.
type traces struct{ *energySpans }

// profiles is the side of the connector that receives profiles.
type profiles struct{ *energySpans }

// Start implements component.Component.
func (e *energySpans) Start(context.Context, component.Host) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.series.start.IsZero() {
		e.series.start = e.now()
		e.flushed = e.series.start
	}
	return nil
}

// Capabilities implements consumer.Traces and xconsumer.Profiles.
func (*energySpans) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

// Shutdown implements component.Component.
func (traces) Shutdown(context.Context) error { return nil }

// Shutdown implements component.Component. It sends all energy: no names come any more.
func (p profiles) Shutdown(ctx context.Context) error {
	p.mu.Lock()
	p.resolve(true)
	md := p.flush(p.now())
	p.mu.Unlock()
	p.release()
	return p.send(ctx, md)
}

// ConsumeTraces implements consumer.Traces.
func (t traces) ConsumeTraces(_ context.Context, td ptrace.Traces) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spans.learn(td, t.now())
	return nil
}

// ConsumeProfiles implements xconsumer.Profiles.
func (p profiles) ConsumeProfiles(ctx context.Context, pd pprofile.Profiles) error {
	p.mu.Lock()
	p.add(ctx, pd)
	p.resolve(false)
	p.spans.expire(p.now())
	var md pmetric.Metrics
	if now := p.now(); now.Sub(p.flushed) >= p.cfg.FlushInterval {
		md = p.flush(now)
	}
	p.mu.Unlock()
	return p.send(ctx, md)
}

// flush returns the series, which the caller sends.
func (e *energySpans) flush(now time.Time) pmetric.Metrics {
	e.flushed = now
	return e.series.metrics(now)
}

func (e *energySpans) send(ctx context.Context, md pmetric.Metrics) error {
	if md == (pmetric.Metrics{}) || md.DataPointCount() == 0 {
		return nil
	}
	return e.next.ConsumeMetrics(ctx, md)
}

// add adds the energy of profiles: that of samples with a link waits for the span.
func (e *energySpans) add(ctx context.Context, pd pprofile.Profiles) {
	type of struct {
		span  spanID
		group group
	}
	sums, dropped := map[of]uint64{}, int64(0)
	r := newReader(pd.Dictionary(), e.cfg.Labels)
	for _, rp := range pd.ResourceProfiles().All() {
		service := textOf(rp.Resource().Attributes(), "service.name")
		for _, sp := range rp.ScopeProfiles().All() {
			for _, profile := range sp.Profiles().All() {
				if !r.isEnergy(profile) {
					continue
				}
				for _, s := range profile.Samples().All() {
					µJ, ok := energyOf(s)
					if !ok {
						dropped++
						continue
					}
					sums[of{r.span(s), group{service: service, labels: r.labelsOf(s)}}] += µJ
				}
			}
		}
	}
	if dropped > 0 {
		e.telemetry.ConnectorEnergyspansDroppedSamples.Add(ctx, dropped, e.own)
	}
	now := e.now()
	for key, µJ := range sums {
		if key.span == (spanID{}) || len(e.waiting) >= e.cfg.MaxSpans {
			e.series.add(key.group, µJ)
			continue
		}
		e.waiting = append(e.waiting, waiting{now, key.span, key.group, µJ})
	}
}

// resolve moves energy to the series of its span once the span is known, and energy that has waited long
// enough to what is known. At the end it moves all.
func (e *energySpans) resolve(end bool) {
	now, kept := e.now(), e.waiting[:0]
	for _, w := range e.waiting {
		s, complete, ok := e.spans.entry(w.span)
		if !complete && !end && now.Sub(w.since) < e.cfg.Wait {
			kept = append(kept, w)
			continue
		}
		if ok {
			w.group = group{service: s.service, route: s.route, name: s.name, labels: w.group.labels}
		}
		e.series.add(w.group, w.µJ)
	}
	e.waiting = kept
}

// reader reads samples. Indices that are out of range are none.
type reader struct {
	d      pprofile.ProfilesDictionary
	labels []string
	keys   map[int32]int // label by index of an attribute
}

func newReader(d pprofile.ProfilesDictionary, labels []string) *reader {
	r := &reader{d: d, labels: labels, keys: map[int32]int{}}
	for i, a := range d.AttributeTable().All() {
		for j, label := range labels {
			if r.text(a.KeyStrindex()) == "process.context.label."+label {
				r.keys[int32(i)] = j
			}
		}
	}
	return r
}

func (r *reader) text(i int32) string {
	if i < 0 || int(i) >= r.d.StringTable().Len() {
		return ""
	}
	return r.d.StringTable().At(int(i))
}

// isEnergy reports whether a profile is one of energy, in microjoules.
func (r *reader) isEnergy(p pprofile.Profile) bool {
	return r.text(p.SampleType().TypeStrindex()) == "energy" && r.text(p.SampleType().UnitStrindex()) == "microjoules"
}

// span returns the span of a sample, the zero value if it has none.
func (r *reader) span(s pprofile.Sample) spanID {
	i := int(s.LinkIndex())
	if i < 0 || i >= r.d.LinkTable().Len() {
		return spanID{}
	}
	link := r.d.LinkTable().At(i)
	return spanID{link.TraceID(), link.SpanID()}
}

// labelsOf returns the values of the configured labels, none if the sample has none of them.
func (r *reader) labelsOf(s pprofile.Sample) string {
	var values []string
	for _, i := range s.AttributeIndices().All() {
		label, ok := r.keys[i]
		if !ok {
			continue
		}
		if values == nil {
			values = make([]string, len(r.labels))
		}
		values[label] = strings.ReplaceAll(bounded(r.d.AttributeTable().At(int(i)).Value().AsString()), separator, "")
	}
	if values == nil {
		return ""
	}
	return strings.Join(values, separator) + separator
}

// maxEnergy is the maximum energy of a sample in µJ: five kWh. A sum overflows after a million such samples.
const maxEnergy = 1 << 44

// energyOf returns the energy of a sample in µJ. ok is false, and the energy 0, if it is impossible.
func energyOf(s pprofile.Sample) (sum uint64, ok bool) {
	for _, v := range s.Values().All() {
		if v < 0 || v > maxEnergy || sum > maxEnergy {
			return 0, false
		}
		sum += uint64(v)
	}
	return sum, true
}
