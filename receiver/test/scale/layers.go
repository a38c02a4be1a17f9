// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// layers are the processes between the nodes and the answers.
type layers struct {
	dir       string
	processes map[layer][]*process
	services  []*service
	sink      *sink
	server    *httptest.Server  // of the sink
	nodes     string            // the URL that nodes send to
	api       series.Prometheus // of the backend
}

// start starts the backend, the gateways and the balancers.
func (l *layers) start(p *plan) error {
	store, err := l.startStore(p)
	if err != nil {
		return err
	}
	gateways, balancers, config, limit := p.gateways, p.balancers, "deploy/gateway/gateway.yaml", "GOMEMLIMIT=400MiB"
	if p.to != "mimir" {
		gateways, balancers, config, limit = 1, 0, "receiver/test/scale/batch.yaml", "GOMEMLIMIT=off"
	}
	var grpc, front []string
	for i := range gateways {
		address := series.FreeAddress()
		grpc = append(grpc, address)
		environment := []string{limit, "OTLP_GRPC=" + address, "STORE=" + store, "QUEUE=" + filepath.Join(l.dir, fmt.Sprintf("queue-%d", i+1))}
		listens, err := l.startCollector(gatewayLayer, p.gateway, orDefault(p.gatewayConfigs, config), environment)
		if err != nil {
			return err
		}
		front = append(front, listens)
	}
	if balancers > 0 {
		front = nil
	}
	for range balancers {
		environment := []string{limit, `GATEWAYS=["` + strings.Join(grpc, `","`) + `"]`}
		listens, err := l.startCollector(balancerLayer, p.balancer, orDefault(p.balancerConfigs, "deploy/gateway/balancer.yaml"), environment)
		if err != nil {
			return err
		}
		front = append(front, listens)
	}
	address, err := l.service(front)
	l.nodes = "http://" + address + "/v1/metrics"
	return err
}

// startStore starts the backend, and returns its endpoint for OTLP over HTTP.
func (l *layers) startStore(p *plan) (string, error) {
	switch p.to {
	case "sink":
		l.sink = &sink{away: time.Now().Add(p.away)}
		l.server = httptest.NewServer(l.sink)
		return l.server.URL, nil
	case "prometheus":
		return l.startPrometheus(p.prometheus)
	case "mimir":
		return l.startMimir(p)
	}
	return "", fmt.Errorf("-to %s: it is sink, prometheus or mimir", p.to)
}

// startPrometheus starts Prometheus with the shipped configuration, without its rules.
func (l *layers) startPrometheus(binary string) (string, error) {
	text, err := os.ReadFile("deploy/prometheus/prometheus.yaml")
	if err != nil {
		return "", err
	}
	config := filepath.Join(l.dir, "prometheus.yaml")
	text = bytes.Replace(text, []byte("rule_files: [rules.yaml]"), nil, 1)
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return "", err
	}
	store, api, err := series.StartPrometheus(binary, l.dir, config)
	l.api, l.processes[storeLayer] = api, []*process{{Program: store, url: string(api)}}
	return string(api) + "/otlp", err
}

// startMimir starts the processes of Mimir, and returns one address for all of them.
func (l *layers) startMimir(p *plan) (string, error) {
	binary, err := filepath.Abs(p.mimir)
	if err != nil {
		return "", err
	}
	stores, addresses, err := series.StartMimir(".", binary, l.dir, p.stores)
	for i, store := range stores {
		l.processes[storeLayer] = append(l.processes[storeLayer], &process{Program: store, url: "http://" + addresses[i] + "/ready"})
	}
	if err != nil {
		return "", err
	}
	address, err := l.service(addresses)
	l.api = series.Prometheus("http://" + address + "/prometheus/api/v1")
	return "http://" + address + "/otlp", err
}

func orDefault(configs []string, config string) []string {
	if len(configs) > 0 {
		return configs
	}
	return []string{config}
}

// service returns one address for several.
func (l *layers) service(addresses []string) (string, error) {
	if len(addresses) == 1 {
		return addresses[0], nil
	}
	s, err := newService(addresses)
	if err != nil {
		return "", err
	}
	l.services = append(l.services, s)
	return s.address(), nil
}

// startCollector starts a collector, and returns the address on which it accepts OTLP over HTTP.
func (l *layers) startCollector(kind layer, path string, configs, environment []string) (string, error) {
	listens := series.FreeAddress()
	cmd := exec.Command(path)
	cmd.Env = append(append(os.Environ(), environment...), "OTLP_HTTP="+listens)
	for _, c := range configs {
		cmd.Args = append(cmd.Args, "--config", c)
	}
	log := filepath.Join(l.dir, fmt.Sprintf("%s-%d.log", kind, len(l.processes[kind])+1))
	p := &process{Program: &series.Program{Command: cmd, Log: log}, url: "http://" + listens}
	l.processes[kind] = append(l.processes[kind], p)
	return listens, p.Start(p.url)
}

// begin makes the processes' costs start at 0.
func (l *layers) begin() {
	for _, all := range l.processes {
		for _, p := range all {
			p.begin()
		}
	}
}

func (l *layers) end() {
	for _, s := range l.services {
		s.close()
	}
	for _, kind := range []layer{balancerLayer, gatewayLayer, storeLayer} {
		for _, p := range l.processes[kind] {
			p.End(unix.SIGKILL) // an orderly end would write data that is never read
		}
	}
	if l.server != nil {
		l.server.Close()
	}
}

// report writes the cost of each layer per collection.
func (l *layers) report(out io.Writer, collections, points int) {
	per := 1 / float64(collections)
	for _, kind := range []layer{balancerLayer, gatewayLayer, storeLayer} {
		var sum usage
		var memory []string
		for _, p := range l.processes[kind] {
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
