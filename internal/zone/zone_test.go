// SPDX-License-Identifier: Apache-2.0

package zone

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPartsAreNotAddedToWhatContainsThem(t *testing.T) {
	for _, c := range []struct {
		names   []string
		besides string // of the last name
	}{
		{[]string{"package", "dram"}, ""},
		{[]string{"package", "core"}, "package"},
		{[]string{"package", "gpu"}, ""},
		{[]string{"package", "platform"}, "package"},
		{[]string{"platform", "gpu"}, "platform"},
		{[]string{"psys", "core"}, "psys"},
		{[]string{"psys", "gpu"}, ""},
		{[]string{"core"}, ""},
	} {
		last := c.names[len(c.names)-1]
		assert.Equal(t, c.besides, Besides(last, c.names), c.names)
	}
}

func TestTheOrderOfZones(t *testing.T) {
	names := []string{"platform", "gpu", "core", "dram", "package"}
	slices.SortFunc(names, Compare)
	assert.Equal(t, []string{"package", "dram", "gpu", "core", "platform"}, names)
}
