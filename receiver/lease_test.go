// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
)

// lateStore is a storage extension whose writes hang, or take some time.
type lateStore struct {
	*memoryStorage
	hangs chan struct{} // nil: writes do not hang; closed: they fail
	takes time.Duration
}

func (s *lateStore) GetClient(context.Context, component.Kind, component.ID, string) (storage.Client, error) {
	return s, nil
}

func (s *lateStore) Set(ctx context.Context, key string, value []byte) error {
	if s.hangs != nil {
		<-s.hangs
		return errors.New("input/output error")
	}
	time.Sleep(s.takes)
	return s.memoryStorage.Set(ctx, key, value)
}

// lateNode returns a node with a lateStore.
func lateNode(t *testing.T) (*testNode, *lateStore) {
	n, s := keptNode(t)
	store := &lateStore{memoryStorage: s}
	n.extensions[storageID] = store
	require.NoError(t, n.host.Render())
	require.NoError(t, n.s.start(t.Context(), n))
	return n, store
}

// lease is the lease of a state of test nodes.
func (n *testNode) lease() time.Duration { return 6*time.Minute + n.s.cfg.CollectionInterval }

func TestACollectionIsWithheldWhileAnOlderStateCouldBeRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, store := lateNode(t)
		n.run(300*joule, map[int]int64{10: 500})
		sent := n.one("process.energy", pid(10))
		store.hangs = make(chan struct{})
		n.run(300*joule, map[int]int64{10: 500})
		assert.Empty(t, n.points("process.energy", nil))
		assert.Equal(t, []string{"Degraded storage"}, n.logged())

		n.passWithout(10*time.Second, 0, map[int]int64{20: 1000})
		n.extensions[storageID] = store.memoryStorage
		n.restart()
		n.scrape()
		restored := n.one("process.energy", pid(10))
		assert.Equal(t, sent.series, restored.series)
		assert.Greater(t, restored.value, sent.value)
		assert.InDelta(t, 600, n.one("hw.energy").value, 1e-6)
		close(store.hangs)
		synctest.Wait()
	})
}

func TestACollectionIsWithheldNoLongerThanALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, store := lateNode(t)
		n.run(300*joule, map[int]int64{10: 500})
		store.hangs = make(chan struct{})
		n.run(300*joule, map[int]int64{10: 500})
		n.passWithout(n.lease(), 0, map[int]int64{10: 500})
		n.run(300*joule, map[int]int64{10: 500})
		sent, node := n.one("process.energy", pid(10)), n.one("hw.energy")
		assert.InDelta(t, 900, node.value, 1e-6)

		n.passWithout(10*time.Second, 0, map[int]int64{20: 1000})
		n.extensions[storageID] = store.memoryStorage
		n.restart()
		n.scrape()
		assert.True(t, n.one("process.energy", pid(10)).start.After(sent.start), "its total may be lower")
		assert.True(t, n.one("hw.energy").start.After(node.start))
		assert.InDelta(t, 600, n.one("hw.energy").value, 1e-6, "since the state")
		close(store.hangs)
		synctest.Wait()
	})
}

func TestTotalsContinueInACrashLoop(t *testing.T) {
	n, _ := keptNode(t)
	n.start()
	n.run(300*joule, map[int]int64{10: 500})
	first := n.one("process.energy", pid(10))
	for range 3 {
		n.passWithout(n.s.cfg.CollectionInterval+5*time.Minute+30*time.Second, 0, map[int]int64{10: 500}) // the longest wait of Kubernetes
		n.restart()
		n.run(300*joule, map[int]int64{10: 500})
		assert.Equal(t, first.series, n.one("process.energy", pid(10)).series)
	}
	assert.InDelta(t, 4*300, n.one("hw.energy").value, 1e-6)
}

func TestAStoreThatIsAlwaysLateDelaysCollectionsByOneLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, store := lateNode(t)
		n.run(300*joule, map[int]int64{10: 500})
		store.takes = 7 * time.Second
		waited := 0
		for range 100 {
			n.run(300*joule, map[int]int64{10: 500})
			if len(n.points("process.energy", nil)) == 0 {
				waited++
			}
			time.Sleep(3 * time.Second) // until the store has written
		}
		assert.Positive(t, waited)
		assert.LessOrEqual(t, time.Duration(waited)*10*time.Second, n.lease())
		assert.InDelta(t, 300*101, n.one("hw.energy").value, 1e-6)
	})
}

func TestAStateThatCanBeNeitherReplacedNorRemovedIsNotRestored(t *testing.T) {
	n, s := keptNode(t)
	n.start()
	n.run(300*joule, map[int]int64{10: 500})
	readOnly := errors.New("read-only file system")
	n.extensions[storageID] = &brokenStorage{memoryStorage: s, set: readOnly, remove: readOnly}
	clear(n.finals)
	n.restart()
	n.run(300*joule, map[int]int64{10: 500})
	assert.NotContains(t, n.messages(), "Totals continue")
	assert.InDelta(t, 300, n.one("hw.energy").value, 1e-6, "the next restart may restore the state")
}

func TestADowntimeOfHoursLosesNothing(t *testing.T) {
	for name, killed := range map[string]bool{"after a shutdown": false, "after a crash": true} {
		t.Run(name, func(t *testing.T) {
			n, sink := lastNode(t, nil)
			require.NoError(t, n.s.start(t.Context(), n))
			n.run(300*joule, map[int]int64{10: 500})
			if !killed {
				require.NoError(t, n.s.shutdown(t.Context()))
				require.Len(t, sink.AllMetrics(), 1)
				n.md = sink.AllMetrics()[0]
			}
			before := map[string]point{"process.energy": n.one("process.energy", pid(10)), "hw.energy": n.one("hw.energy")}
			n.passWithout(3*time.Hour, 3000*joule, map[int]int64{10: 3 * 360_000})
			n.restart()
			n.run(300*joule, map[int]int64{10: 500})
			after := map[string]point{"process.energy": n.one("process.energy", pid(10)), "hw.energy": n.one("hw.energy")}
			for metric, since := range map[string]float64{"process.energy": 3000 + 150, "hw.energy": 3000 + 300} {
				if killed {
					assert.True(t, after[metric].start.After(before[metric].at), "a collection may have followed the state")
					assert.InDelta(t, since, after[metric].value, 1e-3, metric)
				} else {
					assert.Equal(t, before[metric].series, after[metric].series)
					assert.InDelta(t, before[metric].value+since, after[metric].value, 1e-3, metric)
				}
			}
		})
	}
}
