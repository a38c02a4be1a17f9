// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/connector/energyspans/internal/metadata"
)

// maxText is the maximum length of a value of an attribute, in bytes.
const maxText = 256

// bounded returns a text of at most maxText bytes.
func bounded(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ToValidUTF8(s, "")
}

// group is the key by which energy is summed. Empty values are absent.
type group struct {
	service, route, name string
	labels               string // values of the configured labels, with a separator after each
	overflow             bool
}

// separator separates the values of labels.
const separator = "\x00"

// series has the energy of each group in µJ.
type series struct {
	max    int
	labels []string
	start  time.Time
	of     map[group]uint64
}

// add adds energy to a group, or to the overflow series if there are too many.
func (s *series) add(g group, energy uint64) {
	if _, ok := s.of[g]; !ok && len(s.of) >= s.max {
		g = group{overflow: true}
	}
	s.of[g] += energy
}

// metrics returns all series as one sum.
func (s *series) metrics(now time.Time) pmetric.Metrics {
	md := pmetric.NewMetrics()
	sm := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty()
	sm.Scope().SetName(metadata.ScopeName)
	m := sm.Metrics().AppendEmpty()
	m.SetName("span.energy")
	m.SetUnit("J")
	m.SetDescription("Energy of CPU samples by the span and the route in which they were taken. A series without span.name is energy outside of spans.")
	sum := m.SetEmptySum()
	sum.SetIsMonotonic(true)
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	for g, energy := range s.of {
		p := sum.DataPoints().AppendEmpty()
		p.SetStartTimestamp(pcommon.NewTimestampFromTime(s.start))
		p.SetTimestamp(pcommon.NewTimestampFromTime(now))
		p.SetDoubleValue(float64(energy) / 1e6)
		s.putAttributes(p.Attributes(), &g)
	}
	return md
}

func (s *series) putAttributes(to pcommon.Map, g *group) {
	put := func(name, value string) {
		if value != "" {
			to.PutStr(name, value)
		}
	}
	put("service.name", g.service)
	put("span.name", g.name)
	if g.labels != "" {
		for i, value := range strings.Split(g.labels, separator)[:len(s.labels)] {
			put(s.labels[i], value)
		}
	}
	put("http.route", g.route)
	if g.overflow {
		to.PutBool("otel.metric.overflow", true)
	}
}
