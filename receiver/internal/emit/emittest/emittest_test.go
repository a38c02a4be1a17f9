// SPDX-License-Identifier: Apache-2.0

package emittest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

func TestDuplicateComparesResourceMetricAndAttributes(t *testing.T) {
	md := pmetric.NewMetrics()
	add := func(pid int64, metric string, attributes ...string) {
		rm := md.ResourceMetrics().AppendEmpty()
		rm.Resource().Attributes().PutInt("process.pid", pid)
		m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
		m.SetName(metric)
		p := m.SetEmptyGauge().DataPoints().AppendEmpty()
		p.SetTimestamp(1)
		for _, a := range attributes {
			p.Attributes().PutStr(a, "x")
		}
	}
	add(1, "process.power", "a", "b")
	add(2, "process.power", "a", "b")
	add(1, "process.power", "a")
	add(1, "process.energy", "a", "b")
	assert.NoError(t, Duplicate(md))
	add(1, "process.power", "b", "a")
	assert.ErrorContains(t, Duplicate(md), "process.power {process.pid=1} {a=x, b=x}")
}
