// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// variant is a program whose cost is measured.
type variant struct {
	name    string
	command []string
	// interval is the time between two runs of the program's work. It determines the length of a
	// turn.
	interval time.Duration
	// warmup replaces the warm-up of the pace. If it is set, the CPU time of the first 20 s is also
	// measured.
	warmup time.Duration
	// scrape is the address to fetch while the program runs, if any, and scraped is the time
	// between two fetches.
	scrape  string
	scraped time.Duration
	// starts makes the program run only until its first emission.
	starts bool
	// isReference reports whether other variants are compared with this variant: a floor, an empty
	// collector, or Kepler.
	isReference bool
	goals       []goal
}

// settings are the settings of a collector variant.
type settings struct {
	label    string // its name; if empty, the settings name it
	interval time.Duration
	window   time.Duration
	source   string
	scraped  time.Duration // time between two scrapes by Prometheus; 0 is no scraping
	sends    bool          // export by OTLP over HTTP, to a server that ignores the data
	// uncompressed disables gzip.
	uncompressed bool
	starts       bool          // run until the first emission
	warmup       time.Duration // as variant.warmup
	receiver     string        // more receiver settings as YAML: "series: {processes: {max: 10000}}"
	config       string        // a configuration that replaces all settings but interval
	// divided simulates two packages, and cores with two threads.
	divided bool
}

// Addresses of the programs' servers. Only one program runs at a time.
const (
	scrapeAddress = "127.0.0.1:18890"
	otlpAddress   = "127.0.0.1:18891"
	telemetryPort = "18892"
	sinkAddress   = "127.0.0.1:18893"
)

// String returns the label, or the settings that differ between variants.
func (s settings) String() string {
	if s.label != "" {
		return s.label
	}
	if s.config != "" {
		return filepath.Base(s.config)
	}
	name := fmt.Sprintf("%s %s", s.source, s.interval)
	if s.window > 0 {
		name += fmt.Sprintf(" in %s", s.window)
	}
	if s.scraped > 0 {
		name += " scraped"
	}
	if s.sends {
		name += " by OTLP"
	}
	if s.uncompressed {
		name += " uncompressed"
	}
	if s.receiver != "" {
		name += " " + s.receiver
	}
	return name
}

// collector returns a variant that runs the collector.
func (s settings) collector(p programs) (variant, error) {
	v := variant{
		name: s.String(), command: []string{p.collector, "--config", s.config}, interval: max(s.interval, s.scraped), warmup: s.warmup, starts: s.starts,
	}
	if s.config == "" {
		v.command[2] = "yaml:" + s.yaml()
	}
	if s.divided {
		v.command = append(slices.Clone(onDividedMachine), v.command...)
	}
	if s.scraped > 0 {
		v.scrape, v.scraped = "http://"+scrapeAddress+"/metrics", s.scraped
	}
	return v, nil
}

// packaged returns a variant with the configuration and the environment of the systemd unit, except
// for the ports.
func packaged(p programs) (variant, error) {
	state, err := os.MkdirTemp(p.dir, "state")
	return variant{name: "packaged service", interval: 10 * time.Second, command: []string{
		"env", "STATE_DIRECTORY=" + state, "ENERGY_PROMETHEUS_ENDPOINT=" + scrapeAddress, "ENERGY_TELEMETRY_PORT=" + telemetryPort,
		"HOST_NAME=node", "GOMEMLIMIT=800MiB", p.collector, "--config", "deploy/systemd/config.yaml",
	}}, err
}

// measure10ms returns a variant that measures a sleeping program every 10 ms with the command
// "energy" from the collector's directory.
func measure10ms(p programs) (variant, error) {
	energy := filepath.Join(filepath.Dir(p.collector), "energy")
	if _, err := os.Stat(energy); err != nil {
		return variant{}, errMissing
	}
	return variant{name: "energy measure", interval: time.Second, command: []string{energy, "measure", "--interval", "10ms", "--", "sleep", "600"}}, nil
}

// onDividedMachine runs a command in its own mount namespace. There, CPUs with odd numbers are in
// the second package, and each of them shares a core with the CPU before it.
var onDividedMachine = []string{"unshare", "--mount", "sh", "-ec", `
mount -t tmpfs tmpfs /mnt
echo 1 >/mnt/package
cd /sys/devices/system/cpu
for second in cpu*[13579]; do
	first=cpu$((${second#cpu} - 1))
	mount --bind /mnt/package $second/topology/physical_package_id
	echo ${first#cpu}-${second#cpu} >/mnt/$first
	for list in $first/topology/thread_siblings_list $second/topology/thread_siblings_list \
		$first/topology/core_cpus_list $second/topology/core_cpus_list; do
		if [ -e $list ]; then mount --bind /mnt/$first $list; fi
	done
done
cd "$OLDPWD"
exec "$0" "$@"`}

// yaml returns the configuration: Kepler's rules and one window per collection by default. The
// power model needs no sensor.
func (s settings) yaml() string {
	exporter, logs, more := "debug: {verbosity: basic}", "error", ""
	if s.scraped > 0 {
		exporter = "prometheus: {endpoint: '" + scrapeAddress + "', " + // like config.yaml
			"resource_to_telemetry_conversion: {enabled: true}, send_timestamps: true, without_scope_info: true}"
	}
	if s.sends {
		exporter = "otlp_http: {endpoint: 'http://" + sinkAddress + "'}"
		if s.uncompressed {
			exporter = strings.Replace(exporter, "}", ", compression: none}", 1)
		}
	}
	if s.starts {
		logs, more = "info", ", initial_delay: 0s"
	}
	if s.receiver != "" {
		more += ", " + s.receiver
	}
	if !strings.Contains(s.receiver, "attribution:") {
		more += ", attribution: {preset: kepler}"
	}
	window := s.window
	if window == 0 {
		window = s.interval
	}
	name, _, _ := strings.Cut(exporter, ":")
	return fmt.Sprintf(`
receivers:
  energy: {collection_interval: %s, window: %s, cpu_time: %s, meters: {use: []}, model: {idle_power: 40, max_power: 120}%s}
exporters:
  %s
service:
  pipelines: {metrics: {receivers: [energy], exporters: [%s]}}
  telemetry: {metrics: {level: none}, logs: {level: %s}}
`, s.interval, window, s.source, more, exporter, name, logs)
}

// emptyCollector returns a variant that runs the collector without the receiver.
func emptyCollector(p programs) (variant, error) {
	return variant{name: "empty collector", interval: time.Second, isReference: true, command: []string{p.collector, "--config", `yaml:
receivers: {otlp: {protocols: {grpc: {endpoint: '` + otlpAddress + `'}}}}
exporters: {debug: {verbosity: basic}}
service:
  pipelines: {metrics: {receivers: [otlp], exporters: [debug]}}
  telemetry: {metrics: {level: none}, logs: {level: error}}
`}}, nil
}

// floor returns the program of a row: a floor that this program runs, or "wake", a C program.
func floor(name string, every time.Duration) func(programs) (variant, error) {
	return func(p programs) (variant, error) {
		v := variant{name: "floor " + name, interval: every, isReference: true}
		if name == "wake" {
			v.command = []string{filepath.Join(p.dir, floorProgram), strconv.FormatInt(every.Nanoseconds(), 10)}
			return v, nil
		}
		self, err := os.Executable()
		v.command = []string{self, "-be", name, "-every", every.String()}
		return v, err
	}
}

// kepler returns the program of a row: Kepler 0.11, which collects every second with its fake CPU
// meter. scraped is the time between two scrapes; 0 disables them. The configuration is written to
// a file, because no flag enables that meter.
func kepler(scraped time.Duration) func(programs) (variant, error) {
	const config = `
log: {level: error}
monitor: {interval: 1s}
web: {listenAddresses: ["` + scrapeAddress + `"]}
dev: {fake-cpu-meter: {enabled: true}}
`
	return func(p programs) (variant, error) {
		if p.kepler == "" {
			return variant{}, errMissing
		}
		file := filepath.Join(p.dir, "kepler.yaml")
		v := variant{name: "kepler", interval: time.Second, isReference: true, command: []string{p.kepler, "--config.file", file}}
		if scraped > 0 {
			v.name, v.scrape, v.scraped = "kepler scraped", "http://"+scrapeAddress+"/metrics", scraped
		}
		return v, os.WriteFile(file, []byte(config), 0o600)
	}
}

// startSink starts a server that accepts the collectors' data and ignores it.
func startSink() (stop func() error, err error) {
	listener, err := net.Listen("tcp", sinkAddress)
	if err != nil {
		return nil, err
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // after an error the collector sends again
	})}
	go server.Serve(listener) //nolint:errcheck // it ends when the server is closed
	return server.Close, nil
}

// scraper fetches a page at regular intervals until it is stopped.
type scraper struct {
	end  chan struct{}
	done chan struct{}
	size int64 // of the last answer
}

func startScraper(address string, every time.Duration) *scraper {
	s := &scraper{end: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		ticker := time.NewTicker(every)
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
