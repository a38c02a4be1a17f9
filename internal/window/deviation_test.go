// SPDX-License-Identifier: Apache-2.0

package window

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

func TestDeviationDependsOnWhatIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		key    Key
		zone   power.Kind
		window time.Duration
		shared bool
		want   float64
	}{
		"long windows":                 {KeyCPUTime, power.Package, 10 * time.Second, false, 0.27},
		"longer ones":                  {KeyCPUTime, power.Package, time.Minute, false, 0.27},
		"short windows":                {KeyCPUTime, power.Package, 100 * time.Millisecond, false, 0.05},
		"shorter ones":                 {KeyCPUTime, power.Package, 10 * time.Millisecond, false, 0.05},
		"windows of a second":          {KeyCPUTime, power.Package, time.Second, false, 0.16},
		"windows in between":           {KeyCPUTime, power.Package, 316_227_766, false, 0.0894427}, // the geometric mean of 0.05 and 0.16
		"packages with the same users": {KeyCPUTime, power.Package, 10 * time.Second, true, 0.88},
		"by clock rate":                {KeyFrequency, power.Package, time.Second, true, 0.5},
		"by clock rate, own package":   {KeyFrequency, power.Package, 10 * time.Second, false, 0.27},
		"memory":                       {KeyCPUTime, power.DRAM, time.Second, false, 1.7},
		"memory by who holds it":       {KeyMemory, power.DRAM, time.Second, false, 1},
		"memory by who uses it":        {KeyMemoryCPUTime, power.DRAM, time.Second, true, 1},
		"a GPU":                        {KeyCPUTime, power.GPU, 10 * time.Second, false, 0.27},
	} {
		assert.InDelta(t, c.want, Deviation(c.key, c.zone, c.window, c.shared), 1e-6, name)
	}
}
