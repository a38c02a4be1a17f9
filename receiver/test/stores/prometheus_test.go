// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stores

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// prometheus is a Prometheus, or a database with the same API, that accepts OTLP.
type prometheus struct {
	series.Prometheus
	otlp string // address for OTLP
}

// openPrometheus returns a function that starts Prometheus with the shipped configuration and
// features.
func openPrometheus(features ...string) func(t *testing.T, dir string) (backend, error) {
	return func(t *testing.T, dir string) (backend, error) {
		p, err := startPrometheus(t, dir, "../../../deploy/prometheus/prometheus.yaml", features...)
		return &p, err
	}
}

// startPrometheus starts Prometheus with a configuration.
func startPrometheus(t *testing.T, dir, config string, features ...string) (p prometheus, err error) {
	t.Helper()
	binary, err := program(t, "prometheus", "prometheus")
	if err != nil {
		return p, err
	}
	var flags []string
	if len(features) > 0 {
		flags = []string{"--enable-feature=" + strings.Join(features, ",")}
	}
	server, api, err := series.StartPrometheus(binary, dir, config, flags...)
	t.Cleanup(func() { server.End(unix.SIGTERM) })
	return prometheus{api, string(api) + "/otlp/v1/metrics"}, err
}

func (p *prometheus) send(_ time.Time, md pmetric.Metrics) error { return post(p.otlp, md) }

func (p *prometheus) settle() error { return nil }

// address returns the address of the server.
func (p *prometheus) address() string { return strings.TrimSuffix(string(p.Prometheus), "/api/v1") }

// openUntranslated starts Prometheus without translation of OTLP names.
func openUntranslated(t *testing.T, dir string) (backend, error) {
	config, err := os.ReadFile("../../../deploy/prometheus/prometheus.yaml")
	require.NoError(t, err)
	text := strings.Replace(string(config), "\notlp:\n", "\notlp:\n  translation_strategy: NoTranslation\n", 1)
	path := filepath.Join(dir, "prometheus.yaml")
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(text, "rule_files: [rules.yaml]", "", 1)), 0o600))
	p, err := startPrometheus(t, dir, path)
	return &p, err
}

// openMimir returns a function that starts one Mimir with all of its parts.
func openMimir(flags ...string) func(t *testing.T, dir string) (backend, error) {
	return func(t *testing.T, dir string) (backend, error) {
		binary, err := program(t, "mimir", "mimir")
		if err != nil {
			return nil, err
		}
		servers, addresses, err := series.StartMimir("../../..", binary, dir, 1, flags...)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { servers[0].End(unix.SIGTERM) })
		address := "http://" + addresses[0]
		return &prometheus{series.Prometheus(address + "/prometheus/api/v1"), address + "/otlp/v1/metrics"}, nil
	}
}
