// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

func TestGPUTimeIsDividedByMemory(t *testing.T) {
	const gib = 1 << 30
	for name, c := range map[string]struct {
		held []uint64
		want []units.CPUTime
	}{
		"3 GiB and 1 GiB":              {[]uint64{3 * gib, gib}, []units.CPUTime{75, 25}},
		"parts add up exactly":         {[]uint64{gib, gib, gib}, []units.CPUTime{33, 33, 34}},
		"a process without memory":     {[]uint64{0, gib}, []units.CPUTime{0, 100}},
		"memory that is not available": {[]uint64{math.MaxUint64, gib}, []units.CPUTime{0, 100}},
		"more memory than any GPU has": {[]uint64{maxMemory + 1, maxMemory}, []units.CPUTime{0, 100}},
	} {
		parts := make([]units.CPUTime, len(c.held))
		assert.True(t, ByMemory(parts, 100, c.held), name)
		assert.Equal(t, c.want, parts, name)
	}
	parts := []units.CPUTime{7, 7}
	assert.False(t, ByMemory(parts, 100, []uint64{0, math.MaxUint64}))
	assert.Equal(t, []units.CPUTime{7, 7}, parts, "there is no weight")
}
