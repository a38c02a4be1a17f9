// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/processor/emissions"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// feedLength is the time that the simulated cluster runs, and feedInterval its collection interval.
const feedLength, feedInterval = 90 * time.Minute, time.Minute

// clusterNode is a node of the simulated cluster: a machine with a receiver and an emissions
// processor.
type clusterNode struct {
	*series.Machine
	t          *testing.T
	name       string
	population series.Population
	// build adds to the machine, if it is not nil.
	build func(*clusterNode)
	// early is the time from switching off the node to the end.
	early time.Duration
	// modeled is set if the receiver has a power model, and no carbon intensity.
	modeled bool
	// marginal is set if the carbon intensity is marginal.
	marginal bool

	telemetry *componenttest.Telemetry // of the collector
	work      *componenttest.Telemetry // of the first pod
	exporter  sdkmetric.Exporter
	last      pmetric.Metrics // of the processor
	sent      *[][]byte       // requests of all nodes
	off       bool
}

// simulatedCluster returns the nodes of the simulated cluster.
func simulatedCluster() []*clusterNode {
	busy := series.Population{Services: 3, Containers: 6, PerPod: 1, ContainerBirths: 0.2, ProcessBirths: 4}
	quiet := series.Population{Services: 1, Containers: 1, PerPod: 1}
	return []*clusterNode{
		{name: "node-1", population: busy, build: func(n *clusterNode) {
			thread := n.run("", "/", 0.05).Shown()
			thread.Comm, thread.Kernel = "ksoftirqd/0", true
			n.run("/usr/bin/otelcol-energy", "/system.slice/otelcol-energy.service", 0.02)
			n.addGPU(inPod)
		}},
		{name: "node-2", population: busy, build: func(n *clusterNode) {
			n.run("/usr/bin/lmp", "/system.slice/slurmstepd.scope/job_81723/step_0/user/task_0", 4)
			n.run("/usr/bin/otelcol-energy", "/system.slice/otelcol-energy.service", 0.02)
			life := hostsim.NewLife(n.Machine.Machine)
			life.StartVM("build-agent", "5d0c1b52-0f5c-47a9-9d1e-6a4c8b2f7035", 2)
			life.StartVM("legacy-erp", "9a7e64d1-0f5c-47a9-9d1e-6a4c8b2f7035", 3)
		}},
		// A virtual machine with many interrupts. Its only sensor is a GPU, which an unseen process
		// uses.
		{name: "node-3", population: quiet, modeled: true, build: func(n *clusterNode) {
			clear(n.Host.Zones)
			n.IRQ = 0.05
			hidden := n.run("/usr/bin/hidden", "/", 0)
			delete(n.Host.Processes, hidden.PID)
			n.addGPU(func(t *hostsim.Task) bool { return t == hidden })
		}},
		{name: "node-4", population: quiet, early: 30 * time.Minute},
		{name: "node-5", population: quiet, marginal: true, build: func(n *clusterNode) {
			n.AddPlatform(40)
			n.Sockets[0].DRAM.Content = "?" // cannot be read
		}},
	}
}

func inPod(t *hostsim.Task) bool { return strings.HasPrefix(t.Cgroup, "/kubepods") }

// run starts a process that runs on a number of CPUs.
func (n *clusterNode) run(program, cgroup string, demand float64) *hostsim.Task {
	task := n.Init().Spawn()
	task.Exec(program)
	task.Move(cgroup)
	task.Demand = demand
	return task
}

// addGPU adds a GPU that some tasks use.
func (n *clusterNode) addGPU(uses func(*hostsim.Task) bool) {
	curve, err := model.Linear(16, 72)
	require.NoError(n.t, err)
	gpu := n.AddGPU(&hostsim.GPU{Address: "0000:03:00.0", Driver: "xe", Engines: []hostsim.Engine{{Name: "ccs", Weight: 1}}, Idle: 16, Curve: curve})
	for _, task := range n.Tasks {
		if uses(task) {
			task.OpenGPU(gpu).Demand[0] = 0.1
		}
	}
}

// record returns the OTLP requests that the nodes send in the time before end, on a simulated
// clock: energy, emissions, the telemetry of the collector, and requests and tokens of a pod.
func record(t *testing.T, end time.Time, length time.Duration, nodes ...*clusterNode) (sent [][]byte) {
	t.Helper()
	end = end.Round(0) // the simulated clock is another monotonic clock
	roots := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		began := end.Add(-length)
		time.Sleep(time.Until(began))
		for i, n := range nodes {
			n.t, n.sent, n.telemetry, n.work = t, &sent, componenttest.NewTelemetry(), componenttest.NewTelemetry()
			var err error
			n.Machine, err = series.NewMachine(fmt.Sprintf("%s/%d", roots, i), 1, n.population, uint64(i), began.Add(-feedInterval))
			require.NoError(t, err)
			n.IRQ = 0.0001
			n.Host.Files["etc/passwd"] = "web:x:33:33::/:/bin/sh\n"
			if n.build != nil {
				n.build(n)
			}
			for _, task := range n.Tasks[1:] {
				if !task.Shown().Kernel {
					task.Shown().UID = 33
				}
			}
			require.NoError(t, n.Advance(began.Sub(n.Host.Booted)))
			defer n.start()()
		}
		for at := began.Add(feedInterval); !at.After(end); at = at.Add(feedInterval) {
			for _, n := range nodes {
				n.off = at.After(end.Add(-n.early))
				require.NoError(t, n.Advance(at.Sub(n.Host.Booted)))
			}
			time.Sleep(time.Until(at))
			synctest.Wait()
			for _, n := range nodes {
				n.report()
			}
		}
	})
	return sent
}

// start starts the receiver and the processor of the node. It returns a function that stops them.
func (n *clusterNode) start() (stop func()) {
	set, host := n.telemetry.NewTelemetrySettings(), componenttest.NewNopHost()
	factory := emissions.NewFactory()
	cfg := factory.CreateDefaultConfig().(*emissions.Config)
	cfg.Intensity = configoptional.Some(emissions.IntensityConfig{Grid: "FRA"})
	if n.marginal {
		cfg.Intensity = configoptional.Some(emissions.IntensityConfig{Value: configoptional.Some(420.0), Type: "marginal"})
	}
	if n.modeled {
		cfg.Intensity = configoptional.Some(emissions.IntensityConfig{File: configoptional.Some(emissions.FileConfig{Path: "missing"})})
	}
	cfg.Embodied = configoptional.Some(emissions.EmbodiedConfig{Total: 1.2e6, Lifespan: 35040 * time.Hour, Share: 1})
	next, err := consumer.NewMetrics(func(_ context.Context, md pmetric.Metrics) error {
		n.last = md
		namePods(md)
		packed, _, err := series.Pack(md)
		n.send(packed)
		return err
	})
	require.NoError(n.t, err)
	p, err := factory.CreateMetrics(n.t.Context(), processor.Settings{ID: component.NewID(factory.Type()), TelemetrySettings: set}, cfg, next)
	require.NoError(n.t, err)
	r, err := series.NewReceiver(n.name, n.Host.Root(), feedInterval, func(c *energyreceiver.Config, of *receiver.Settings) {
		of.TelemetrySettings = set
		c.InitialDelay, c.Window, c.Zones = feedInterval, feedInterval, append(c.Zones, power.PSys)
		c.Metrics.SystemdUnitEnergy.Enabled, c.Metrics.HwGpuUtilization.Enabled = true, true
		if n.modeled {
			c.Model = configoptional.Some(energyreceiver.ModelConfig{IdlePower: 60, MaxPower: 220})
			c.Attribution.StaticPower = map[power.Kind]energyreceiver.StaticPowerConfig{power.GPU: {Model: energyreceiver.StaticFixed, Power: new(16.0)}}
		}
	}, p.ConsumeMetrics)
	require.NoError(n.t, err)
	n.exporter, err = otlpmetrichttp.New(n.t.Context(), otlpmetrichttp.WithHTTPClient(&http.Client{Transport: n}),
		otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression))
	require.NoError(n.t, err)
	require.NoError(n.t, p.Start(n.t.Context(), host))
	require.NoError(n.t, r.Start(n.t.Context(), host))
	return func() {
		n.off = true
		require.NoError(n.t, r.Shutdown(n.t.Context()))
		require.NoError(n.t, p.Shutdown(n.t.Context()))
	}
}

// namePods adds the names of pods to the processes in them, as the k8s_attributes processor does.
func namePods(md pmetric.Metrics) {
	names := map[string]string{} // by UID
	for range 2 {
		for _, rm := range md.ResourceMetrics().All() {
			uid, _ := rm.Resource().Attributes().Get("k8s.pod.uid")
			if name, ok := rm.Resource().Attributes().Get("k8s.pod.name"); ok {
				names[uid.Str()] = name.Str()
			} else if names[uid.Str()] != "" {
				rm.Resource().Attributes().PutStr("k8s.pod.name", names[uid.Str()])
			}
		}
	}
}

// send records a request unless the node is off.
func (n *clusterNode) send(request []byte) {
	if !n.off {
		*n.sent = append(*n.sent, request)
	}
}

// RoundTrip implements http.RoundTripper for the exporter.
func (n *clusterNode) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	n.send(body)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: request}, err
}

// report exports the telemetry of the collector, and the requests and tokens of the first pod and
// of its container.
func (n *clusterNode) report() {
	n.count(n.telemetry, "otelcol_process_cpu_seconds", "s", 0.09)
	memory, err := n.telemetry.NewTelemetrySettings().MeterProvider.Meter("").Int64Gauge("otelcol_process_memory_rss", metric.WithUnit("By"))
	require.NoError(n.t, err)
	memory.Record(n.t.Context(), 92e6)
	n.export(n.telemetry, attribute.String("service.name", "otelcol-energy"))

	n.count(n.work, "traces.span.metrics.calls", "", 100, attribute.String("span.kind", "SPAN_KIND_SERVER"))
	for _, tokens := range []string{"generation_tokens", "prompt_tokens", "prompt_tokens_cached"} {
		n.count(n.work, "vllm/"+tokens, "", 100, attribute.String("model_name", "small"))
	}
	n.value(n.work, "http.server.request.duration", "s")
	n.value(n.work, "gen_ai.client.token.usage", "{token}", attribute.String("gen_ai.request.model", "small"), attribute.String("gen_ai.token.type", "output"))
	first := n.Tasks[slices.IndexFunc(n.Tasks, inPod)]
	for _, rm := range n.last.ResourceMetrics().All() {
		attributes := rm.Resource().Attributes()
		id, _ := attributes.Get("container.id")
		if _, process := attributes.Get("process.executable.name"); process || id.Str() == "" || !strings.Contains(first.Cgroup, id.Str()) {
			continue
		}
		var pod []attribute.KeyValue
		for name, value := range attributes.All() {
			if strings.HasPrefix(name, "k8s.pod.") || name == "k8s.namespace.name" {
				pod = append(pod, attribute.String(name, value.Str()))
			}
		}
		n.export(n.work, pod...)
		n.export(n.work, attribute.String("container.id", id.Str()))
	}
}

// count adds to a counter.
func (n *clusterNode) count(of *componenttest.Telemetry, name, unit string, more float64, attributes ...attribute.KeyValue) {
	counter, err := of.NewTelemetrySettings().MeterProvider.Meter("").Float64Counter(name, metric.WithUnit(unit))
	require.NoError(n.t, err)
	counter.Add(n.t.Context(), more, metric.WithAttributes(attributes...))
}

// value adds the value 100 to a histogram.
func (n *clusterNode) value(of *componenttest.Telemetry, name, unit string, attributes ...attribute.KeyValue) {
	histogram, err := of.NewTelemetrySettings().MeterProvider.Meter("").Float64Histogram(name, metric.WithUnit(unit))
	require.NoError(n.t, err)
	histogram.Record(n.t.Context(), 100, metric.WithAttributes(attributes...))
}

// export exports metrics of an SDK with the attributes of a resource.
func (n *clusterNode) export(from *componenttest.Telemetry, attributes ...attribute.KeyValue) {
	var all metricdata.ResourceMetrics
	require.NoError(n.t, from.Reader.Collect(n.t.Context(), &all))
	all.Resource = resource.NewSchemaless(append(attributes, attribute.String("host.name", n.name))...)
	for _, scope := range all.ScopeMetrics {
		for i := range scope.Metrics { // an SDK rejects the colon in vLLM's names
			scope.Metrics[i].Name = strings.Replace(scope.Metrics[i].Name, "/", ":", 1)
		}
	}
	require.NoError(n.t, n.exporter.Export(n.t.Context(), &all))
}

// feed sends the data of the simulated cluster. The test takes a few minutes, so the last ten
// minutes of the data are in the future.
func (p *prometheusServer) feed(t *testing.T) {
	t.Helper()
	for _, request := range record(t, time.Now().Add(10*time.Minute), feedLength, simulatedCluster()...) {
		_, err := series.Export(t.Context(), http.DefaultClient, p.url+"/api/v1/otlp/v1/metrics", request)
		require.NoError(t, err)
	}
}
