// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric"
)

const patience = 5 * time.Minute

// agents is the set of collections and the cost of encoding them.
type agents struct {
	collections, points, bytes, packed int
	cpu                                time.Duration
}

// message is an encoded collection.
type message struct {
	body   []byte
	points int
}

func (p *plan) run(out io.Writer) error {
	if p.to == "mimir" {
		return p.runDistributed(out)
	}
	dir, err := os.MkdirTemp("", "scale-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // not kept after the run
	sink, err := startSink(p.away)
	if err != nil {
		return err
	}
	defer sink.close()

	store, backend := (*program)(nil), sink.url
	if p.to == "prometheus" {
		store, backend, err = startPrometheus(p.prometheus, dir)
		if err != nil {
			return err
		}
		defer store.end()
	}
	gateway, endpoint, metrics, err := p.startGateway(dir, backend)
	if err != nil {
		return err
	}
	defer gateway.end()

	began := time.Now()
	gateway.begin()
	if store != nil {
		store.begin()
	}
	made, refused, err := p.send(endpoint, metrics)
	if err != nil {
		return err
	}
	if p.to == "sink" {
		if err := sink.wait(made.points); err != nil {
			return err
		}
	}
	took := time.Since(began)

	per := func(n int) float64 { return float64(n) / float64(made.collections) }
	_, _ = fmt.Fprintf(out, "%d nodes, %d collections each, %v apart\n", p.nodes, p.rounds, p.interval)
	_, _ = fmt.Fprintf(out, "a collection: %.0f points, %.1f kB, %.1f kB with gzip, %.2f ms of the agent's CPU to pack it\n",
		per(made.points), per(made.bytes)/1e3, per(made.packed)/1e3, made.cpu.Seconds()*1e3/float64(made.collections))
	report := func(name string, g *program) {
		used := g.used()
		_, _ = fmt.Fprintf(out, "%s: %.2f ms CPU per collection, %.1f µs per 1,000 points, %.1f %% of a core for %d nodes, at most %d MiB resident\n",
			name, used.cpu.Seconds()*1e3/float64(made.collections), used.cpu.Seconds()*1e9/float64(made.points),
			100*used.cpu.Seconds()/float64(p.rounds)/p.interval.Seconds(), p.nodes, used.resident>>20)
	}
	report("gateway", gateway)
	if store != nil {
		report("prometheus", store)
		series, err := countSeries(backend)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "series in prometheus: %d, of %d nodes with %d each\n", series, p.nodes, p.shape.points())
	}
	_, _ = fmt.Fprintf(out, "refused and sent again: %d, in %.0f s\n", refused, took.Seconds())
	if p.to == "sink" {
		_, _ = fmt.Fprintf(out, "arrived at the sink: %d of %d points, in %d requests of %.1f kB\n",
			sink.points.Load(), made.points, sink.requests.Load(), float64(sink.bytes.Load())/float64(sink.requests.Load())/1e3)
	}
	return nil
}

// send encodes all collections and sends each at its time.
func (p *plan) send(endpoint, metrics string) (made agents, refused int, err error) {
	now := time.Now()
	nodes := make([]*node, p.nodes)
	for i := range nodes {
		nodes[i] = newNode(i, p.shape, now)
	}
	var wg sync.WaitGroup
	var again atomic.Int64
	failed := make(chan error, 1)
	fail := func(err error) {
		select {
		case failed <- err:
		default: // the first error is enough
		}
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: p.nodes}}
	start := time.Now()
	for round := range p.rounds {
		var waiting []message
		for i, n := range nodes {
			m, err := made.pack(n.collect(p.interval))
			if err != nil {
				return made, 0, err
			}
			if waiting = append(waiting, m); p.burst && i+1 < len(nodes) {
				continue
			}
			due := start.Add(time.Duration(round)*p.interval + p.interval*time.Duration(i)/time.Duration(len(nodes)))
			time.Sleep(time.Until(due))
			for _, m := range waiting {
				wg.Go(func() {
					n, err := post(client, endpoint, m.body, firstRetry)
					again.Add(int64(n))
					if err != nil {
						fail(err)
					}
				})
			}
			waiting = nil
			if p.to == "scrape" && i+1 == len(nodes) {
				wg.Wait()
				if err := scrape(metrics); err != nil {
					return made, 0, err
				}
			}
		}
	}
	wg.Wait()
	select {
	case err := <-failed:
		return made, 0, err
	default:
		return made, int(again.Load()), nil
	}
}

func (a *agents) pack(md pmetric.Metrics) (message, error) {
	runtime.LockOSThread() // its CPU time is measured
	defer runtime.UnlockOSThread()
	before := ownCPU()
	var marshaler pmetric.ProtoMarshaler // a request has the same bytes
	raw, err := marshaler.MarshalMetrics(md)
	if err != nil {
		return message{}, err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(raw)
	if err = errors.Join(err, z.Close()); err != nil {
		return message{}, err
	}
	a.cpu += ownCPU() - before
	m := message{packed.Bytes(), md.DataPointCount()}
	a.collections++
	a.points += m.points
	a.bytes += len(raw)
	a.packed += len(m.body)
	return m, nil
}

// ownCPU returns the CPU time of the thread, without the rest of the program.
func ownCPU() time.Duration {
	var u syscall.Rusage
	const thread = 1 // RUSAGE_THREAD
	_ = syscall.Getrusage(thread, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// firstRetry and lastRetry are the default limits of the wait between two attempts of a collector's exporter.
const firstRetry, lastRetry = 5 * time.Second, 30 * time.Second

// post sends until the gateway acknowledges, as an exporter that retries, and returns how often it was refused.
func post(client *http.Client, url string, body []byte, retry time.Duration) (refused int, err error) {
	for began := time.Now(); ; refused++ {
		_, err := exportOnce(context.Background(), client, url, body)
		if err == nil || errors.Is(err, errForGood) || time.Since(began) > patience {
			return refused, err
		}
		time.Sleep(retry)
		retry = min(retry*3/2, lastRetry)
	}
}

func scrape(url string) error {
	answer, err := http.Get(url) //nolint:gosec // the gateway's own
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// gatewayConfig is the configuration of a gateway as described in docs/production.md.
const gatewayConfig = `
receivers:
  otlp: {protocols: {http: {endpoint: RECEIVE}}}
processors:
  memory_limiter: {check_interval: 1s, limit_mib: LIMIT, spike_limit_mib: SPIKE}
  batch: {send_batch_size: BATCH, send_batch_max_size: BATCH, timeout: 200ms}
exporters:
  otlp_http: {endpoint: BACKEND}
  prometheus:
    endpoint: SERVE
    resource_to_telemetry_conversion: {enabled: true}
    metric_expiration: 30s
    without_scope_info: true
service:
  pipelines:
    metrics: {receivers: [otlp], processors: [PROCESSORS], exporters: [EXPORTER]}
  telemetry: {metrics: {level: none}}
`

func (p *plan) startGateway(dir, backend string) (gateway *program, endpoint, metrics string, err error) {
	receive, serve := freeAddress(), freeAddress()
	processors, exporter := "memory_limiter", "otlp_http"
	if p.batch > 0 {
		processors += ", batch"
	}
	if p.to == "scrape" {
		exporter = "prometheus"
	}
	config := filepath.Join(dir, "gateway.yaml")
	text := strings.NewReplacer("RECEIVE", receive, "LIMIT", strconv.Itoa(p.limitMiB), "SPIKE", strconv.Itoa(p.limitMiB/5),
		"BATCH", strconv.Itoa(p.batch), "BACKEND", backend, "SERVE", serve, "PROCESSORS", processors, "EXPORTER", exporter).Replace(gatewayConfig)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, "", "", err
	}
	var environment []string
	if p.goLimitMiB > 0 {
		environment = []string{fmt.Sprintf("GOMEMLIMIT=%dMiB", p.goLimitMiB)}
	}
	gateway, err = start(filepath.Join(dir, "gateway.log"), environment, p.gateway, "--config", config)
	if err != nil {
		return nil, "", "", err
	}
	return gateway, "http://" + receive + "/v1/metrics", "http://" + serve + "/metrics", gateway.ready(receive)
}

// prometheusConfig promotes the attributes that distinguish series, as deploy/prometheus/prometheus.yaml does.
const prometheusConfig = `
otlp:
  promote_all_resource_attributes: true
storage:
  tsdb: {out_of_order_time_window: 1m}
`

func startPrometheus(path, dir string) (p *program, url string, err error) {
	config := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(config, []byte(prometheusConfig), 0o600); err != nil {
		return nil, "", err
	}
	listen := freeAddress()
	p, err = start(filepath.Join(dir, "prometheus.log"), nil, path, "--config.file="+config, "--web.enable-otlp-receiver",
		"--web.listen-address="+listen, "--storage.tsdb.path="+filepath.Join(dir, "data"))
	if err != nil {
		return nil, "", err
	}
	return p, "http://" + listen + "/api/v1/otlp", p.ready(listen)
}

// countSeries is how many a Prometheus has: https://prometheus.io/docs/prometheus/latest/querying/api/#tsdb-stats
func countSeries(url string) (int, error) {
	answer, err := http.Get(strings.TrimSuffix(url, "/otlp") + "/status/tsdb")
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	var status struct {
		Data struct{ HeadStats struct{ NumSeries int } }
	}
	err = json.NewDecoder(answer.Body).Decode(&status)
	return status.Data.HeadStats.NumSeries, err
}

// freeAddress returns an unused port of loopback.
func freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "127.0.0.1:4318"
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// program is a process whose cost is measured. It may be killed and started again.
type program struct {
	path        string
	args        []string
	environment []string
	dir, log    string

	mu       sync.Mutex
	cmd      *exec.Cmd
	spent    usage // of its earlier processes
	baseline usage
}

// usage is the resource usage of a program.
type usage struct {
	cpu      time.Duration
	in, out  int64 // bytes that it read and wrote, of files and connections
	resident int64 // bytes, the most at any time
}

func start(logPath string, environment []string, path string, args ...string) (*program, error) {
	p := &program{path: path, args: args, environment: environment, log: logPath}
	return p, p.start()
}

// start starts the program, or starts it again.
func (p *program) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	p.cmd = exec.CommandContext(context.Background(), p.path, p.args...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = log, log, p.dir
	p.cmd.Env = append(os.Environ(), p.environment...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return p.cmd.Start()
}

// kill ends the program as kill -9 does.
func (p *program) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	p.spent = p.total()
	err := p.cmd.Process.Kill()
	_ = p.cmd.Wait() // killed
	p.cmd = nil
	return err
}

// pid returns 0 if the program does not run.
func (p *program) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// ready waits until the program listens.
func (p *program) ready(address string) error {
	for began := time.Now(); time.Since(began) < patience; time.Sleep(50 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			return c.Close()
		}
		if p.ended() {
			break
		}
	}
	text, _ := os.ReadFile(p.log) // a missing log is empty
	return fmt.Errorf("%s does not listen: %s", p.path, text)
}

// ended reports whether the program has ended by itself.
func (p *program) ended() bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid()))
	_, after, _ := strings.Cut(string(text), ") ")
	return err != nil || strings.HasPrefix(after, "Z")
}

func (p *program) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.baseline = p.total()
}

// used returns what the program has used since begin. The memory is the most that it ever had.
func (p *program) used() usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.total()
	u.cpu, u.in, u.out = u.cpu-p.baseline.cpu, u.in-p.baseline.in, u.out-p.baseline.out
	return u
}

func (p *program) total() usage {
	u := p.spent
	if p.cmd == nil {
		return u
	}
	now := usageOf(p.cmd.Process.Pid)
	u.cpu, u.in, u.out, u.resident = u.cpu+now.cpu, u.in+now.in, u.out+now.out, max(u.resident, now.resident)
	return u
}

// usageOf reads what a process has used; nothing once it has ended.
func usageOf(pid int) (u usage) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(text), ") ")
	if fields := strings.Fields(after); len(fields) > 12 {
		const userTime, systemTime = 11, 12 // after the name, proc_pid_stat(5)
		for _, i := range []int{userTime, systemTime} {
			ticks, _ := strconv.ParseInt(fields[i], 10, 64)
			u.cpu += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	u.resident = procField(pid, "status", "VmHWM:") << 10
	u.in, u.out = procField(pid, "io", "rchar:"), procField(pid, "io", "wchar:")
	return u
}

// procField returns a number of a file in /proc, 0 if it is not there.
func procField(pid int, file, name string) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return n
		}
	}
	return 0
}

func (p *program) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		_ = p.cmd.Wait()
	}
}

// sink receives OTLP and counts the points.
type sink struct {
	url                     string
	away                    time.Time // it refuses until then
	server                  *http.Server
	requests, bytes, points atomic.Int64
}

func startSink(away time.Duration) (*sink, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sink{url: "http://" + l.Addr().String(), away: time.Now().Add(away)}
	s.server = &http.Server{Handler: http.HandlerFunc(s.take), ReadHeaderTimeout: time.Minute}
	go func() { _ = s.server.Serve(l) }()
	return s, nil
}

func (s *sink) take(w http.ResponseWriter, r *http.Request) {
	if time.Now().Before(s.away) {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	points, size, err := read(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.requests.Add(1)
	s.bytes.Add(int64(size))
	s.points.Add(int64(points))
}

// read returns the number of points in a request, and its size as sent.
func read(r *http.Request) (points, size int, err error) {
	packed, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, 0, err
	}
	body := packed
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return 0, 0, err
		}
		if body, err = io.ReadAll(z); err != nil {
			return 0, 0, err
		}
	}
	var unmarshaler pmetric.ProtoUnmarshaler
	md, err := unmarshaler.UnmarshalMetrics(body)
	if err != nil {
		return 0, 0, err
	}
	return md.DataPointCount(), len(packed), nil
}

// wait waits until all points have arrived.
func (s *sink) wait(points int) error {
	for began := time.Now(); s.points.Load() < int64(points); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > patience {
			return fmt.Errorf("of %d points %d arrived", points, s.points.Load())
		}
	}
	return nil
}

func (s *sink) close() { _ = s.server.Close() }
