// SPDX-License-Identifier: Apache-2.0

package power_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

func TestAMachineWithoutCountersIsSearchedOnceAMinute(t *testing.T) {
	var searched []int
	second := 0
	f := power.CounterFiles{Meter: "test", Discover: func() power.TakeOver {
		searched = append(searched, second)
		return func() error { return power.ErrNoZones }
	}}
	for ; second < 300; second++ {
		_, err := f.Read(power.Sample{At: time.Unix(int64(second), 0)})
		require.ErrorIs(t, err, power.ErrNoZones)
	}
	assert.Equal(t, []int{0, 1, 2, 4, 8, 16, 32, 64, 124, 184, 244}, searched)
}
