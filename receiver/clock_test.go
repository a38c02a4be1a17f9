// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestNoPointIsOlderThanItsStartAfterTheWallClockSteppedBack(t *testing.T) {
	n := newTestNode(t)
	n.start()
	n.run(10*joule, nil)
	before := n.one("hw.energy")
	n.s.windows.Timeline.Stamp = n.s.windows.Timeline.Stamp.Add(time.Hour) // the wall clock is an hour behind the last stamp
	n.run(10*joule, nil)
	n.newborn(10)
	n.run(10*joule, map[int]int64{10: 100})
	for _, metric := range []string{"hw.energy", "system.energy", "process.energy"} {
		for _, p := range n.points(metric, nil) {
			assert.False(t, p.at.Before(p.start), metric)
			assert.True(t, p.at.After(before.at.Add(time.Hour)), metric)
		}
	}
	assert.Equal(t, before.start, n.one("hw.energy").start)
	assert.Equal(t, before.at.Add(time.Hour+10*time.Second), n.one("hw.energy").at, "half speed")
	assert.False(t, n.one("process.energy", pid(10)).start.Before(before.at.Add(time.Hour)))
}
