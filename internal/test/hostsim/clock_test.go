// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAReadingHasIndependentWallAndMonotonicClocks(t *testing.T) {
	h := New(t.TempDir())
	before := h.Now()
	assert.True(t, before.Round(0).Equal(h.Booted.Add(h.Uptime)))

	h.Uptime += time.Minute
	h.ClockStep = -time.Hour
	after := h.Now()
	assert.Equal(t, time.Minute, after.Sub(before), "monotonic")
	assert.Equal(t, time.Minute-time.Hour, after.Round(0).Sub(before.Round(0)), "wall")

	h.Suspended = time.Minute
	assert.Zero(t, h.Now().Sub(before), "asleep")
	assert.Equal(t, time.Minute-time.Hour, h.Now().Round(0).Sub(before.Round(0)))
}
