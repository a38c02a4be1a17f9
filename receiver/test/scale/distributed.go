// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// layers are the processes between the nodes and the answers.
type layers struct {
	dir      string
	stores   []*program
	gateways []*program
	balancer []*program
	services []*service
	nodes    string // the address that nodes send to
	api      string // the address of the store's queries
}

// runDistributed sends the nodes' collections through balancers and gateways to several processes
// of Mimir, and compares what Mimir answers with what the nodes made.
func (p *plan) runDistributed(out io.Writer) error {
	faults, err := parseFaults(p.kill, p.down)
	if err != nil {
		return err
	}
	l := &layers{dir: p.logs}
	if l.dir == "" {
		if l.dir, err = os.MkdirTemp("", "scale-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(l.dir) }() // not kept after the run
	}
	defer l.end()
	if err := l.start(p); err != nil {
		return err
	}
	nodes, w, err := p.sendDistributed(l, faults, out)
	if err != nil {
		return err
	}
	l.report(out, p, nodes)
	table, worst, err := compareAll(l.api, nodes, w)
	lacks := func(c comparison) bool { return c.made-c.stored > microjoule }
	for attempt := 0; err == nil && attempt < 3 && slices.ContainsFunc(table, lacks); attempt++ {
		time.Sleep(5 * time.Second) // what is in a queue is on its way
		table, worst, err = compareAll(l.api, nodes, w)
	}
	if err != nil {
		return err
	}
	printComparison(out, table, worst)
	if slices.ContainsFunc(table, comparison.isWrong) {
		return errors.New("the store has other joules than the nodes made")
	}
	return nil
}

func (l *layers) start(p *plan) error {
	stores, err := l.startStores(p)
	if err != nil {
		return err
	}
	l.api = "http://" + stores + "/prometheus/api/v1"
	var grpc, http []string
	for i := range p.gateways {
		g, h := freeAddress(), freeAddress()
		grpc, http = append(grpc, g), append(http, h)
		environment := []string{"OTLP_GRPC=" + g, "OTLP_HTTP=" + h, "STORE=http://" + stores + "/otlp", "GOMEMLIMIT=400MiB",
			"QUEUE=" + filepath.Join(l.dir, fmt.Sprintf("queue-%d", i+1))}
		gateway, err := l.collector(gatewayLayer, i, p.gateway, environment, p.gatewayConfigs, "deploy/gateway/gateway.yaml", h)
		if err != nil {
			return err
		}
		l.gateways = append(l.gateways, gateway)
	}
	var front []string
	for i := range p.balancers {
		h := freeAddress()
		front = append(front, h)
		environment := []string{"OTLP_HTTP=" + h, `GATEWAYS=["` + strings.Join(grpc, `","`) + `"]`, "GOMEMLIMIT=400MiB"}
		balancer, err := l.collector(balancerLayer, i, p.balancer, environment, p.balancerConfigs, "deploy/gateway/balancer.yaml", h)
		if err != nil {
			return err
		}
		l.balancer = append(l.balancer, balancer)
	}
	if p.balancers == 0 {
		front = http
	}
	l.nodes, err = l.service(front)
	return err
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

func (l *layers) collector(kind layer, index int, path string, environment, configs []string, config, listens string) (*program, error) {
	if len(configs) == 0 {
		configs = []string{config}
	}
	var args []string
	for _, c := range configs {
		args = append(args, "--config", c)
	}
	c, err := start(l.log(kind, index), environment, path, args...)
	if err != nil {
		return nil, err
	}
	return c, c.ready(listens)
}

func (l *layers) log(kind layer, index int) string {
	return filepath.Join(l.dir, fmt.Sprintf("%s-%d.log", kind, index+1))
}

const mimirConfig = "receiver/test/stores/mimir/mimir.yaml"

// startStores starts processes of Mimir that know each other, and returns an address that stands for all of them.
func (l *layers) startStores(p *plan) (address string, err error) {
	promoted, err := promotedAttributes()
	if err != nil {
		return "", err
	}
	config, err := filepath.Abs(mimirConfig)
	if err != nil {
		return "", err
	}
	binary, err := filepath.Abs(p.mimir)
	if err != nil {
		return "", err
	}
	var addresses, members []string
	for range p.stores {
		addresses, members = append(addresses, freeAddress()), append(members, freeAddress())
	}
	port := func(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }
	for i, a := range addresses {
		dir := filepath.Join(l.dir, fmt.Sprintf("store-%d", i+1))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
		store := &program{path: binary, args: []string{"-config.file=" + config, "-config.expand-env=true"}, dir: dir, log: l.log(storeLayer, i),
			environment: []string{"PORT=" + port(a), "GRPC_PORT=" + port(freeAddress()), "GOSSIP_PORT=" + port(members[i]), "PROMOTED=" + promoted,
				fmt.Sprintf("MIMIR_NAME=store-%d", i+1), "MIMIR_MEMBERS=" + strings.Join(members, ","), "MIMIR_COPIES=3", "MIMIR_SHARED=" + filepath.Join(l.dir, "blocks")}}
		if err := store.start(); err != nil {
			return "", err
		}
		l.stores = append(l.stores, store)
	}
	for i, a := range addresses {
		if err := l.stores[i].answers("http://" + a + "/ready"); err != nil {
			return "", err
		}
	}
	return l.service(addresses)
}

// answers waits until an address answers with status 200.
func (p *program) answers(url string) error {
	for began := time.Now(); time.Since(began) < patience && !p.ended(); time.Sleep(50 * time.Millisecond) {
		answer, err := http.Get(url) //nolint:gosec // of loopback
		if err != nil {
			continue
		}
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return nil
		}
	}
	text, _ := os.ReadFile(p.log) // a missing log is empty
	return fmt.Errorf("%s is not ready: %s", p.path, text)
}

var promotedItem = regexp.MustCompile(`(?m)^    - ([a-z0-9._]+)`)

// promotedAttributes returns the resource attributes that the shipped configuration of Prometheus makes labels.
func promotedAttributes() (string, error) {
	text, err := os.ReadFile("deploy/prometheus/prometheus.yaml")
	if err != nil {
		return "", err
	}
	var names []string
	for _, item := range promotedItem.FindAllSubmatch(text, -1) {
		names = append(names, string(item[1]))
	}
	return strings.Join(names, ","), nil
}

func (l *layers) of(kind layer) []*program {
	return map[layer][]*program{balancerLayer: l.balancer, gatewayLayer: l.gateways, storeLayer: l.stores}[kind]
}

func (l *layers) end() {
	for _, s := range l.services {
		s.close()
	}
	for _, kind := range []layer{balancerLayer, gatewayLayer, storeLayer} {
		for _, p := range l.of(kind) {
			_ = p.kill() // an orderly end would write data that is never read
		}
	}
}

// sendDistributed lets all nodes collect and send while the faults happen. It returns once every process runs again.
func (p *plan) sendDistributed(l *layers, faults []fault, out io.Writer) ([]*agent, window, error) {
	start := time.Now().Add(2 * time.Second).Truncate(time.Second)
	length := time.Duration(p.rounds) * p.interval
	took := time.Duration(float64(length) / p.speed)
	s := schedule{start: start, begin: start.Add(took - length), interval: p.interval, rounds: p.rounds, speed: p.speed}
	const before = 2 // collections of each node before the window
	w := window{begin: s.begin.Add(before*p.interval - time.Millisecond), end: s.begin.Add(length - time.Millisecond)}
	nodes := make([]*agent, p.nodes)
	for i := range nodes {
		offset := p.interval * time.Duration(i) / time.Duration(p.nodes)
		nodes[i] = &agent{
			node: newNode(i, p.shape, s.begin.Add(offset-p.interval)), truth: newTruth(w.begin), queued: p.queued,
			client: &http.Client{Transport: &http.Transport{}}, url: "http://" + l.nodes + "/v1/metrics",
		}
	}
	for _, kind := range []layer{balancerLayer, gatewayLayer, storeLayer} {
		for _, process := range l.of(kind) {
			process.begin()
		}
	}
	var failing, sending group
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, f := range faults {
		processes := l.of(f.layer)
		if f.index >= len(processes) {
			return nil, w, fmt.Errorf("there is no %s %d", f.layer, f.index+1)
		}
		failing.Go(func() error { return f.inflict(ctx, processes[f.index], start, out) })
	}
	for i, n := range nodes {
		s.offset = p.interval * time.Duration(i) / time.Duration(p.nodes)
		sending.Go(func() error { return n.run(ctx, s, w.begin) })
	}
	err := sending.Wait()
	cancel()
	for _, n := range nodes {
		if last := n.node.now.Add(time.Millisecond); last.After(w.end) {
			w.end = last
		}
	}
	return nodes, w, errors.Join(err, failing.Wait())
}

// report writes what each layer has used.
func (l *layers) report(out io.Writer, p *plan, nodes []*agent) {
	var made agents
	var refused, forGood, dropped int
	for _, n := range nodes {
		made.collections, made.points = made.collections+n.cost.collections, made.points+n.cost.points
		made.bytes, made.packed, made.cpu = made.bytes+n.cost.bytes, made.packed+n.cost.packed, made.cpu+n.cost.cpu
		refused, forGood, dropped = refused+n.refused, forGood+n.forGood, dropped+n.dropped
	}
	per := 1 / float64(made.collections)
	_, _ = fmt.Fprintf(out, "%d nodes, %d collections every %v of their time: %.0f points, %.1f kB with gzip, %.2f ms of the agent's CPU to pack it\n",
		p.nodes, made.collections, p.interval, float64(made.points)*per, float64(made.packed)*per/1e3, made.cpu.Seconds()*1e3*per)
	_, _ = fmt.Fprintf(out, "requests that were not acknowledged: %d, of these refused for good: %d; points rejected of those that were: %d\n", refused, forGood, dropped)
	for _, kind := range []layer{balancerLayer, gatewayLayer, storeLayer} {
		var sum usage
		var memory []string
		for _, process := range l.of(kind) {
			u := process.used()
			sum.cpu, sum.in, sum.out = sum.cpu+u.cpu, sum.in+u.in, sum.out+u.out
			memory = append(memory, fmt.Sprint(u.resident>>20))
		}
		if memory != nil {
			_, _ = fmt.Fprintf(out, "%d %ss, a collection: %.2f ms CPU, %.1f kB read, %.1f kB written; at most %s MiB resident\n",
				len(memory), kind, sum.cpu.Seconds()*1e3*per, float64(sum.in)*per/1e3, float64(sum.out)*per/1e3, strings.Join(memory, ", "))
		}
	}
}

// group runs functions and keeps their errors.
type group struct {
	sync.WaitGroup
	mu  sync.Mutex
	err error
}

func (g *group) Go(f func() error) {
	g.WaitGroup.Go(func() {
		err := f()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.err = errors.Join(g.err, err)
	})
}

func (g *group) Wait() error {
	g.WaitGroup.Wait()
	return g.err
}
