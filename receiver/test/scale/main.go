// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command scale runs receivers of many nodes that send to gateways: OTLP over HTTP with gzip, each
// node at its own time. All nodes read the same simulated machine, in real time. The measurements
// are written to standard output:
//
//	go run ./receiver/test/scale -gateway build/otelcol-energy -to sink
//
// docs/production.md has the figures and the conclusions.
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
	away     time.Duration

	gateway string
	to      string

	// Of -to mimir.
	mimir, balancer                 string
	balancers, gateways, stores     int
	kill                            string
	down                            time.Duration
	queued                          bool
	gatewayConfigs, balancerConfigs []string
	logs                            string

	prometheus string
}

func main() {
	var p plan
	flag.IntVar(&p.nodes, "nodes", 200, "how many nodes")
	flag.IntVar(&p.shape.processes, "processes", 300, "processes of a node, each with a series; at least one per container")
	flag.IntVar(&p.shape.containers, "containers", 100, "containers of a node, two to a pod")
	flag.BoolVar(&p.shape.withoutProcesses, "without-processes", false, "process.energy and process.power are off")
	flag.BoolVar(&p.shape.withoutPower, "without-power", false, "the metrics of power are off")
	flag.DurationVar(&p.interval, "interval", 10*time.Second, "the nodes' collection_interval")
	flag.IntVar(&p.rounds, "rounds", 6, "collections of each node")
	flag.DurationVar(&p.away, "away", 0, "how long the sink refuses at first")
	flag.StringVar(&p.gateway, "gateway", "build/otelcol-energy", "the collector that is the gateway")
	flag.StringVar(&p.to, "to", "sink", "backend of the gateway: sink (OTLP, discarded), prometheus (OTLP) or mimir (several processes, behind several gateways)")
	flag.StringVar(&p.prometheus, "prometheus", "build/integration/prometheus/prometheus", "Prometheus, for -to prometheus")
	flag.StringVar(&p.mimir, "mimir", "build/integration/mimir/mimir", "Mimir, for -to mimir")
	flag.StringVar(&p.balancer, "balancer", "otelcol-contrib", "the collector that is the balancer, for -to mimir with -balancers: its path, or its name in PATH")
	flag.IntVar(&p.balancers, "balancers", 2, "-to mimir: how many balancers, 0 balances the nodes' connections over the gateways instead")
	flag.IntVar(&p.gateways, "gateways", 2, "-to mimir: how many gateways")
	flag.IntVar(&p.stores, "stores", 3, "-to mimir: how many processes of Mimir; each sample is in three of them")
	flag.StringVar(&p.kill, "kill", "", "-to mimir: processes to kill (SIGKILL) and times, such as gateway@20s,store2@40s")
	flag.DurationVar(&p.down, "down", 15*time.Second, "-to mimir: time until a killed process is started again")
	flag.Float64Var(&p.shape.births, "births", 0, "processes that start on the machine in a minute, to live for less than one")
	flag.BoolVar(&p.queued, "queued", false, "-to mimir: the nodes have a queue and send again, in place of the shipped settings")
	flag.Func("gateway-config", "the gateways' configuration; may be repeated (-to mimir: deploy/gateway/gateway.yaml, otherwise receiver/test/scale/batch.yaml)", appendTo(&p.gatewayConfigs))
	flag.Func("balancer-config", "-to mimir: the balancers' configuration; may be repeated (deploy/gateway/balancer.yaml)", appendTo(&p.balancerConfigs))
	flag.StringVar(&p.logs, "logs", "", "-to mimir: a directory that keeps the data and logs of all processes")
	flag.Parse()
	if err := p.run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func appendTo(list *[]string) func(string) error {
	return func(text string) error {
		*list = append(*list, text)
		return nil
	}
}
