// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/account"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/metadata"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// The attributes of points. metadata.MetricsInfo says which metric has which.
const (
	attrAccounting = "emissions.accounting"
	attrSignal     = "emissions.signal"
	attrCurrency   = "cost.currency"
	attrProvider   = "signal.provider"
	attrRegion     = "signal.region"
	attrEstimated  = "signal.estimated"
	attrStale      = "signal.stale"
)

// description is what metadata.yaml says of a metric. mdatagen generates none of it for processors.
type description struct{ text, unit string }

var descriptions = map[string]description{
	metadata.MetricsInfo.ElectricityCarbonIntensity.Name: {"Carbon intensity of electricity by which energy was last multiplied.", "g/(kW.h)"},
	metadata.MetricsInfo.ElectricityPrice.Name:           {"Price of electricity by which energy was last multiplied.", "{currency}/(kW.h)"},
	metadata.MetricsInfo.ElectricityPue.Name:             {"Power usage effectiveness by which energy was last multiplied.", "1"},
	metadata.MetricsInfo.HostEmbodiedEmissions.Name:      {"Embodied emissions of the machine, as a part of those of its whole life.", "g"},
}

func describe(m pmetric.Metric, name string) {
	m.SetName(name)
	m.SetDescription(descriptions[name].text)
	m.SetUnit(descriptions[name].unit)
}

// gauge is the gauge of a signal.
type gauge struct {
	is     account.Quantity
	name   string
	labels []label // besides those of quality

	shown bool        // the last point had a value
	last  signal.Mean // of the last point
}

// gauges are the gauges of the signals and the PUE, in a resource of their own.
type gauges struct {
	version string
	pue     float64
	showPUE bool
	signals []*gauge
	at      uint64 // of the last points
}

func newGauges(cfg *Config, version string, intensity, price *source) *gauges {
	g := &gauges{version: version, pue: cfg.PUE, showPUE: cfg.Metrics.ElectricityPue.Enabled && (intensity != nil || price != nil)}
	add := func(is account.Quantity, name string, s *source, labels ...label) {
		labels = append(labels, label{attrProvider, s.provider})
		if s.region != "" {
			labels = append(labels, label{attrRegion, s.region})
		}
		g.signals = append(g.signals, &gauge{is: is, name: name, labels: labels})
	}
	if intensity != nil && cfg.Metrics.ElectricityCarbonIntensity.Enabled {
		add(account.Emissions, metadata.MetricsInfo.ElectricityCarbonIntensity.Name, intensity,
			label{attrAccounting, intensity.accounting}, label{attrSignal, intensity.basis})
	}
	if price != nil && cfg.Metrics.ElectricityPrice.Enabled {
		add(account.Cost, metadata.MetricsInfo.ElectricityPrice.Name, price, label{attrCurrency, price.currency})
	}
	return g
}

// add adds the values of an interval that is later than the last one.
func (g *gauges) add(md pmetric.Metrics, of *account.Spell) {
	if of.Until <= g.at || len(g.signals) == 0 && !g.showPUE {
		return
	}
	g.at = of.Until
	sm := pmetric.NewScopeMetrics()
	sm.Scope().SetName(metadata.ScopeName)
	sm.Scope().SetVersion(g.version)
	at := pcommon.Timestamp(of.Until)
	for _, s := range g.signals {
		s.add(sm.Metrics(), of, at)
	}
	if g.showPUE {
		point(sm.Metrics(), metadata.MetricsInfo.ElectricityPue.Name, at).SetDoubleValue(g.pue)
	}
	if sm.Metrics().Len() > 0 {
		sm.MoveTo(md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty())
	}
}

// add adds the signal's value. A value whose attributes or existence has changed ends with a point without a value, in a metric of
// its own: the collector's Prometheus exporter reads no point of a metric after the first of that kind.
func (g *gauge) add(into pmetric.MetricSlice, of *account.Spell, at pcommon.Timestamp) {
	mean, known := of.Means[g.is], of.Known[g.is]
	if g.shown && (!known || mean.Estimated != g.last.Estimated || mean.Stale != g.last.Stale) {
		p := point(into, g.name, at)
		p.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
		g.label(p, g.last)
	}
	if g.shown, g.last = known, mean; known {
		p := point(into, g.name, at)
		p.SetDoubleValue(float64(mean.Rate) / 1e6)
		g.label(p, mean)
	}
}

func (g *gauge) label(p pmetric.NumberDataPoint, quality signal.Mean) {
	attributes := p.Attributes()
	for _, l := range g.labels {
		attributes.PutStr(l.key, l.value)
	}
	attributes.PutBool(attrEstimated, quality.Estimated)
	attributes.PutBool(attrStale, quality.Stale)
}

// point appends a gauge with one point.
func point(into pmetric.MetricSlice, name string, at pcommon.Timestamp) pmetric.NumberDataPoint {
	m := into.AppendEmpty()
	describe(m, name)
	p := m.SetEmptyGauge().DataPoints().AppendEmpty()
	p.SetTimestamp(at)
	return p
}
