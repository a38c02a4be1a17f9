// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// pacedLoad has the windows of a pace for a time. It skips the share that skips returns.
type pacedLoad struct {
	pace   pace
	window time.Duration
	skips  func(raised bool) float64
	steps  []bool // each change
}

func newPacedLoad(normal, raised float64) *pacedLoad {
	return &pacedLoad{window: 100 * time.Millisecond, skips: func(r bool) float64 { return map[bool]float64{false: normal, true: raised}[r] }}
}

func (l *pacedLoad) run(duration time.Duration) {
	var owed float64 // windows to be skipped
	for passed := time.Duration(0); passed < duration; {
		share := l.skips(l.pace.raised)
		windows := int64(1)
		for owed += share / (1 - share); owed >= 1; owed-- {
			windows++
		}
		passed += time.Duration(windows) * l.window
		if !l.pace.observe(windows, l.window) {
			continue
		}
		before := l.pace.raised
		l.pace.judge()
		if l.pace.raised != before {
			l.steps = append(l.steps, l.pace.raised)
		}
	}
}

func TestWindowsThatAreKeptChangeNothing(t *testing.T) {
	l := newPacedLoad(0.04, 0)
	l.run(24 * time.Hour)
	assert.Empty(t, l.steps)
	assert.NoError(t, l.pace.err(""))
}

func TestSkippedWindowsRaiseThePriorityWithinSeconds(t *testing.T) {
	l := newPacedLoad(0.57, 0.01)
	l.run(4 * time.Second)
	assert.Equal(t, []bool{true}, l.steps)
	assert.True(t, l.pace.raised)
	assert.NoError(t, l.pace.err(realTimePriority), "they are kept")
}

func TestAfterACalmTimeThePriorityIsTakenBack(t *testing.T) {
	l := newPacedLoad(0.57, 0.01)
	l.run(30 * time.Second)
	assert.Equal(t, []bool{true}, l.steps)
	l.skips = func(bool) float64 { return 0 }
	l.run(2 * time.Minute)
	assert.Equal(t, []bool{true, false}, l.steps)
}

func TestUnderALastingLoadTriesBecomeRare(t *testing.T) {
	l := newPacedLoad(0.57, 0.05)
	l.run(24 * time.Hour)
	assert.Equal(t, []bool{true, false, true, false}, l.steps[:4])
	assert.Less(t, len(l.steps), 2*(24+8), "one try an hour in the end")
}

func TestMoreThanATenthSkippedIsAConditionWithHysteresis(t *testing.T) {
	l := newPacedLoad(0.57, 0)
	for _, c := range []struct {
		skips    float64
		reported bool
	}{{0.07, false}, {0.2, true}, {0.07, true}, {0.03, false}, {0.07, false}} {
		l.skips = func(raised bool) float64 { return map[bool]float64{false: 0.57, true: c.skips}[raised] }
		l.run(20 * time.Second)
		assert.Equal(t, c.reported, l.pace.err(highPriority) != nil, c)
	}
	assert.ErrorIs(t, (&pace{skips: true}).err(highPriority), errSkips)
	assert.ErrorIs(t, (&pace{skips: true}).err(realTimePriority), errLate)
}

func TestNoCalmWhileWindowsAreSkipped(t *testing.T) {
	l := newPacedLoad(0.57, 0.2)
	l.run(time.Hour)
	assert.Equal(t, []bool{true}, l.steps)
	assert.Error(t, l.pace.err(highPriority))
}
