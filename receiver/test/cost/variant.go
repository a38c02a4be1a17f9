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
	// interval is how often the program does its work. How long a turn takes depends on it.
	interval time.Duration
	// scrape is the address that is fetched every second while the program runs. If it is empty, nothing is scraped.
	scrape string
	// window is the length of the windows that the program should keep and report at
	// telemetryAddress. 0 means none.
	window time.Duration
	// starts has the program run until its first emission only.
	starts bool
	// isCollector reports whether the program is the collector, of which there may be one of another commit.
	isCollector bool
}

// settings are those of a collector that a variant runs.
type settings struct {
	label    string // its name, in place of the settings
	binary   string
	interval time.Duration
	window   time.Duration
	source   string
	scraped  bool
	sends    bool // export by OTLP over HTTP, to a server that ignores what it gets
	// uncompressed has it send without gzip.
	uncompressed bool
	telemetry    bool   // serve the collector's own metrics
	starts       bool   // run until the first emission
	receiver     string // more settings of the receiver, as YAML: "series: {processes: {max: 10000}}"
	config       string // a configuration that takes the place of all others but binary and interval
	// divided shows it a machine of two packages and of cores with two threads.
	divided bool
}

// Addresses that programs serve. Only one of them runs at a time.
const (
	scrapeAddress    = "127.0.0.1:18890"
	otlpAddress      = "127.0.0.1:18891"
	telemetryPort    = "18892"
	telemetryAddress = "127.0.0.1:" + telemetryPort
	sinkAddress      = "127.0.0.1:18893"
)

// String names the settings that differ between variants.
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
	if s.scraped {
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

// collector returns a variant that runs a collector.
func (s settings) collector(name string) variant {
	v := variant{
		name: name, command: []string{s.binary, "--config", s.config}, interval: s.interval, starts: s.starts, isCollector: true,
	}
	if s.window > 0 {
		v.interval = min(s.interval, 2*time.Second) // 20 s are enough: it is windows that cost
	}
	if s.config == "" {
		v.command[2] = "yaml:" + s.yaml()
	}
	if s.divided {
		v.command = append(slices.Clone(onDividedMachine), v.command...)
	}
	if s.scraped {
		v.scrape = "http://" + scrapeAddress + "/metrics"
	}
	if s.telemetry {
		v.window = s.window
	}
	return v
}

// onDividedMachine runs a command in a mount namespace of its own, in which CPUs with odd numbers
// are in the second package, and each of them shares a core with the one before.
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

// yaml returns the configuration: Kepler's rules and one window per collection, unless the settings say otherwise.
// The model needs no sensor.
func (s settings) yaml() string {
	exporter, logs, metrics, more := "debug: {verbosity: basic}", "error", "{level: none}", ""
	if s.scraped {
		exporter = "prometheus: {endpoint: '" + scrapeAddress + "', resource_to_telemetry_conversion: {enabled: true}, send_timestamps: true}"
	}
	if s.sends {
		exporter = "otlp_http: {endpoint: 'http://" + sinkAddress + "'}"
		if s.uncompressed {
			exporter = strings.Replace(exporter, "}", ", compression: none}", 1)
		}
	}
	if s.starts {
		logs = "info"
	}
	if s.telemetry {
		metrics = "{level: normal, readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: " + telemetryPort + "}}}}]}"
	}
	if s.receiver != "" {
		more = ", " + s.receiver
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
  telemetry: {metrics: %s, logs: {level: %s}}
`, s.interval, window, s.source, more, exporter, name, metrics, logs)
}

// bareCollector returns a variant that runs the collector without the receiver.
func bareCollector(binary string) variant {
	return variant{name: "collector alone", interval: time.Second, isCollector: true, command: []string{binary, "--config", `yaml:
receivers: {otlp: {protocols: {grpc: {endpoint: '` + otlpAddress + `'}}}}
exporters: {debug: {verbosity: basic}}
service:
  pipelines: {metrics: {receivers: [otlp], exporters: [debug]}}
  telemetry: {metrics: {level: none}, logs: {level: error}}
`}}
}

// ownFloor returns a variant that runs one of this program's floors, or one of the program in C in dir.
func ownFloor(name, dir string, every time.Duration) (variant, error) {
	if mode, ok := strings.CutPrefix(name, inC); ok {
		command := []string{filepath.Join(dir, floorProgram), mode, strconv.FormatInt(every.Nanoseconds(), 10)}
		return variant{name: "floor " + name, interval: every, command: command}, nil
	}
	self, err := os.Executable()
	return variant{name: "floor " + name, interval: every, command: []string{self, "-be", name, "-every", every.String()}}, err
}

// kepler returns a variant that runs Kepler 0.11, which collects every second by its fake CPU
// meter. Its configuration is written to a file, because no flag enables that meter.
func kepler(binary, dir string, isScraped bool) (variant, error) {
	const config = `
log: {level: error}
monitor: {interval: 1s}
web: {listenAddresses: ["` + scrapeAddress + `"]}
dev: {fake-cpu-meter: {enabled: true}}
`
	file := filepath.Join(dir, "kepler.yaml")
	v := variant{name: "kepler", interval: time.Second, command: []string{binary, "--config.file", file}}
	if isScraped {
		v.name, v.scrape = "kepler scraped", "http://"+scrapeAddress+"/metrics"
	}
	return v, os.WriteFile(file, []byte(config), 0o600)
}

// startSink starts a server that takes what collectors send, and ignores it.
func startSink() (stop func() error, err error) {
	listener, err := net.Listen("tcp", sinkAddress)
	if err != nil {
		return nil, err
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the collector sends it again
	})}
	go server.Serve(listener) //nolint:errcheck // it ends when it is closed
	return server.Close, nil
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
