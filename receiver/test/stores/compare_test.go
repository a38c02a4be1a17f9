// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stores

import (
	"testing"

	"github.com/stretchr/testify/assert"
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
