// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAHistoryIsDeterminedByItsSeed(t *testing.T) {
	w := CommonWeights()
	one, again, other := NewHistory(7, 100, w), NewHistory(7, 100, w), NewHistory(8, 100, w)
	assert.Equal(t, one, again)
	assert.NotEqual(t, one, other)
	assert.Equal(t, NewHistory(7, 50, w), one[:50], "a longer one begins with it")
}

func TestActsOccurInProportionToTheirWeights(t *testing.T) {
	count := map[Act]float64{}
	for _, e := range NewHistory(1, 100_000, Weights{Advance: 1, Fork: 3, Exit: 0}) {
		count[e.Act]++
	}
	assert.Len(t, count, 2)
	assert.InDelta(t, 25_000, count[Advance], 1000)
	assert.InDelta(t, 75_000, count[Fork], 1000)
}

// Shrinking a failing history relies on this.
func TestALifeRecordsEverythingThatExisted(t *testing.T) {
	for _, skip := range []int{0, 2, 3, 5} {
		l := NewLife(machineOf(t, rising(), rising()))
		l.MaxTasks = 12
		containers, most := map[string]bool{}, 0
		for i, e := range NewHistory(3, 3000, CommonWeights()) {
			if skip > 0 && i%skip == 0 {
				continue
			}
			l.Apply(e)
			l.Step(time.Millisecond)
			for _, task := range l.Tasks {
				p := task.Shown()
				if task.Zombie {
					continue
				}
				assert.True(t, l.Programs[Program{task.PID, p.Start, path.Base(p.Exe)}], "%+v", p)
				assert.True(t, l.Programs[Program{task.PID, p.Start, p.Comm}], "%+v", p)
			}
			most = max(most, len(l.Tasks))
		}
		l.Each(func(c *Container) {
			containers[c.ID] = true
			if c.Pod != "" {
				assert.True(t, l.Pods[c.Pod])
			}
		})
		assert.Equal(t, 12, most)
		assert.Equal(t, containers, l.Containers)
		assert.Greater(t, len(containers), 20)
		assert.NotEmpty(t, l.VMs)
		assert.Greater(t, len(l.Programs), 200)
	}
}
