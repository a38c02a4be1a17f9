// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// passWindows has a pace observe windows of 100 ms for a time, of which a share is missed.
func passWindows(p *pace, duration time.Duration, share float64) {
	const window = 100 * time.Millisecond
	var owed float64 // windows to be missed
	for passed := time.Duration(0); passed < duration; {
		windows := int64(1)
		for owed += share / (1 - share); owed >= 1; owed-- {
			windows++
		}
		p.observe(windows, window)
		passed += time.Duration(windows) * window
	}
}

func TestMoreThanATenthOfMissedWindowsIsAConditionWithHysteresis(t *testing.T) {
	var p pace
	for _, c := range []struct {
		missed   float64
		reported bool
	}{{0, false}, {0.07, false}, {0.2, true}, {0.07, true}, {0.03, false}, {0.07, false}, {0.6, true}, {0, false}} {
		passWindows(&p, 20*time.Second, c.missed)
		assert.Equal(t, c.reported, p.err() != nil, c)
	}
}

func TestAFewMissedWindowsAreNotJudged(t *testing.T) {
	var p pace
	passWindows(&p, 9*time.Second, 0.5)
	assert.NoError(t, p.err(), "a period is longer")
	p = pace{}
	p.observe(10, 10*time.Second)
	assert.NoError(t, p.err(), "a period has more windows")
	p.observe(10, 10*time.Second)
	assert.ErrorIs(t, p.err(), ErrMissed)
}
