// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// variant is a program whose cost is measured.
type variant struct {
	name    string
	command []string
	// scrape is the address that is fetched every second while the program runs. Without one nobody fetches anything.
	scrape string
}

// settings are those of a collector that a variant runs.
type settings struct {
	binary   string
	interval time.Duration
	window   time.Duration
	source   string
	scraped  bool
	receiver string // more settings of the receiver, as YAML: "processes: {max: 10000}"
	config   string // a configuration that takes the place of all the others but binary
}

const scrapeAddress = "127.0.0.1:18890"

// collector returns a variant that runs a collector.
func (s settings) collector(name string) variant {
	v := variant{name: name, command: []string{s.binary, "--config", s.config}}
	if s.config == "" {
		v.command[2] = "yaml:" + s.yaml("error")
	}
	if s.scraped {
		v.scrape = "http://" + scrapeAddress + "/metrics"
	}
	return v
}

// yaml returns the configuration. The model meter needs no sensor.
func (s settings) yaml(logs string) string {
	exporter := "debug: {verbosity: basic}"
	if s.scraped {
		exporter = "prometheus: {endpoint: '" + scrapeAddress + "', resource_to_telemetry_conversion: {enabled: true}, send_timestamps: true}"
	}
	name, _, _ := strings.Cut(exporter, ":")
	more := ""
	if s.receiver != "" {
		more = ", " + s.receiver
	}
	return fmt.Sprintf(`
receivers:
  energy: {collection_interval: %s, sampling_interval: %s, cpu_time: %s, meter: model, model: {idle_power: 40, max_power: 120}%s}
exporters:
  %s
service:
  pipelines: {metrics: {receivers: [energy], exporters: [%s]}}
  telemetry: {metrics: {level: none}, logs: {level: %s}}
`, s.interval, s.window, s.source, more, exporter, name, logs)
}

// bareCollector returns a variant that runs the collector without the receiver.
func bareCollector(binary string) variant {
	return variant{name: "collector alone", command: []string{binary, "--config", `yaml:
receivers: {otlp: {protocols: {grpc: {endpoint: '127.0.0.1:18891'}}}}
exporters: {debug: {verbosity: basic}}
service:
  pipelines: {metrics: {receivers: [otlp], exporters: [debug]}}
  telemetry: {metrics: {level: none}, logs: {level: error}}
`}}
}

// ownFloor returns a variant that runs one of this program's floors.
func ownFloor(name string, every time.Duration) (variant, error) {
	self, err := os.Executable()
	return variant{name: "floor " + name, command: []string{self, "-be", name, "-every", every.String()}}, err
}

// scraper fetches a page every second until it is stopped.
type scraper struct {
	end  chan struct{}
	done chan struct{}
	size int64 // of the last answer
}

func startScraper(address string) *scraper {
	s := &scraper{end: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-s.end:
				return
			case <-ticker.C:
				s.fetch(address)
			}
		}
	}()
	return s
}

// fetch ignores errors: the program may not serve yet.
func (s *scraper) fetch(address string) {
	client := http.Client{Timeout: 30 * time.Second}
	r, err := client.Get(address) //nolint:noctx // it has a timeout
	if err != nil {
		return
	}
	defer r.Body.Close() //nolint:errcheck // it was read to its end
	s.size, _ = io.Copy(io.Discard, r.Body)
}

// stop returns the bytes of the last answer.
func (s *scraper) stop() int64 {
	close(s.end)
	<-s.done
	return s.size
}
