// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// shape is the size of a node and the metrics that it reports.
type shape struct {
	processes, containers          int
	births                         float64 // processes that are born a minute
	withoutProcesses, withoutPower bool
}

const podSize = 2 // containers

// points returns how many data points a node reports in each collection. A node has two sockets with two zones each.
func (s shape) points() int {
	const kinds, zones, states = 2, 4, 2
	amounts := 2 // energy and power
	if s.withoutPower {
		amounts = 1
	}
	workloads := s.containers + s.containers/podSize
	if !s.withoutProcesses {
		workloads += s.processes + 1 // the series of other processes
	}
	return amounts*(workloads*kinds+zones+states*kinds) + kinds // unattributed
}

// node is a machine with two sockets. A third of its processes are in no container.
type node struct {
	name    string
	random  *rand.Rand
	engine  *ledger.Ledger
	emitter *emit.Emitter
	now     time.Time
	running []attribution.Claimant
	totals  [4]units.Energy

	containers []identity.Owner
	births     float64  // processes a minute
	unborn     float64  // part of the next one
	short      []mortal // processes that end
	nextPID    int32
}

// mortal is a process that ends.
type mortal struct {
	attribution.Claimant
	end time.Time
}

var zones = []power.Zone{
	{ID: "intel-rapl:0", Name: "package-0", Kind: power.Package, Method: power.Measured},
	{ID: "intel-rapl:0:0", Name: "dram", Kind: power.DRAM, Parent: "intel-rapl:0", Method: power.Measured},
	{ID: "intel-rapl:1", Name: "package-1", Kind: power.Package, Method: power.Measured},
	{ID: "intel-rapl:1:0", Name: "dram", Kind: power.DRAM, Parent: "intel-rapl:1", Method: power.Measured},
}

func newNode(number int, s shape, now time.Time) *node {
	n := &node{
		name:   fmt.Sprintf("node-%05d.example.com", number),
		random: rand.New(rand.NewPCG(uint64(number), 1)), //nolint:gosec // the same at each run
		engine: ledger.New(ledger.Config{}, now),
		now:    now,
	}
	n.emitter = emit.New(emit.Config{
		MetricsBuilderConfig: s.metrics(), BuildInfo: component.BuildInfo{Version: "0.1.0-dev"}, Kinds: kinds,
	})
	n.births, n.nextPID = s.births, int32(1000+37*s.processes)
	var containers []identity.Owner
	for i := range s.containers {
		pod := identity.Pod{UID: n.uid(), QoSClass: "Burstable"}
		if i%podSize > 0 {
			pod = containers[i-1].Pod
		}
		containers = append(containers, identity.Owner{Workload: identity.Workload{Pod: pod, Container: identity.Container{ID: n.hex(32), Runtime: "containerd"}}})
	}
	n.containers = containers
	for i := range s.processes {
		var owner identity.Owner
		if inside := i - s.processes/3; inside >= 0 && len(containers) > 0 {
			owner = containers[inside%len(containers)]
		}
		age := time.Duration(n.random.Int64N(int64(30 * 24 * time.Hour)))
		owner.Process = n.process(int32(1000+37*i), now.Add(-age))
		n.running = append(n.running, n.engine.Open(owner, now))
	}
	n.step(0) // the baseline
	return n
}

var kinds = []emit.Column{{Class: power.Class{Zone: power.Package, Method: power.Measured}}, {Class: power.Class{Zone: power.DRAM, Method: power.Measured}}}

// metrics returns the node's collection under the receiver's defaults, without the metrics that the shape omits.
func (s shape) metrics() metadata.MetricsBuilderConfig {
	cfg := metadata.NewDefaultMetricsBuilderConfig()
	m := &cfg.Metrics
	m.ProcessEnergy.Enabled = !s.withoutProcesses
	m.ProcessPower.Enabled = !s.withoutProcesses && !s.withoutPower
	if s.withoutPower {
		m.HwPower.Enabled, m.SystemPower.Enabled, m.ContainerPower.Enabled, m.K8sPodPower.Enabled = false, false, false, false
	}
	return cfg
}

var programs = []string{"nginx", "java", "python3.12", "postgres", "redis-server", "node", "envoy", "containerd-shim-runc-v2",
	"kubelet", "systemd", "sshd", "coredns", "fluent-bit", "etcd", "php-fpm8.2", "pause", "mysqld", "beam.smp"}

func (n *node) hex(bytes int) string {
	b := make([]byte, bytes)
	for i := range b {
		b[i] = byte(n.random.Uint32())
	}
	return hex.EncodeToString(b)
}

func (n *node) uid() string {
	return n.hex(4) + "-" + n.hex(2) + "-" + n.hex(2) + "-" + n.hex(2) + "-" + n.hex(6)
}

// booted is when all nodes started.
var booted = time.Unix(1_700_000_000, 0)

func (n *node) process(pid int32, created time.Time) identity.Process {
	program := programs[n.random.IntN(len(programs))]
	return identity.Process{
		PID: pid, Start: created.Sub(booted), Executable: program, Path: "/usr/bin/" + program,
		Created: identity.CreatedAt(created),
	}
}

// bear starts the processes that are born within a time before now. They live for 15 to 60 seconds from now.
func (n *node) bear(elapsed time.Duration) {
	for n.unborn += n.births * elapsed.Minutes(); n.unborn >= 1; n.unborn-- {
		owner := identity.Owner{}
		if len(n.containers) > 0 {
			owner = n.containers[n.random.IntN(len(n.containers))]
		}
		created := n.now.Add(-time.Duration(n.random.Int64N(int64(elapsed))))
		owner.Process = n.process(n.nextPID, created)
		n.nextPID++
		life := time.Duration(15+n.random.IntN(45)) * time.Second
		n.short = append(n.short, mortal{n.engine.Open(owner, created), n.now.Add(life)})
	}
}

// bury closes the processes that have ended by now.
func (n *node) bury() {
	n.short = slices.DeleteFunc(n.short, func(m mortal) bool {
		ended := !m.end.After(n.now)
		if ended {
			n.engine.Close(m.Claimant)
		}
		return ended
	})
}

// metered returns what the node's meters have counted, in joules.
func (n *node) metered() float64 {
	var sum units.Energy
	for _, total := range n.totals {
		sum += total
	}
	return float64(sum) / float64(units.Joule)
}

// step lets time pass, in which every third process runs, and each of those that were born lately.
func (n *node) step(elapsed time.Duration) {
	n.now = n.now.Add(elapsed)
	if elapsed > 0 {
		n.bear(elapsed)
	}
	iv := attribution.Interval{At: n.now, Elapsed: elapsed}
	node := attribution.Usage{Total: units.CPUTime(64 * elapsed)}
	for i := range zones {
		watts := 20 + n.random.Float64()*200
		n.totals[i] += units.Energy(watts * elapsed.Seconds() * float64(units.Joule))
		iv.Zones = append(iv.Zones, attribution.ZoneReading{Zone: i, Kind: i % 2, Total: n.totals[i], OK: true})
	}
	if elapsed > 0 {
		for _, c := range n.running {
			if n.random.IntN(3) == 0 {
				used := units.CPUTime(n.random.Int64N(int64(elapsed)))
				node.Claims = append(node.Claims, attribution.Claim{Claimant: c, CPU: used})
				node.Busy += used
			}
		}
		for _, m := range n.short {
			used := units.CPUTime(1 + n.random.Int64N(int64(elapsed)))
			node.Claims = append(node.Claims, attribution.Claim{Claimant: m.Claimant, CPU: used})
			node.Busy += used
		}
		node.Busy += units.CPUTime(elapsed / 100)
		node.Unattributed = units.CPUTime(elapsed / 100)
	}
	iv.Domains = []attribution.Usage{node}
	n.engine.Add(n.engine.Sharer().Share(&iv))
	n.bury()
}

// collect returns the node's next collection as measure does, and acknowledges it.
func (n *node) collect(interval time.Duration) pmetric.Metrics {
	md := n.measure(interval)
	n.engine.Outcome(ledger.Acknowledged)
	return md
}

// measure returns the node's next collection, with its name on each resource. The engine waits to
// know what became of it.
func (n *node) measure(interval time.Duration) pmetric.Metrics {
	n.step(interval)
	md := n.emitter.Emit(&n.engine.Totals, zones, nil, n.now)
	n.engine.Emitted()
	for _, rm := range md.ResourceMetrics().All() {
		rm.Resource().Attributes().PutStr("host.name", n.name)
		rm.Resource().Attributes().PutStr("k8s.node.name", n.name)
	}
	return md
}
