// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stores

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// prometheus is a Prometheus, or a database that answers like one, which takes OTLP.
type prometheus struct {
	api  string // the address of its query API, which ends in /api/v1
	otlp string // the address to which OTLP is sent
}

// openPrometheus returns how Prometheus is started that takes OTLP, with the shipped configuration and with features.
func openPrometheus(features ...string) func(t *testing.T, dir string) (backend, error) {
	return func(t *testing.T, dir string) (backend, error) {
		p, err := startPrometheus(t, dir, "../../../deploy/prometheus/prometheus.yaml", features...)
		return &p, err
	}
}

// startPrometheus starts Prometheus with a configuration. Its blocks are long enough to take an hour that is over.
func startPrometheus(t *testing.T, dir, config string, features ...string) (p prometheus, err error) {
	t.Helper()
	binary, err := program(t, "prometheus", "prometheus")
	if err != nil {
		return p, err
	}
	endpoint := freeEndpoint(t)
	cmd := exec.Command(binary, "--config.file="+config, "--web.enable-otlp-receiver", "--web.enable-remote-write-receiver",
		"--web.listen-address="+endpoint, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--query.max-samples=500000000",
		"--storage.tsdb.min-block-duration=4d", "--storage.tsdb.max-block-duration=4d", "--storage.tsdb.retention.time=100y")
	if len(features) > 0 {
		cmd.Args = append(cmd.Args, "--enable-feature="+strings.Join(features, ","))
	}
	p.api, p.otlp = "http://"+endpoint+"/api/v1", "http://"+endpoint+"/api/v1/otlp/v1/metrics"
	return p, start(t, cmd, filepath.Join(dir, "log"), "http://"+endpoint+"/-/ready")
}

func (p *prometheus) send(_ time.Time, md pmetric.Metrics) error { return post(p.otlp, md) }

func (p *prometheus) settle() error { return nil }

// address returns the address of the server.
func (p *prometheus) address() string { return strings.TrimSuffix(p.api, "/api/v1") }

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

// query calls the API: https://prometheus.io/docs/prometheus/latest/querying/api/
func (p *prometheus) query(text string, at time.Time) (rows []row, err error) {
	answer, err := http.PostForm(p.api+"/query", url.Values{
		"query": {text}, "time": {strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)},
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	var decoded struct {
		Error string
		Data  struct {
			ResultType string
			Result     []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&decoded); err != nil {
		return nil, fmt.Errorf("%s: %w", answer.Status, err)
	}
	if decoded.Error != "" || decoded.Data.ResultType != "vector" {
		return nil, fmt.Errorf("%s: %s %s", answer.Status, decoded.Data.ResultType, decoded.Error)
	}
	for _, r := range decoded.Data.Result {
		text, _ := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{r.Metric, value})
	}
	return rows, nil
}
