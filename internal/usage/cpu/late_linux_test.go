// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

func TestAListOfProcessesThatRunsOutOfTimeContinuesInTheNextScan(t *testing.T) {
	run := func(w *watched, source *Procfs) {
		source.list = guardListing(kernfs.GuardOptions[*listing]{Root: w.Root()}, 0)
		const last = 2*listStep + 50
		for pid := 100; pid < 100+last; pid++ {
			w.add(pid, hostsim.Process{Parent: 1})
		}
		w.scan()
		assert.Equal(w, listStep, w.table.Len())
		exits := w.table.Rows[listStep/2].PID
		w.reap(int(exits))
		for range 2 {
			slots := map[int32]int32{}
			for p := range w.table.All() {
				slots[p.PID] = p.Slot
			}
			delete(slots, exits)
			assert.True(w, w.table.Unseen.Hidden)
			w.pass()
			w.scan()
			for pid, slot := range slots {
				assert.Equal(w, slot, w.process(pid).Slot)
			}
			for i := range w.table.Ended {
				assert.Equal(w, exits, w.table.Ended[i].PID)
			}
		}
		assert.Equal(w, len(w.Processes), w.table.Len())
		assert.True(w, w.table.Unseen.Hidden, "a new process may have been where the list had begun")
		source.list.Job().most = listTime
		w.pass()
		w.scan()
		assert.False(w, w.table.Unseen.Hidden)
		assert.Equal(w, len(w.Processes), w.table.Len())
	}
	t.Run("procfs", func(t *testing.T) {
		w := watch(t)
		run(w, w.source)
	})
	t.Run("clocks", func(t *testing.T) {
		w := watchClocks(t)
		run(w, &w.clocks.Procfs)
		assert.Equal(t, w.table.Now, w.clocks.numbers.listed)
	})
}

// On a machine without a free CPU, the first reads of many processes take longer than a scan may wait.
func TestProcessesForWhichAScanHasNoTimeAreReadByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchClocks(t)
		w.clocks.first = guardFirstReads(kernfs.GuardOptions[*firstRead]{Root: w.Root(), Everywhere: true})
		for range 3 {
			w.scan()
			w.pass()
		}
		for pid := 100; pid < 120; pid++ { // numbers that a privileged process has chosen
			w.add(pid, hostsim.Process{Parent: 1})
		}
		w.Run(listAgain, nil)
		slow := w.path(110, "stat")
		restore := kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
			if filepath.Clean(path) == slow {
				time.Sleep(3 * time.Second) // in the Go scheduler, where threads wait for a CPU
			}
			return got, err
		})
		w.scan()
		assert.Less(t, len(w.table.Rows), len(w.Processes))
		assert.True(t, w.table.Unseen.Hidden)
		restore()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		w.pass()
		w.scan()
		assert.Equal(t, len(w.Processes), w.table.Len())
		assert.False(t, w.table.Unseen.Hidden)
		assert.NoError(t, w.clocks.Traits().Unread)
	})
}

func TestCPUTimeBeforeAScanFoundAProcessIsUntraced(t *testing.T) {
	w := watch(t)
	w.add(42, hostsim.Process{Parent: 1, User: 5})
	w.Run(10*time.Second, nil)
	require.NoError(t, w.Render())
	readable := w.unreadable(w.path(42, "stat"))
	w.next()
	require.Nil(t, w.table.Find(42))
	readable()
	w.Run(10*time.Second, map[int]int64{42: 300})
	w.scan()
	assert.Zero(t, w.used(42))
	assert.False(t, w.table.Unseen.Hidden)
	assert.GreaterOrEqual(t, w.table.Unseen.Untraced, 300*Tick)
	w.Run(10*time.Second, map[int]int64{42: 7})
	w.scan()
	assert.Equal(t, 7*Tick, w.used(42))
	assert.Zero(t, w.table.Unseen.Untraced)
}
