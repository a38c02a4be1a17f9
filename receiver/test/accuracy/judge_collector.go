// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/energyreceiver/energyreceiver/receiver/internal/state"
)

// collectorProgram is the collector with the default rules, trained for a day. It reads CPU time
// from procfs.
var collectorProgram = judged{
	name: "ours", title: "default rules, procfs", binary: flag.String("collector", "", "the collector's binary"), start: startCollector, every: simHorizon,
	simulated: func(t *testing.T, sc simScenario) float64 {
		return measureOnce(t, sc, filesOnly(), simHorizon).misattributed
	},
}

// filesOnly returns the setting of the default configuration without clock rates and cache misses,
// which the kernel counts only on the real machine.
func filesOnly() simSetting { return named("default, cpu_time, DRAM by memory_cpu_time, procfs") }

const collectorSettings = `
receivers:
  energy:
    root_path: %s
    storage: %s
    meters: {use: [powercap]}
    cpu_time: procfs
    series: {processes: {group_by: pid, max: 0, min_energy: 0}}
exporters:
  otlp_http: {endpoint: "%s", compression: none}
service:
  pipelines:
    metrics: {receivers: [energy], exporters: [otlp_http]}
  telemetry: {metrics: {level: none}}
`

func startCollector(tr *trial) (arguments []string, read func()) {
	exports := make(chan pmetric.Metrics, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		request := pmetricotlp.NewExportRequest()
		if err != nil || request.UnmarshalProto(body) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		exports <- request.Metrics()
	}))
	tr.tb.Cleanup(server.Close)
	storage, file := filepath.Join(tr.dir, "storage"), filepath.Join(tr.dir, "collector.yaml")
	require.NoError(tr.tb, os.Mkdir(storage, 0o700))
	require.NoError(tr.tb, os.WriteFile(state.Path(storage, "energy"), trainedOn(tr.tb, tr.scenario, filesOnly()), 0o600))
	require.NoError(tr.tb, os.WriteFile(file, fmt.Appendf(nil, collectorSettings, tr.root, storage, server.URL), 0o600))
	return []string{"--config", file}, func() {
		for now, last := time.Now(), (time.Time{}); !last.After(now); {
			select {
			case md := <-exports:
				tr.record(md)
				last = collected(md)
			case <-time.After(time.Minute):
				require.FailNow(tr.tb, "the collector does not export")
			}
		}
	}
}

// collected returns the time of a collection.
func collected(md pmetric.Metrics) (at time.Time) {
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if m.Name() == "system.energy" {
				at = m.Sum().DataPoints().At(0).Timestamp().AsTime()
			}
		}
	}
	return at
}
