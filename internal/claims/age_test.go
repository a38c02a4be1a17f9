// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// A meter with a lag of two minutes that is read every four minutes still has its lag.
func TestAnOldReadingHasTheMaximumAge(t *testing.T) {
	now := time.Now()
	for age, want := range map[time.Duration]time.Duration{
		-time.Second: 0, 0: 0, time.Second: time.Second, 5 * time.Minute: 5 * time.Minute, 6 * time.Minute: 5 * time.Minute,
	} {
		assert.Equal(t, want, ageOf(&power.Reading{Zone: &power.Zone{}, At: now.Add(-age)}, now), age)
	}
}
