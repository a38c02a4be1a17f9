// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stores

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// relay is the collector of `make build`, which receives OTLP and has a configured exporter.
type relay struct{ otlp string }

// openRelay starts the collector with the named exporter and its settings.
func openRelay(t *testing.T, dir, binary, exporter, settings string) (relay, error) {
	t.Helper()
	endpoint := series.FreeAddress()
	config := filepath.Join(dir, "collector.yaml")
	require.NoError(t, os.WriteFile(config, []byte(fmt.Sprintf(`
receivers:
  otlp: {protocols: {http: {endpoint: %q}}}
exporters:
  %s: %s
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    metrics: {receivers: [otlp], exporters: [%s]}
`, endpoint, exporter, settings, exporter)), 0o600))
	r := relay{"http://" + endpoint + "/v1/metrics"}
	return r, start(t, exec.Command(binary, "--config", config), filepath.Join(dir, "collector.log"), "http://"+endpoint)
}

// scraped is Prometheus that scrapes the collector's prometheus exporter every 15 s of the hour. In
// fact Prometheus scrapes every half a second, and the test serves the pages: each has the state of
// the collector after the collections of another 15 s. The samples have the times of their
// collections.
//
// The test does not simulate that a series is served for metric_expiration after its end, and
// staleness markers: Prometheus writes them with the time of its own clock, which is after the
// hour.
type scraped struct {
	prometheus
	relay
	exporter string // the address of the page

	mu    sync.Mutex
	page  []byte
	fresh bool          // the page was not scraped yet
	taken chan struct{} // a scrape got a fresh page
	due   time.Time     // of the next scrape
}

const scrapeInterval = 15 * time.Second

func openScraped(t *testing.T, dir string) (backend, error) {
	collector, err := program(t, "..", "otelcol-energy")
	if err != nil {
		return nil, err
	}
	page := series.FreeAddress()
	s := &scraped{exporter: "http://" + page + "/metrics", taken: make(chan struct{}, 1)}
	s.relay, err = openRelay(t, dir, collector, "prometheus", fmt.Sprintf(
		"{endpoint: %q, send_timestamps: true, metric_expiration: 10s, resource_to_telemetry_conversion: {enabled: true}}", page))
	if err != nil {
		return nil, err
	}
	shown := series.FreeAddress()
	server := &http.Server{Addr: shown, Handler: s, ReadHeaderTimeout: time.Second}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = server.ListenAndServe() // it is closed at the end
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-stopped
	})
	text, err := os.ReadFile("../../../deploy/prometheus/scrape.yaml")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "scrape.yaml")
	changed := strings.NewReplacer("127.0.0.1:8889", shown, "scrape_interval: 15s", "scrape_interval: 500ms\n    scrape_timeout: 500ms").Replace(string(text))
	// Failed scrapes write staleness markers after the hour.
	changed += "storage: {tsdb: {out_of_order_time_window: 3h}}\n"
	require.NoError(t, os.WriteFile(config, []byte(changed), 0o600))
	s.prometheus, err = startPrometheus(t, dir, config)
	return s, err
}

// Query restores the node's name, which deploy/prometheus/scrape.yaml replaces by the address.
func (s *scraped) Query(text string, at time.Time) ([]series.Row, error) {
	rows, err := s.prometheus.Query(text, at)
	for _, r := range rows {
		if r.Labels["host_name"] != "" {
			r.Labels["host_name"] = series.Node
		}
	}
	return rows, err
}

// ServeHTTP answers a scrape. It repeats a page that was already scraped, which adds no samples.
func (s *scraped) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	_, err := w.Write(s.page)
	if s.fresh && err == nil {
		s.fresh = false
		s.taken <- struct{}{}
	}
}

func (s *scraped) send(at time.Time, md pmetric.Metrics) error {
	for !s.due.IsZero() && !at.Before(s.due) {
		if err := s.scrape(); err != nil {
			return err
		}
		s.due = s.due.Add(scrapeInterval)
	}
	if s.due.IsZero() {
		s.due = at.Add(scrapeInterval)
	}
	return post(s.relay.otlp, md)
}

// scrape passes the current page to Prometheus.
func (s *scraped) scrape() error {
	answer, err := http.Get(s.exporter)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	page, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.page, s.fresh = page, true
	s.mu.Unlock()
	select {
	case <-s.taken:
		return nil
	case <-time.After(series.Patience):
		return fmt.Errorf("no scrape within %v", series.Patience)
	}
}

func (s *scraped) settle() error { return s.scrape() }
