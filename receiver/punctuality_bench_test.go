// SPDX-License-Identifier: Apache-2.0

//go:build linux

package energyreceiver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// BenchmarkPunctuality has the receiver collect every 100 ms for twenty seconds, by turns without
// and with a BMC that answers after 30 s. It reports how far the time between two collections was
// from 100 ms at most, and in the worst of a hundred. ns/op has no meaning here.
func BenchmarkPunctuality(b *testing.B) {
	const interval, watched = 100 * time.Millisecond, 20 * time.Second
	var asked atomic.Int64
	stop := make(chan struct{})
	bmc := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		select {
		case <-time.After(30 * time.Second):
			_, _ = io.WriteString(w, "100")
		case <-r.Context().Done():
		case <-stop:
		}
	}))
	defer bmc.Close()
	defer close(stop)
	off := map[bool][]time.Duration{}
	for b.Loop() {
		for _, slow := range []bool{false, true} {
			cfg := simpleConfig()
			cfg.CollectionInterval, cfg.InitialDelay, cfg.Meters.Use = interval, 0, only()
			cfg.Model = configoptional.Some(linear(40, 120))
			if slow {
				plug := drivers.HTTPConfig{NumberConfig: drivers.NumberConfig{Unit: "W"}, PollConfig: drivers.PollConfig{PollInterval: time.Second}}
				plug.Endpoint, plug.Timeout = bmc.URL, time.Minute
				cfg.Meters.HTTP = map[component.ID]drivers.HTTPConfig{plugID: plug}
			}
			require.NoError(b, cfg.Validate())
			var times []time.Time
			next, err := consumer.NewMetrics(func(context.Context, pmetric.Metrics) error {
				times = append(times, time.Now())
				return nil
			})
			require.NoError(b, err)
			r, err := NewFactory().CreateMetrics(b.Context(), receivertest.NewNopSettings(metadata.Type), cfg, next)
			require.NoError(b, err)
			require.NoError(b, r.Start(b.Context(), componenttest.NewNopHost()))
			time.Sleep(watched)
			require.NoError(b, r.Shutdown(b.Context()))
			for i := range times[1:] {
				off[slow] = append(off[slow], (times[i+1].Sub(times[i]) - interval).Abs())
			}
		}
	}
	require.Positive(b, asked.Load())
	for slow, name := range map[bool]string{false: "without", true: "with"} {
		slices.Sort(off[slow])
		n := len(off[slow])
		b.ReportMetric(off[slow][n-1].Seconds()*1000, fmt.Sprintf("max-ms-%s", name))
		b.ReportMetric(off[slow][n*99/100].Seconds()*1000, fmt.Sprintf("p99-ms-%s", name))
	}
}
