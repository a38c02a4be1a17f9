// SPDX-License-Identifier: Apache-2.0

package units

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSlackReportsAmpleAfterAMinute(t *testing.T) {
	type call struct {
		used, capacity int
		at             time.Duration
		ample          bool
	}
	for name, calls := range map[string][]call{
		"a burst":             {{100, 40_000, 0, false}, {100, 40_000, 59 * time.Second, false}, {100, 40_000, time.Minute, true}, {100, 40_000, time.Minute, false}},
		"filled again":        {{100, 40_000, 0, false}, {10_001, 40_000, 30 * time.Second, false}, {100, 40_000, time.Minute, false}, {100, 40_000, 2 * time.Minute, true}},
		"a quarter in use":    {{10_001, 40_000, 0, false}, {10_001, 40_000, time.Hour, false}},
		"a small table":       {{0, 1024, 0, false}, {0, 1024, time.Hour, false}},
		"collected each hour": {{100, 40_000, time.Hour, false}, {100, 40_000, 2 * time.Hour, true}},
	} {
		var s Slack
		for _, c := range calls {
			assert.Equal(t, c.ample, s.Ample(c.used, c.capacity, c.at), "%s at %v", name, c.at)
		}
	}
}
