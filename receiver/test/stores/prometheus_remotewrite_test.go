// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stores

import (
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric"
)

// remoteWritten is a database with Prometheus' query API that receives data from the collector's
// prometheus_remote_write exporter.
type remoteWritten struct {
	prometheus
	relay
}

func openPrometheusRemoteWrite(t *testing.T, dir string) (backend, error) {
	p, err := startPrometheus(t, dir, "../../../deploy/prometheus/prometheus.yaml")
	if err != nil {
		return nil, err
	}
	return openRemoteWrite(t, dir, p, string(p.Prometheus)+"/write")
}

// openRemoteWrite starts a collector that writes to a URL. The database at p then has the data.
func openRemoteWrite(t *testing.T, dir string, p prometheus, url string) (backend, error) {
	t.Helper()
	collector, err := program(t, "otelcol-stores", "otelcol-stores")
	if err != nil {
		return nil, err
	}
	r, err := openRelay(t, dir, collector, "prometheus_remote_write", fmt.Sprintf("{http: {endpoint: %q, tls: {insecure: true}}, "+
		"resource_to_telemetry_conversion: {enabled: true}, remote_write_queue: {enabled: false}, retry_on_failure: {enabled: false}, "+
		"max_batch_request_parallelism: 1}", url))
	return &remoteWritten{p, r}, err
}

func (r *remoteWritten) send(_ time.Time, md pmetric.Metrics) error { return post(r.relay.otlp, md) }
