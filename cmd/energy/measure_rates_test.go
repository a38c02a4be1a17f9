// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
)

func TestTheGridIsAPlaceOrANumber(t *testing.T) {
	for text, want := range map[string]float64{"230": 230, "0": 0, "fr": 56.04} {
		o, err := parsed[measureOptions]([]string{"--grid", text, "--price", "0.3", "true"})
		require.NoError(t, err, text)
		assert.InDelta(t, want, *o.Rates.Grams, 0.5, text)
		assert.InDelta(t, 0.3, *o.Rates.Price, 0)
	}
	for _, wrong := range [][]string{{"--grid", "Atlantis"}, {"--grid", "-1"}, {"--price", "free"}, {"--price", "Inf"}, {"--by", "node"}, {"--by", "container"},
		{"--price", "1", "--runs", "2"}, {"--grid", "FRA", "--vs", "true"}} {
		_, err := parsed[measureOptions](append(wrong, "true"))
		assert.Error(t, err, "%v", wrong)
	}
	o, err := parsed[measureOptions]([]string{"--node", "--by", "container", "true"})
	require.NoError(t, err)
	assert.Equal(t, measure.ByContainer, o.By)
}
