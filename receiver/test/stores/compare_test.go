// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stores

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

func TestAnswersAreComparedRowByRow(t *testing.T) {
	q := Query{By: "container.id", Least: 1}
	var r result
	r.compare(&q, []row{
		{map[string]string{"container_id": "a"}, 60}, {map[string]string{"container_id": "a"}, 50}, {map[string]string{"container_id": "new"}, 5},
		{map[string]string{"container.id": "again"}, 7},
	}, map[string]float64{"a": 100, "absent": 20, "little": 0.5, "again": 14}, map[string]bool{"again": true})
	assert.Equal(t, result{truth: 134.5, answer: 122, worst: 1, worstRow: "absent", missing: 1, extra: 1}, r)
}

func TestTheTruthGoesOnWhereACounterBeganAgain(t *testing.T) {
	s, begin := new(Series), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	add := func(start, at time.Duration, value float64) {
		p := pmetric.NewNumberDataPoint()
		p.SetStartTimestamp(pcommon.NewTimestampFromTime(begin.Add(start)))
		p.SetTimestamp(pcommon.NewTimestampFromTime(begin.Add(at)))
		p.SetDoubleValue(value)
		s.add(p)
	}
	add(0, 0, 0)
	add(0, 10*time.Second, 5)
	add(0, 20*time.Second, 8)
	add(25*time.Second, 30*time.Second, 9) // more than before
	assert.Equal(t, 1, s.Resets)
	assert.InDelta(t, 17, s.Increase(begin, begin.Add(time.Minute)), 1e-12)
	assert.InDelta(t, 12, s.Increase(begin.Add(10*time.Second), begin.Add(30*time.Second)), 1e-12)
	assert.InDelta(t, 0, s.Increase(begin.Add(30*time.Second), begin.Add(time.Hour)), 1e-12)
}
