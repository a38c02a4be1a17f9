// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stores

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

func TestAnswersAreComparedRowByRow(t *testing.T) {
	q := Query{By: "container.id", Least: 1}
	var r result
	r.compare(&q, []series.Row{
		{Labels: map[string]string{"container_id": "a"}, Value: 60}, {Labels: map[string]string{"container_id": "a"}, Value: 50}, {Labels: map[string]string{"container_id": "new"}, Value: 5},
		{Labels: map[string]string{"container.id": "again"}, Value: 7},
	}, map[string]float64{"a": 100, "absent": 20, "little": 0.5, "again": 14}, map[string]bool{"again": true})
	assert.Equal(t, result{truth: 120.5, answer: 115, worst: 1, worstRow: "absent", missing: 1, extra: 1}, r)
}
