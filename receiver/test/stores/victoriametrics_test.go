// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stores

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// victoriaMetrics has Prometheus' query API, with MetricsQL.
type victoriaMetrics struct {
	prometheus
	flush string
}

// openVictoriaMetrics returns a function that starts VictoriaMetrics. Without a flag it keeps the
// names of OTLP.
func openVictoriaMetrics(flags ...string) func(t *testing.T, dir string) (backend, error) {
	return func(t *testing.T, dir string) (backend, error) {
		binary, err := program(t, "victoriametrics", "victoria-metrics")
		if err != nil {
			return nil, err
		}
		return startVictoriaMetrics(t, dir, binary, flags...)
	}
}

func startVictoriaMetrics(t *testing.T, dir, binary string, flags ...string) (*victoriaMetrics, error) {
	endpoint := series.FreeAddress()
	address := "http://" + endpoint
	cmd := exec.Command(binary, append(flags, "-httpListenAddr="+endpoint, "-storageDataPath="+filepath.Join(dir, "data"), "-retentionPeriod=100y")...)
	v := &victoriaMetrics{
		prometheus: prometheus{series.Prometheus(address + "/api/v1"), address + "/opentelemetry/v1/metrics"},
		flush:      address + "/internal/force_flush",
	}
	return v, start(t, cmd, filepath.Join(dir, "log"), address+"/health")
}

// settle makes all sent data visible to queries.
func (v *victoriaMetrics) settle() error {
	answer, err := http.Get(v.flush)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode >= 300 {
		return fmt.Errorf("%s: %s", v.flush, answer.Status)
	}
	return nil
}

// openVictoriaMetricsRemoteWrite starts VictoriaMetrics behind a collector with the remote-write
// exporter.
func openVictoriaMetricsRemoteWrite(t *testing.T, dir string) (backend, error) {
	binary, err := program(t, "victoriametrics", "victoria-metrics")
	if err != nil {
		return nil, err
	}
	return remoteWrittenTo(t, dir, binary)
}

// openVictoriaMetrics179 starts the VictoriaMetrics of Debian 12, which does not take OTLP.
func openVictoriaMetrics179(t *testing.T, dir string) (backend, error) {
	binary, err := program(t, "victoriametrics-1.79", "usr", "bin", "victoria-metrics")
	if err != nil {
		return nil, err
	}
	return remoteWrittenTo(t, dir, binary)
}

// remoteWrittenTo starts a VictoriaMetrics, and a collector that writes to it.
func remoteWrittenTo(t *testing.T, dir, binary string) (backend, error) {
	v, err := startVictoriaMetrics(t, dir, binary)
	if err != nil {
		return nil, err
	}
	r, err := openRemoteWrite(t, dir, v.prometheus, string(v.Prometheus)+"/write")
	return &flushed{r, v}, err
}

// flushed is VictoriaMetrics behind a collector.
type flushed struct {
	backend
	database *victoriaMetrics
}

func (f *flushed) settle() error { return f.database.settle() }
