// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.yaml.in/yaml/v3"
)

// fault is a way in which a backend handles requests.
type fault struct {
	name     string
	http     int    // status of an OTLP/HTTP answer
	grpc     string // status of an OTLP/gRPC answer
	takes    bool   // the request is stored regardless
	noAnswer bool
	connects bool // false: the connection is refused
}

var works = fault{name: "works", http: http.StatusOK, grpc: "0", takes: true, connects: true}

var faults = []fault{
	{name: "refuses temporarily", http: http.StatusServiceUnavailable, grpc: "14", connects: true},
	{name: "refuses permanently", http: http.StatusBadRequest, grpc: "3", connects: true},
	{name: "is too busy", http: http.StatusTooManyRequests, grpc: "8", connects: true},
	{name: "hangs", noAnswer: true, connects: true},
	{name: "stores it and does not answer", takes: true, noAnswer: true, connects: true},
	{name: "is down"},
}

// backend receives OTLP over HTTP and gRPC without TLS, at one address.
type backend struct {
	address string

	mu       sync.Mutex
	mode     fault
	server   *http.Server
	answered int // requests that it acknowledged
	refused  int // requests that it did not acknowledge
	largest  int // bytes of the largest request, uncompressed
	last     map[string]sample
	taking   func(pmetric.Metrics) // called with each request that it stores
}

// maxMessage is gRPC's default limit for a message.
const maxMessage = 4 << 20

var tooLarge = fault{name: "refuses large requests", http: http.StatusRequestEntityTooLarge, grpc: "8", connects: true}

// sample is the last point of a series.
type sample struct {
	metric string
	state  string // energy.state
	pid    int64
	at     pcommon.Timestamp
	value  float64
}

func startBackend(t *testing.T) *backend {
	t.Helper()
	b := &backend{address: "127.0.0.1:0", last: map[string]sample{}, taking: func(pmetric.Metrics) {}}
	b.become(t, works)
	t.Cleanup(func() { b.become(t, fault{}) })
	return b
}

// become changes how the backend handles requests.
func (b *backend) become(t *testing.T, mode fault) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mode = mode
	if !mode.connects && b.server != nil {
		_ = b.server.Close() // it ends all connections
		b.server = nil
	}
	if mode.connects && b.server == nil {
		listener, err := net.Listen("tcp", b.address)
		require.NoError(t, err)
		b.address = listener.Addr().String()
		b.server = &http.Server{Handler: b, Protocols: new(http.Protocols)}
		b.server.Protocols.SetHTTP1(true)
		b.server.Protocols.SetUnencryptedHTTP2(true)
		server := b.server
		go func() { _ = server.Serve(listener) }()
	}
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	isGRPC := r.Header.Get("Content-Type") == "application/grpc"
	message, err := readMessage(r, isGRPC)
	var md pmetric.Metrics
	if err == nil {
		md, err = new(pmetric.ProtoUnmarshaler).UnmarshalMetrics(message)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	b.mu.Lock()
	mode := b.mode
	if len(message) > maxMessage {
		mode = tooLarge
	}
	b.largest = max(b.largest, len(message))
	switch {
	case mode.takes:
		b.keep(md)
		b.taking(md)
		if !mode.noAnswer {
			b.answered++
		}
	case !mode.noAnswer:
		b.refused++
	}
	b.mu.Unlock()
	switch {
	case mode.noAnswer:
		<-r.Context().Done()
	case isGRPC:
		w.Header().Set("Content-Type", "application/grpc")
		if mode.grpc == "0" {
			_, _ = w.Write(make([]byte, 5)) // an empty answer, not compressed
		}
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", mode.grpc)
	default:
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.WriteHeader(mode.http)
	}
}

// readMessage returns the OTLP message of a request. A gRPC message follows a byte, which is 1 if
// the message is compressed, and four bytes with its length.
func readMessage(r *http.Request, isGRPC bool) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	compressed := r.Header.Get("Content-Encoding") == "gzip"
	if isGRPC {
		if len(body) < 5 || int(binary.BigEndian.Uint32(body[1:])) != len(body)-5 {
			return nil, errors.New("not one gRPC message")
		}
		compressed = body[0] == 1
		body = body[5:]
	}
	if !compressed {
		return body, nil
	}
	unzip, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(unzip)
}

func (b *backend) taken() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.answered
}

func (b *backend) refusals() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused
}

func (b *backend) largestRequest() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.largest
}

// keep stores the energies of a request. It ignores points older than the stored ones: a request
// may arrive after its sender has given it up.
func (b *backend) keep(md pmetric.Metrics) {
	for _, rm := range md.ResourceMetrics().All() {
		attributes := rm.Resource().Attributes().AsRaw()
		resource := fmt.Sprint(attributes)
		pid, _ := attributes["process.pid"].(int64) // 0 if missing
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if m.Type() != pmetric.MetricTypeSum {
					continue
				}
				for _, p := range m.Sum().DataPoints().All() {
					series := fmt.Sprint(m.Name(), resource, p.Attributes().AsRaw(), p.StartTimestamp())
					if p.Flags().NoRecordedValue() || p.Timestamp() < b.last[series].at {
						continue
					}
					of := sample{metric: m.Name(), at: p.Timestamp(), value: p.DoubleValue()}
					if state, ok := p.Attributes().Get("energy.state"); ok {
						of.state = state.Str()
					}
					if m.Name() == "process.energy" {
						of.pid = pid
					}
					b.last[series] = of
				}
			}
		}
	}
}

// sum adds up the last values of the series that match.
func (b *backend) sum(matches func(sample) bool) (sum float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, of := range b.last {
		if matches(of) {
			sum += of.value
		}
	}
	return sum
}

func (b *backend) energyOf(pid int) float64 {
	return b.sum(func(s sample) bool { return s.pid == int64(pid) })
}

// child returns the map at a key, and creates it if it is missing.
func child(m map[string]any, keys ...string) map[string]any {
	for _, key := range keys {
		next, ok := m[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[key] = next
		}
		m = next
	}
	return m
}

// startPipeline starts a collector with a shipped configuration. Only its ends are changed: the
// receiver uses a model and collects every second, and if the configuration stores totals, they are
// in a separate directory. There is no API server for k8s_attributes; TestKubernetesDaemonSet has
// one.
func startPipeline(t *testing.T, binary, config string, env ...string) *collector {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../..", config))
	require.NoError(t, err)
	var all map[string]any
	require.NoError(t, yaml.Unmarshal(text, &all))
	receiver := child(all, "receivers", "energy")
	for key, value := range map[string]any{
		"root_path": "/", "collection_interval": "1s", "initial_delay": "0s", "meters": map[string]any{"use": []string{}}, "zones": []string{"package"},
		"model": map[string]any{"idle_power": 100, "max_power": 100}, "attribution": map[string]any{"preset": "kepler"},
		// With these limits new processes also get series.
		"series": map[string]any{"processes": map[string]any{"group_by": "pid", "min_energy": 0.01, "max": 500}},
	} {
		receiver[key] = value
	}
	delete(child(all, "extensions"), "health_check")
	delete(child(all, "service"), "extensions")
	if receiver["storage"] != nil {
		receiver["storage"] = t.TempDir()
	}
	delete(child(all, "processors"), "k8s_attributes")
	pipeline := child(all, "service", "pipelines", "metrics")
	pipeline["processors"] = slices.DeleteFunc(pipeline["processors"].([]any), func(p any) bool { return p == "k8s_attributes" })
	child(all, "service")["telemetry"] = map[string]any{"metrics": map[string]any{"level": "none"}, "logs": map[string]any{
		"sampling": map[string]any{"enabled": false},
	}}
	changed, err := yaml.Marshal(all)
	require.NoError(t, err)

	dir := filepath.Join(cache(t), "pipelines")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	name := filepath.Join(dir, strings.NewReplacer("/", "-", ".yaml", "").Replace(config))
	require.NoError(t, os.WriteFile(name+".yaml", changed, 0o600))
	c := &collector{log: name + ".log", cmd: exec.Command(binary, "--config", name+".yaml")}
	c.cmd.Env = append(os.Environ(), env...)
	c.ended = startDaemon(t, c.cmd, c.log)
	return c
}

// failures counts the exports that failed, whether or not the backend stored the data.
func (c *collector) failures(t *testing.T) int {
	t.Helper()
	log, err := os.ReadFile(c.log)
	require.NoError(t, err)
	require.Falsef(t, c.hasEnded(), "the collector ended: %s", lastLine(c.log))
	return strings.Count(string(log), "Exporting failed.")
}

// Each shipped pipeline that sends is run against a backend with each fault in turn. During each
// fault a process ends that has energy in the backend, and others start and end. Lost energy is
// missing in the sum at the end. During a fault the sum may not hold: parts of a collection may be
// refused.
func TestShippedPipelinesLoseNothing(t *testing.T) {
	need(t)
	load := build(t, "load")
	for config, binary := range map[string]func(*testing.T) string{
		"deploy/prometheus/collector.yaml": collectorBinary,
		"deploy/kubernetes/config.yaml":    kubernetesBinary,
	} {
		t.Run(config, func(t *testing.T) {
			b := startBackend(t)
			c := startPipeline(t, binary(t), config, "PROMETHEUS=http://"+b.address,
				"OTLP_ENDPOINT="+b.address, "OTLP_INSECURE=true", "K8S_NODE_NAME=node")
			fails := func(more int) {
				want := c.failures(t) + more
				eventually(t, "exports fail, the log is in "+c.log, func() bool { return c.failures(t) >= want })
			}
			takes := func(more int) {
				want := b.taken() + more
				eventually(t, "the backend has new energy, the log is in "+c.log, func() bool {
					return c.failures(t) >= 0 && b.taken() >= want
				})
			}
			type end struct {
				fault  string
				pid    int
				before float64 // its energy delivered before the fault
			}
			var ends []end
			for _, f := range faults {
				burner := exec.Command(load, "burn", "50", "0")
				ended := startDaemon(t, burner, os.DevNull)
				pid := burner.Process.Pid
				eventually(t, "the process has energy", func() bool { return b.energyOf(pid) > 0 })
				b.become(t, f)
				ends = append(ends, end{f.name, pid, b.energyOf(pid)})
				fails(1)
				require.NoError(t, burner.Process.Kill())
				<-ended
				fails(1)
				run(t, exec.Command(load, "child", "0.1"))
				fails(1)
				b.become(t, works)
				takes(2)
			}
			c.stop(t)
			for _, e := range ends {
				assert.Greaterf(t, b.energyOf(e.pid), e.before, "energy of a process that ended while the backend %s", e.fault)
			}
			processes := b.sum(func(s sample) bool { return s.metric == "process.energy" })
			unattributed := b.sum(func(s sample) bool { return s.metric == "system.unattributed.energy" })
			active := b.sum(func(s sample) bool { return s.metric == "system.energy" && s.state == "active" })
			t.Logf("processes %.6f J + unattributed %.6f J, active %.6f J", processes, unattributed, active)
			assert.InDelta(t, active, processes+unattributed, 0.5e-6, "processes and unattributed add up to active")
			assert.Positive(t, active)
		})
	}
}

// exposed is a line of the Prometheus text format, with or without a timestamp.
var exposed = regexp.MustCompile(`(?m)^([a-z_]+)\{(.*)\} (\S+)(?: \d+)?$`)

// scrape reads the exporter and adds up the last values of all series, by metric.
func scrape(t *testing.T, url string, last map[string]float64) (sums map[string]float64) {
	t.Helper()
	sums = map[string]float64{}
	answer, err := http.Get(url)
	if err != nil {
		return sums // not listening yet
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	for _, m := range exposed.FindAllStringSubmatch(string(text), -1) {
		value, err := strconv.ParseFloat(m[3], 64)
		require.NoError(t, err)
		last[m[1]+"{"+m[2]+"}"] = value
	}
	for series, value := range last {
		name, labels, _ := strings.Cut(series, "{")
		sums[name] += value
		if strings.Contains(labels, `energy_state="active"`) {
			sums[name+" active"] += value
		}
	}
	return sums
}

// valueOf returns the last energy of a process.
func valueOf(last map[string]float64, metric string, pid int) float64 {
	for _, label := range []string{"process_pid", "pid"} {
		for series, value := range last {
			if strings.HasPrefix(series, metric+"{") && strings.Contains(series, fmt.Sprintf(`%s="%d"`, label, pid)) {
				return value
			}
		}
	}
	return 0
}

// Each shipped pipeline that is scraped keeps ended series for a slow scraper, within
// metric_expiration.
func TestShippedPipelinesKeepEndedSeriesForTheNextScrape(t *testing.T) {
	need(t)
	load := build(t, "load")
	for config, binary := range map[string]func(*testing.T) string{
		"config.yaml":                collectorBinary,
		"deploy/systemd/config.yaml": collectorBinary,
		"deploy/docker/config.yaml":  collectorBinary,
		"deploy/kepler/config.yaml":  kubernetesBinary,
	} {
		t.Run(config, func(t *testing.T) {
			address := "127.0.0.1:" + freePort(t)
			c := startPipeline(t, binary(t), config, "ENERGY_PROMETHEUS_ENDPOINT="+address, "KEPLER_ENDPOINT="+address)
			metric, node := "process_energy_joules_total", "system_energy_joules_total"
			if strings.Contains(config, "kepler") {
				metric, node = "kepler_process_cpu_joules_total", "kepler_node_cpu_joules_total"
			}
			last := map[string]float64{}
			look := func() map[string]float64 {
				require.Falsef(t, c.hasEnded(), "the collector ended: %s", lastLine(c.log))
				return scrape(t, "http://"+address+"/metrics", last)
			}
			burner := exec.Command(load, "burn", "50", "0")
			ended := startDaemon(t, burner, os.DevNull)
			pid := burner.Process.Pid
			eventually(t, "the process has energy", func() bool { look(); return valueOf(last, metric, pid) > 0 })
			before := valueOf(last, metric, pid)
			run(t, exec.Command(load, "child", "1.5")) // longer than an interval
			require.NoError(t, burner.Process.Kill())
			<-ended
			gone := look()[node]
			ignored := map[string]float64{} // metrics that the other scraper misses
			eventually(t, "two collections pass, of 100 J each", func() bool {
				return scrape(t, "http://"+address+"/metrics", ignored)[node] > gone+250
			})
			var sums map[string]float64
			if metric == "process_energy_joules_total" {
				eventually(t, "processes and unattributed add up to active", func() bool {
					sums = look()
					missing := sums["system_energy_joules_total active"] - sums[metric] - sums["system_unattributed_energy_joules_total"]
					return sums[metric] > 0 && -0.5e-6 < missing && missing < 0.5e-6
				})
			}
			look()
			assert.Greater(t, valueOf(last, metric, pid), before)
		})
	}
}
