// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

var errRefused = errors.New("the queue is full")

func TestAnAcknowledgedEmptyScrapeDeliversNothing(t *testing.T) {
	n := newTestNode(t)
	n.process(10, "job")
	n.start()
	n.run(100*joule, map[int]int64{10: 300})
	delete(n.host.Processes, 10)
	n.refuse = errRefused
	n.run(0, nil)
	n.refuse = nil
	stat := filepath.Join(n.host.Root(), "proc/stat")
	require.NoError(t, os.Remove(stat))
	n.scrapeAsIs()
	n.accept()
	n.run(0, nil)
	assert.InDelta(t, 30, n.one("process.energy", pid(10)).value, 1e-6, "its end was not in the acknowledged collection")
	n.run(0, nil)
	assert.Empty(t, n.points("process.energy", nil, pid(10)))
}

func TestFinalValuesAreDeliveredExactlyOnceToATemporarilyFailingConsumer(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.InitialDelay = 10 * time.Second })
	n.process(10, "job", docker(idA))
	require.NoError(t, n.host.Render())
	collections, taken := 0, []pmetric.Metrics{}
	next, err := consumer.NewMetrics(func(_ context.Context, md pmetric.Metrics) error {
		// Ten seconds pass until the next collection. The job runs in the first ten and then ends.
		used := map[int]int64{1: 100, 10: 400}
		if collections++; collections > 1 {
			delete(n.host.Processes, 10)
			delete(used, 10)
		}
		n.passWithout(10*time.Second, 100*joule, used)
		if err := n.host.Render(); err != nil {
			return err
		}
		if 2 <= collections && collections <= 4 {
			return errRefused
		}
		taken = append(taken, pmetric.NewMetrics())
		md.CopyTo(taken[len(taken)-1])
		return nil
	})
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		r, err := NewFactory().CreateMetrics(t.Context(), receivertest.NewNopSettings(metadata.Type), n.cfg, next)
		require.NoError(t, err)
		require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
		time.Sleep(65 * time.Second) // of the clock of the synctest bubble
		require.NoError(t, r.Shutdown(t.Context()))
	})
	require.Equal(t, 7, collections)
	require.Len(t, taken, 4, "the first, the fifth, the sixth and that of the shutdown")
	n.md = taken[0]
	n.expect(energies{"10": 0}, 0)
	n.md = taken[1]
	n.expect(energies{"10": 40, "A": 40}, 1e-6)
	assert.True(t, n.one("process.power", pid(10)).ended)
	n.md = taken[2]
	assert.Empty(t, n.points("process.energy", nil, pid(10)))
	assert.Empty(t, n.points("container.energy", nil))
	n.expect(energies{"1": 10 + 4*10}, 1e-6) // of 100 J in each interval: 50 % busy in the first, 10 % in the other four
}
