// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/account"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/metadata"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// The attributes of points. metadata.MetricsInfo lists the attributes of each metric.
const (
	attrAccounting = "emissions.accounting"
	attrType       = "carbon_intensity.type"
	attrProvider   = "carbon_intensity.provider.name"
	attrRegion     = "carbon_intensity.region"
	attrEstimated  = "carbon_intensity.estimated"
	attrStale      = "carbon_intensity.stale"
)

// description is a metric's description and unit in metadata.yaml. mdatagen does not generate them
// for processors.
type description struct{ text, unit string }

var descriptions = map[string]description{
	metadata.MetricsInfo.ElectricityCarbonIntensity.Name: {"Carbon intensity of electricity by which the energy of the last interval was multiplied.", "g/(kW.h)"},
	metadata.MetricsInfo.HostEmbodiedEmissions.Name:      {"Embodied emissions of the machine, in proportion to the elapsed part of its lifespan.", "g"},
}

func describe(m pmetric.Metric, name string) {
	m.SetName(name)
	m.SetDescription(descriptions[name].text)
	m.SetUnit(descriptions[name].unit)
}

// gauge is the gauge of the carbon intensity, in its own resource. It is nil if it is disabled.
type gauge struct {
	version string
	labels  []label // in addition to estimated and stale

	at    uint64      // of the last point
	shown bool        // the last point had a value
	last  signal.Mean // of the last point
}

func newGauge(version string, intensity *source) *gauge {
	labels := append(labels(intensity), label{attrProvider, intensity.provider})
	if intensity.region != "" {
		labels = append(labels, label{attrRegion, intensity.region})
	}
	return &gauge{version: version, labels: labels}
}

// add adds the carbon intensity of an interval that is later than the last interval. A series that
// ends, because an attribute changed or there is no intensity any more, ends with a point without a
// value in its own metric: the collector's Prometheus exporter reads no point of a metric after the
// first point without a value.
func (g *gauge) add(md pmetric.Metrics, of *account.Spell) {
	if g == nil || of.Until <= g.at {
		return
	}
	g.at = of.Until
	sm := pmetric.NewScopeMetrics()
	sm.Scope().SetName(metadata.ScopeName)
	sm.Scope().SetVersion(g.version)
	mean, at := of.Mean, pcommon.Timestamp(of.Until)
	if g.shown && (!of.Known || mean.Estimated != g.last.Estimated || mean.Stale != g.last.Stale) {
		g.point(sm.Metrics(), at, g.last).SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
	}
	if g.shown, g.last = of.Known, mean; of.Known {
		g.point(sm.Metrics(), at, mean).SetDoubleValue(float64(mean.Rate) / 1e6)
	}
	if sm.Metrics().Len() > 0 {
		sm.MoveTo(md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty())
	}
}

// point appends a metric with one point.
func (g *gauge) point(into pmetric.MetricSlice, at pcommon.Timestamp, quality signal.Mean) pmetric.NumberDataPoint {
	m := into.AppendEmpty()
	describe(m, metadata.MetricsInfo.ElectricityCarbonIntensity.Name)
	p := m.SetEmptyGauge().DataPoints().AppendEmpty()
	p.SetTimestamp(at)
	attributes := p.Attributes()
	for _, l := range g.labels {
		attributes.PutStr(l.key, l.value)
	}
	attributes.PutBool(attrEstimated, quality.Estimated)
	attributes.PutBool(attrStale, quality.Stale)
	return p
}
