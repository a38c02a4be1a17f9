// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// layers are the processes between the nodes and the answers.
type layers struct {
	dir      string
	stores   []*process
	gateways []*process
	balancer []*process
	services []*service
	sink     *sink
	nodes    string            // the URL that nodes send to
	page     string            // the page of the gateway's Prometheus exporter
	api      series.Prometheus // of the backend
}

// start starts the backend, the gateways and the balancers.
func (l *layers) start(p *plan) error {
	if p.to == "mimir" {
		return l.startCluster(p)
	}
	var err error
	if l.sink, err = startSink(p.away); err != nil {
		return err
	}
	backend := l.sink.url
	if p.to == "prometheus" {
		config := filepath.Join(l.dir, "prometheus.yaml")
		text, err := os.ReadFile("deploy/prometheus/prometheus.yaml")
		if err != nil {
			return err
		}
		text = []byte(strings.Replace(string(text), "rule_files: [rules.yaml]", "", 1))
		if err := os.WriteFile(config, text, 0o600); err != nil {
			return err
		}
		store, api, err := series.StartPrometheus(p.prometheus, l.dir, config)
		l.stores, l.api, backend = []*process{{Program: store, url: string(api)}}, api, string(api)+"/otlp"
		if err != nil {
			return err
		}
	}
	return l.startGateway(p, backend)
}

// gatewayConfig is the configuration of a single gateway with a batch processor.
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

func (l *layers) startGateway(p *plan, backend string) error {
	receive, serve := series.FreeAddress(), series.FreeAddress()
	processors, exporter := "memory_limiter", "otlp_http"
	if p.batch > 0 {
		processors += ", batch"
	}
	if p.to == "scrape" {
		exporter, l.page = "prometheus", "http://"+serve+"/metrics"
	}
	config := filepath.Join(l.dir, "gateway.yaml")
	text := strings.NewReplacer("RECEIVE", receive, "LIMIT", strconv.Itoa(p.limitMiB), "SPIKE", strconv.Itoa(p.limitMiB/5),
		"BATCH", strconv.Itoa(p.batch), "BACKEND", backend, "SERVE", serve, "PROCESSORS", processors, "EXPORTER", exporter).Replace(gatewayConfig)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	var environment []string
	if p.goLimitMiB > 0 {
		environment = []string{fmt.Sprintf("GOMEMLIMIT=%dMiB", p.goLimitMiB)}
	}
	gateway, err := l.collector(gatewayLayer, 0, p.gateway, environment, []string{config}, receive)
	l.gateways, l.nodes = []*process{gateway}, "http://"+receive+"/v1/metrics"
	return err
}

// startCluster starts processes of Mimir, gateways and balancers.
func (l *layers) startCluster(p *plan) error {
	binary, err := filepath.Abs(p.mimir)
	if err != nil {
		return err
	}
	stores, addresses, err := series.StartMimir(".", binary, l.dir, p.stores)
	for i, store := range stores {
		l.stores = append(l.stores, &process{Program: store, url: "http://" + addresses[i] + "/ready"})
	}
	if err != nil {
		return err
	}
	store, err := l.service(addresses)
	if err != nil {
		return err
	}
	l.api = series.Prometheus("http://" + store + "/prometheus/api/v1")
	var grpc, front []string
	for i := range p.gateways {
		g, h := series.FreeAddress(), series.FreeAddress()
		grpc, front = append(grpc, g), append(front, h)
		environment := []string{"OTLP_GRPC=" + g, "OTLP_HTTP=" + h, "STORE=http://" + store + "/otlp", "GOMEMLIMIT=400MiB",
			"QUEUE=" + filepath.Join(l.dir, fmt.Sprintf("queue-%d", i+1))}
		gateway, err := l.collector(gatewayLayer, i, p.gateway, environment, orDefault(p.gatewayConfigs, "deploy/gateway/gateway.yaml"), h)
		l.gateways = append(l.gateways, gateway)
		if err != nil {
			return err
		}
	}
	if p.balancers > 0 {
		front = nil
	}
	for i := range p.balancers {
		h := series.FreeAddress()
		front = append(front, h)
		environment := []string{"OTLP_HTTP=" + h, `GATEWAYS=["` + strings.Join(grpc, `","`) + `"]`, "GOMEMLIMIT=400MiB"}
		balancer, err := l.collector(balancerLayer, i, p.balancer, environment, orDefault(p.balancerConfigs, "deploy/gateway/balancer.yaml"), h)
		l.balancer = append(l.balancer, balancer)
		if err != nil {
			return err
		}
	}
	address, err := l.service(front)
	l.nodes = "http://" + address + "/v1/metrics"
	return err
}

func orDefault(configs []string, config string) []string {
	if len(configs) > 0 {
		return configs
	}
	return []string{config}
}

// service returns an address that stands for several.
func (l *layers) service(addresses []string) (string, error) {
	s, err := newService(addresses)
	if err != nil {
		return "", err
	}
	l.services = append(l.services, s)
	return s.address(), nil
}

// collector starts a collector that listens on an address for OTLP over HTTP.
func (l *layers) collector(kind layer, index int, path string, environment, configs []string, listens string) (*process, error) {
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), environment...)
	for _, c := range configs {
		cmd.Args = append(cmd.Args, "--config", c)
	}
	log := filepath.Join(l.dir, fmt.Sprintf("%s-%d.log", kind, index+1))
	p := &process{Program: &series.Program{Command: cmd, Log: log}, url: "http://" + listens}
	return p, p.Start(p.url)
}

func (l *layers) of(kind layer) []*process {
	return map[layer][]*process{balancerLayer: l.balancer, gatewayLayer: l.gateways, storeLayer: l.stores}[kind]
}

// begin makes the processes' costs start at 0.
func (l *layers) begin() {
	for _, kind := range allLayers {
		for _, p := range l.of(kind) {
			p.begin()
		}
	}
}

func (l *layers) end() {
	for _, s := range l.services {
		s.close()
	}
	for _, kind := range allLayers {
		for _, p := range l.of(kind) {
			p.End(unix.SIGKILL) // an orderly end would write data that is never read
		}
	}
	if l.sink != nil {
		l.sink.close()
	}
}

// report writes the cost of each layer per collection.
func (l *layers) report(out io.Writer, collections, points int) {
	per := 1 / float64(collections)
	for _, kind := range allLayers {
		var sum usage
		var memory []string
		for _, p := range l.of(kind) {
			u := p.used()
			sum.add(u)
			memory = append(memory, fmt.Sprint(u.resident>>20))
		}
		if memory != nil {
			_, _ = fmt.Fprintf(out, "%d %ss, a collection: %.2f ms CPU (%.1f µs per 1,000 points), %.1f kB read, %.1f kB written; at most %s MiB resident\n",
				len(memory), kind, sum.cpu.Seconds()*1e3*per, sum.cpu.Seconds()*1e9/float64(points), float64(sum.in)*per/1e3, float64(sum.out)*per/1e3,
				strings.Join(memory, ", "))
		}
	}
}

// scrape reads the page of the gateway's Prometheus exporter.
func scrape(url string) error {
	answer, err := http.Get(url) //nolint:gosec // of loopback
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return errors.Join(err, answer.Body.Close())
}
