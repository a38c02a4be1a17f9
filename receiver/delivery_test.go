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
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

var errRefused = errors.New("the queue is full")

func TestFinalValuesAreKeptUntilTheNextConsumerHasTakenThem(t *testing.T) {
	n := newTestNode(t)
	n.host.Processes[10] = &hostsim.Process{Parent: 1, Comm: "job", Exe: "/bin/job", Cgroup: docker(idA)}
	n.host.Processes[20] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/bin/app"}
	n.start()
	n.run(100*joule, map[int]int64{10: 300})
	n.refuse = errRefused
	delete(n.host.Processes, 10)
	for range 3 {
		n.run(100*joule, map[int]int64{20: 100})
		for _, entity := range []string{"process", "container"} {
			final := n.one(entity+".energy", "container.id="+idA)
			assert.InDelta(t, 30, final.value, 1e-6)
			assert.Equal(t, n.s.ledger.Claims.Last().Stamp, final.at)
			watts := n.one(entity+".power", "container.id="+idA)
			assert.True(t, watts.ended, "backends drop it")
			assert.Zero(t, watts.value)
			assert.Equal(t, final.at, watts.at)
		}
	}
	n.refuse = nil
	n.run(100*joule, map[int]int64{20: 100})
	assert.InDelta(t, 30, n.one("process.energy", pid(10)).value, 1e-6, "delivered")
	assert.InDelta(t, 30, n.one("container.energy").value, 1e-6)
	n.run(100*joule, map[int]int64{20: 100})
	assert.Empty(t, n.points("process.energy", nil, pid(10)), "and not again")
	assert.Empty(t, n.points("process.power", nil, pid(10)))
	assert.Empty(t, n.points("container.energy", nil))
	assert.Empty(t, n.points("container.power", nil))
	assert.InDelta(t, 50, n.one("process.energy", pid(20)).value, 1e-6, "nothing was lost")
}

func TestAnAcknowledgedEmptyScrapeDeliversNothing(t *testing.T) {
	n := newTestNode(t)
	n.host.Processes[10] = &hostsim.Process{Parent: 1, Comm: "job", Exe: "/bin/job"}
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

func TestAnEmptyScrapeRightAfterTheSwitchToTheSensorSucceeds(t *testing.T) {
	n := newTestNode(t, withModel(40, 120))
	n.host.Zones["intel-rapl:0"].Content = "not yet\n"
	n.start()
	n.refuse = errRefused
	n.run(0, map[int]int64{1: 100})
	n.host.Zones["intel-rapl:0"].Content = ""
	require.NoError(t, n.host.Render())
	require.NoError(t, os.Remove(filepath.Join(n.host.Root(), "proc/stat")))
	n.scrapeAsIs()
	n.accept()
	clear(n.finals)
	n.refuse = nil
	n.run(0, map[int]int64{1: 100})
	n.run(10*joule, map[int]int64{1: 1000})
	assert.Positive(t, n.one("process.energy", pid(1), "energy.method=measured").value)
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

// collect advances by ten seconds, scrapes, and sends the result to a consumer.
func (n *testNode) collect(next consumer.ConsumeMetricsFunc) {
	n.t.Helper()
	n.host.Run(10*time.Second, map[int]int64{1: 100})
	n.host.Zones["intel-rapl:0"].Energy += 100 * joule
	require.NoError(n.t, n.host.Render())
	md, err := n.s.scrape(context.Background())
	require.NoError(n.t, err)
	n.md = md
	c, err := consumer.NewMetrics(next)
	require.NoError(n.t, err)
	_ = nextConsumer{c, n.s.delivered}.ConsumeMetrics(context.Background(), md) // the scraper controller ignores the error too
}

func TestEndOfAModeledZoneIsDeliveredAfterRefusalsForGood(t *testing.T) {
	n := newTestNode(t, withModel(40, 120))
	zone := n.host.Zones["intel-rapl:0"]
	zone.Content = "not yet\n"
	n.start()
	n.run(0, map[int]int64{1: 500})
	zone.Content = ""
	refused := func(context.Context, pmetric.Metrics) error { return consumererror.NewPermanent(errRefused) }
	for range 12 {
		n.collect(refused)
	}
	modeled := n.sum("system.energy", attrs{"energy.method": "modeled"})
	assert.Positive(t, modeled)
	n.collect(func(context.Context, pmetric.Metrics) error { return nil })
	assert.Len(t, n.points("hw.power", attrs{"energy.method": "modeled"}), 1, "its end")
	n.collect(func(context.Context, pmetric.Metrics) error { return nil })
	assert.Empty(t, n.points("hw.power", attrs{"energy.method": "modeled"}))
	assert.InDelta(t, modeled, n.sum("system.energy", attrs{"energy.method": "modeled"}), 0, "its energy remains")
	assert.Positive(t, n.sum("system.energy", attrs{"energy.method": "measured"}))
}
