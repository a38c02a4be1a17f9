// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestLibrariesArePolledTwiceInACollection(t *testing.T) {
	for interval, want := range map[time.Duration]time.Duration{
		10 * time.Second: time.Second, time.Second: 500 * time.Millisecond, 100 * time.Millisecond: 100 * time.Millisecond,
	} {
		c := Default()
		assert.Equal(t, want, c.GPU.interval(interval), interval)
	}
}
