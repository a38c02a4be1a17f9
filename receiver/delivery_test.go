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

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
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
	host := hostsim.New(treeDir(t))
	zone := &hostsim.Zone{Name: "package-0", Max: 1e12}
	host.Zones["intel-rapl:0"] = zone
	host.Processes[10] = &hostsim.Process{Parent: 1, Comm: "job", Exe: "/bin/job", Cgroup: docker(idA)}
	require.NoError(t, host.Render())
	cfg := simpleConfig()
	cfg.RootPath = host.Root()
	cfg.InitialDelay = 10 * time.Second
	cfg.Series.Processes = byPID(config.ProcessSeriesConfig{})

	var scrapes int
	var got []pmetric.Metrics // acknowledged collections
	next, err := consumer.NewMetrics(func(_ context.Context, md pmetric.Metrics) error {
		scrapes++
		// Ten seconds pass until the next scrape. The job runs in the first ten and then ends.
		switch used := map[int]int64{1: 100}; scrapes {
		case 1:
			used[10] = 400
			host.Run(10*time.Second, used)
		default:
			delete(host.Processes, 10)
			host.Run(10*time.Second, used)
		}
		zone.Energy += 100 * joule
		if err := host.Render(); err != nil {
			return err
		}
		if 2 <= scrapes && scrapes <= 4 {
			return errRefused
		}
		cp := pmetric.NewMetrics()
		md.CopyTo(cp)
		got = append(got, cp)
		return nil
	})
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		r, err := NewFactory().CreateMetrics(t.Context(), receivertest.NewNopSettings(metadata.Type), cfg, next)
		require.NoError(t, err)
		require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
		time.Sleep(65 * time.Second) // of the clock of the synctest bubble
		require.NoError(t, r.Shutdown(t.Context()))
	})
	require.Equal(t, 7, scrapes)
	require.Len(t, got, 4, "the first, the fifth, the sixth and that of the shutdown")
	at := func(i int) *testNode { return &testNode{t: t, md: got[i]} }
	assert.Zero(t, at(0).one("process.energy", pid(10)).value)
	assert.InDelta(t, 40, at(1).one("process.energy", pid(10)).value, 1e-6)
	assert.InDelta(t, 40, at(1).one("container.energy").value, 1e-6)
	assert.True(t, at(1).one("process.power", pid(10)).ended)
	assert.Empty(t, at(2).points("process.energy", nil, pid(10)))
	assert.Empty(t, at(2).points("container.energy", nil))
	// Each interval was 100 J: 50 % busy in the first, 10 % in the other four.
	assert.InDelta(t, 10+4*10, at(2).one("process.energy", pid(1)).value, 1e-6)
}
