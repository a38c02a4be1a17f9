// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
	"github.com/energyreceiver/energyreceiver/receiver/internal/windows"
)

// hangingMeter has no zones. Its reads wait from hang to release.
type hangingMeter struct{ waits atomic.Pointer[chan struct{}] }

func (m *hangingMeter) hang() {
	waits := make(chan struct{})
	m.waits.Store(&waits)
}

func (m *hangingMeter) release() { close(*m.waits.Load()) }

func (m *hangingMeter) Read(context.Context, power.Sample) ([]power.Reading, error) {
	if waits := m.waits.Load(); waits != nil {
		<-*waits
	}
	return nil, nil
}

func (*hangingMeter) Close() error { return nil }

// watchedReceiver is a receiver whose meter or whose next consumer can hang.
type watchedReceiver struct {
	promptReceiver
	meter     hangingMeter
	telemetry *componenttest.Telemetry
	logs      *observer.ObservedLogs
}

// newWatchedReceiver returns a started receiver. It must be called in a synctest bubble.
func newWatchedReceiver(t *testing.T, host *hostsim.Host, next consumer.Metrics, edit func(*Config)) *watchedReceiver {
	w := createWatchedReceiver(t, host, next, edit)
	require.NoError(t, w.Start(t.Context(), componenttest.NewNopHost()))
	return w
}

func createWatchedReceiver(t *testing.T, host *hostsim.Host, next consumer.Metrics, edit func(*Config)) *watchedReceiver {
	w := &watchedReceiver{telemetry: componenttest.NewTelemetry()}
	cfg := simpleConfig()
	cfg.RootPath = host.Root()
	edit(cfg)
	set := receivertest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = w.telemetry.NewTelemetrySettings()
	core, logs := observer.New(zap.InfoLevel)
	set.Logger, w.logs = zap.New(core), logs
	m := machine.Local()
	m.NewMetronome = windows.NewTicking // follows the clock of the bubble
	m.OpenMeters = openOnly(power.Member{Name: "powercap", Meter: &w.meter})
	r, err := NewFactoryOn(m).CreateMetrics(t.Context(), set, cfg, next)
	require.NoError(t, err)
	w.promptReceiver = r.(promptReceiver)
	return w
}

// reports returns what was logged about the condition "collection".
func (w *watchedReceiver) reports() (out []string) {
	for _, e := range w.logs.All() {
		if fields := e.ContextMap(); fields["condition"] == "collection" {
			text, _ := fields["error"].(string)
			out = append(out, e.Message+": "+text)
		}
	}
	return out
}

func TestACollectionThatHangsIsReportedAndShutdownReturns(t *testing.T) {
	host := hostsim.New(treeDir(t))
	require.NoError(t, host.Render())
	for name, edit := range map[string]func(*Config){
		"collections": func(*Config) {},
		"windows":     func(c *Config) { c.Window = time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := new(consumertest.MetricsSink)
				w := newWatchedReceiver(t, host, sink, edit)
				time.Sleep(25 * time.Second)
				assert.Empty(t, w.reports())
				w.meter.hang()
				time.Sleep(30 * time.Second)
				want := "Collection degraded: no collection has finished for 20s; the receiver is reading meters"
				assert.Equal(t, []string{want}, w.reports(), "once")

				before := time.Now()
				_, err := w.telemetry.GetMetric("otelcol_receiver_energy_failed_scans")
				require.Error(t, err, "not known while a collection hangs")
				assert.Less(t, time.Since(before), 10*time.Second, "but the others can be read")

				before, sent := time.Now(), len(sink.AllMetrics())
				require.NoError(t, w.Shutdown(t.Context()))
				assert.Equal(t, 1, w.logs.FilterMessage("Shutdown timed out").FilterField(zap.Stringer("activity", windows.ReadingMeters)).Len())
				assert.Equal(t, shutdownTimeout, time.Since(before))
				w.meter.release()
				synctest.Wait()
				assert.Len(t, sink.AllMetrics(), sent, "nothing is sent after the shutdown")
			})
		})
	}
}

func TestAReceiverCanBeShutDownDuringItsFirstScan(t *testing.T) {
	host := hostsim.New(treeDir(t))
	require.NoError(t, host.Render())
	for name, after := range map[string]time.Duration{"at once": 0, "while the first collection waits": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := new(consumertest.MetricsSink)
				w := createWatchedReceiver(t, host, sink, func(*Config) {})
				w.meter.hang()
				require.NoError(t, w.Start(t.Context(), componenttest.NewNopHost()), "during the scan")
				assert.NoError(t, feed.Check(w.scraper.set.ID), "extensions check it once all components have started")
				time.Sleep(after)
				down := make(chan error, 1)
				go func() { down <- w.Shutdown(t.Context()) }()
				synctest.Wait()
				assert.Empty(t, down, "the scan is waited for")
				w.meter.release()
				require.NoError(t, <-down)
				assert.Zero(t, w.logs.FilterMessage("Shutdown timed out").Len())
				assert.Zero(t, sink.DataPointCount())
			})
		})
	}
}

func TestACollectionThatNoLongerHangsIsReported(t *testing.T) {
	host := hostsim.New(treeDir(t))
	require.NoError(t, host.Render())
	synctest.Test(t, func(t *testing.T) {
		w := newWatchedReceiver(t, host, consumertest.NewNop(), func(*Config) {})
		time.Sleep(5 * time.Second)
		w.meter.hang()
		time.Sleep(40 * time.Second)
		require.Len(t, w.reports(), 1)
		w.meter.release()
		time.Sleep(20 * time.Second)
		require.Len(t, w.reports(), 2)
		assert.Equal(t, "Collection recovered: ", w.reports()[1])
		require.NoError(t, w.Shutdown(t.Context()))
	})
}

func TestANextConsumerThatHangsIsReported(t *testing.T) {
	host := hostsim.New(treeDir(t))
	require.NoError(t, host.Render())
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		next, err := consumer.NewMetrics(func(context.Context, pmetric.Metrics) error { <-hang; return nil })
		require.NoError(t, err)
		w := newWatchedReceiver(t, host, next, func(c *Config) { c.Window, c.InitialDelay = time.Second, 50*time.Millisecond })
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"Collection degraded: no collection has finished for 20s; the receiver is waiting for the next consumer"}, w.reports())
		require.NoError(t, w.Shutdown(t.Context()))
		assert.Equal(t, 1, w.logs.FilterMessage("Shutdown timed out").Len())
		close(hang)
	})
}
