// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command scale simulates many nodes that send to one gateway. The receiver's own attribution and emission make each
// node's collections. They get the node's name as in the shipped configurations, and go to the gateway as OTLP over
// HTTP with gzip, each node at its own time. The measurements are written to standard output:
//
//	go run ./receiver/internal/test/scale -gateway build/otelcol-energy -to sink
//
// docs/scale.md has the figures and the conclusions.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

// plan is the configuration of a simulation.
type plan struct {
	nodes    int
	shape    shape
	interval time.Duration
	rounds   int
	burst    bool
	away     time.Duration

	gateway    string
	to         string
	prometheus string
	batch      int
	limitMiB   int
	goLimitMiB int
}

func main() {
	var p plan
	flag.IntVar(&p.nodes, "nodes", 200, "how many nodes")
	flag.IntVar(&p.shape.processes, "processes", 300, "processes of a node, each with a series")
	flag.IntVar(&p.shape.containers, "containers", 100, "containers of a node, two to a pod")
	flag.BoolVar(&p.shape.withoutProcesses, "without-processes", false, "process.energy and process.power are off")
	flag.BoolVar(&p.shape.withoutPower, "without-power", false, "the metrics of power are off")
	flag.DurationVar(&p.interval, "interval", 10*time.Second, "the nodes' collection_interval")
	flag.IntVar(&p.rounds, "rounds", 6, "collections of each node")
	flag.BoolVar(&p.burst, "burst", false, "all nodes send at once, as after the gateway was away")
	flag.DurationVar(&p.away, "away", 0, "how long the sink refuses at first")
	flag.StringVar(&p.gateway, "gateway", "build/otelcol-energy", "the collector that is the gateway")
	flag.StringVar(&p.to, "to", "sink", "where the gateway sends: sink (OTLP, to nowhere), prometheus (OTLP) or scrape (it is scraped)")
	flag.StringVar(&p.prometheus, "prometheus", "build/integration/prometheus/prometheus", "Prometheus, for -to prometheus")
	flag.IntVar(&p.batch, "batch", 8192, "send_batch_size of the gateway, 0 is no batch processor")
	flag.IntVar(&p.limitMiB, "limit", 1024, "limit_mib of the gateway's memory_limiter")
	flag.IntVar(&p.goLimitMiB, "gomemlimit", 0, "GOMEMLIMIT of the gateway in MiB, 0 is none")
	flag.Parse()
	if err := p.run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}
