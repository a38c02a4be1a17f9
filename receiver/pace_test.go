// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// pacedLoad has the windows of a pace for a time. It skips the share that skips returns for a step, and the thread uses the share of a
// CPU that busy returns.
type pacedLoad struct {
	pace   pace
	window time.Duration
	skips  func(step int) float64
	busy   func(step int) float64
	steps  []int // each change
}

func newPacedLoad(skips ...float64) *pacedLoad {
	return &pacedLoad{
		window: 100 * time.Millisecond,
		skips:  func(step int) float64 { return append(skips, 0)[min(step, len(skips))] },
		busy:   func(int) float64 { return 0 },
	}
}

func (l *pacedLoad) run(duration time.Duration) {
	var owed float64 // windows to be skipped
	for passed := time.Duration(0); passed < duration; {
		length := l.window << l.pace.doublings()
		share := l.skips(l.pace.step)
		windows := int64(1)
		for owed += share / (1 - share); owed >= 1; owed-- {
			windows++
		}
		passed += time.Duration(windows) * length
		if !l.pace.observe(windows, length) {
			continue
		}
		before := l.pace.step
		l.pace.judge(time.Duration(l.busy(before) * float64(l.pace.period.length)))
		if l.pace.step != before {
			l.steps = append(l.steps, l.pace.step)
		}
	}
}

func TestWindowsThatAreKeptChangeNothing(t *testing.T) {
	l := newPacedLoad(0.04)
	l.run(24 * time.Hour)
	assert.Empty(t, l.steps)
	assert.NoError(t, l.pace.err(""))
}

func TestSkippedWindowsRaiseThePriorityWithinSeconds(t *testing.T) {
	l := newPacedLoad(0.57, 0.01)
	l.run(4 * time.Second)
	assert.Equal(t, []int{1}, l.steps)
	assert.True(t, l.pace.raised())
	assert.Zero(t, l.pace.doublings())
	assert.NoError(t, l.pace.err(realTimePriority), "they are kept")
}

func TestWindowsGrowUntilTheyAreKept(t *testing.T) {
	l := newPacedLoad(0.57, 0.57, 0.4, 0.2)
	l.run(time.Minute)
	assert.Equal(t, []int{1, 2, 3}, l.steps)
	assert.Equal(t, 2, l.pace.doublings())
	assert.ErrorIs(t, l.pace.err(normalPriority), errLonger)
	assert.ErrorIs(t, l.pace.err(realTimePriority), errLate)
}

func TestWindowsGrowToABound(t *testing.T) {
	l := newPacedLoad()
	l.skips = func(int) float64 { return 0.9 }
	l.run(100 * 24 * time.Hour)
	assert.Equal(t, maxDoublings, l.pace.doublings())
}

func TestExpensiveWindowsAtRealTimePriorityGrow(t *testing.T) {
	l := newPacedLoad(0.57)
	l.busy = func(step int) float64 { return 0.3 / float64(int(1)<<max(0, step-1)) }
	l.run(50 * time.Second)
	assert.Equal(t, []int{1, 2, 3}, l.steps, "7.5 % of a CPU is little enough")
	assert.ErrorIs(t, l.pace.err(realTimePriority), errCostly)
}

func TestAfterACalmTimeThePaceGoesBack(t *testing.T) {
	l := newPacedLoad(0.57, 0.57, 0.57, 0.1)
	l.run(time.Minute)
	assert.Equal(t, []int{1, 2, 3}, l.steps)
	l.skips = func(int) float64 { return 0 }
	l.steps = nil
	l.run(5 * time.Minute)
	assert.Equal(t, []int{2, 1, 0}, l.steps, "a minute each")
	assert.NoError(t, l.pace.err(normalPriority))
	assert.Zero(t, l.pace.doublings())
}

func TestUnderALastingLoadTriesBecomeRare(t *testing.T) {
	l := newPacedLoad(0.57, 0.57, 0.05)
	l.run(24 * time.Hour)
	assert.Equal(t, []int{1, 2, 1, 2, 1, 2}, l.steps[:6])
	assert.Less(t, len(l.steps), 2*(24+8), "one try an hour in the end")
	assert.ErrorIs(t, l.pace.err(normalPriority), errLonger)
}

func TestAConditionLastsWhileShorterWindowsAreTried(t *testing.T) {
	l := newPacedLoad(0.57, 0.57, 0.05)
	for range 6 * 3600 { // the condition is looked at after each second
		l.run(time.Second)
		if len(l.steps) >= 2 {
			assert.ErrorIs(t, l.pace.err(normalPriority), errLonger)
		}
	}
	assert.Greater(t, len(l.steps), 6)
}

func TestMoreThanATenthSkippedIsAConditionWithHysteresis(t *testing.T) {
	l := newPacedLoad(0.57)
	for _, c := range []struct {
		skips    float64
		reported bool
	}{{0.07, false}, {0.2, true}, {0.07, true}, {0.03, false}, {0.07, false}} {
		l.skips = func(step int) float64 { return map[int]float64{0: 0.57, 1: c.skips}[step] }
		l.run(20 * time.Second)
		assert.Equal(t, c.reported, l.pace.err(highPriority) != nil, c)
	}
	assert.ErrorIs(t, (&pace{skips: true}).err(highPriority), errSkips)
	assert.ErrorIs(t, (&pace{skips: true}).err(realTimePriority), errLate)
}

func TestNoCalmWhileWindowsAreSkipped(t *testing.T) {
	l := newPacedLoad(0.57, 0.2)
	l.run(time.Hour)
	assert.Equal(t, []int{1}, l.steps)
	assert.Error(t, l.pace.err(highPriority))
}

func TestATimeWithoutWindowsIsCalm(t *testing.T) {
	l := newPacedLoad(0.57, 0.57)
	l.run(20 * time.Second)
	assert.Equal(t, 1, l.pace.doublings())
	for range 7 {
		l.pace.rest(10 * time.Second)
	}
	assert.Zero(t, l.pace.doublings())
}
