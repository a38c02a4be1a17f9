// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A simulated cluster: what its receivers would have sent in the last day, under the names in
// receiver/documentation.md.
type simulatedCluster struct {
	at    time.Time
	begin time.Time
	nodes []*simulatedNode
}

type simulatedNode struct {
	name, source string
	from, to     float64 // hours of the simulated day in which it reports
	unattributed float64 // share of its active energy
	failingZone  string
	wholeMachine bool // it has the zone platform, too
	utilization  func(hour float64) float64
	workloads    []*simulatedWorkload
	counters     map[string]float64 // joules and seconds so far
	scans        uint64
	noise        noise
}

// simulatedWorkload is a process on the host, in a pod's container, of a virtual machine, or of a Slurm job.
type simulatedWorkload struct {
	namespace, pod, podUID, container, containerID string
	vm, vmID, job                                  string
	executable                                     string
	pid                                            int64
	weight                                         func(hour float64) float64
	gpuWeight                                      float64 // of the node's GPU, 0 for workloads that do not use it
	noise                                          noise
}

// noise varies around 1, the same way in every run.
type noise struct {
	random *rand.Rand
	off    float64
}

func newNoise(seed int) noise { return noise{random: rand.New(rand.NewPCG(uint64(seed), 7))} }

func (n *noise) next() float64 {
	n.off = 0.85*n.off + 0.035*n.random.NormFloat64()
	return math.Max(0.3, 1+n.off)
}

// The day of the simulation ends at the same hour whenever it is sent, so the same programs are the largest.
const feedHours, feedEnds, feedStep = 25.0, 18.8, time.Minute

func steady(w float64) func(float64) float64 { return func(float64) float64 { return w } }

// daily varies around its weight and is highest at an hour.
func daily(w, swing, peak float64) func(float64) float64 {
	return func(hour float64) float64 { return w * (1 + swing*math.Cos(2*math.Pi*(hour-peak)/24)) }
}

// nightly runs for some minutes of every third hour.
func nightly(w, minutes, phase float64) func(float64) float64 {
	return func(hour float64) float64 {
		if math.Mod(hour+phase, 3) < minutes/60 {
			return w
		}
		return 0
	}
}

func newSimulatedCluster(now time.Time) *simulatedCluster {
	begin := now.Add(-time.Duration(feedHours * float64(time.Hour))).Truncate(time.Second)
	c := &simulatedCluster{at: begin, begin: begin}
	pods := 0
	pod := func(namespace, name, executable string, weight func(float64) float64) *simulatedWorkload {
		pods++
		app, _, _ := strings.Cut(name, "-")
		return &simulatedWorkload{
			namespace: namespace, pod: name, container: app, executable: executable, weight: weight,
			podUID:      fmt.Sprintf("%08x-93b4-4a6d-8e21-b7d06f3c9a18", 0x5c1f7e0a+pods*7919),
			containerID: fmt.Sprintf("%012x%052x", 0x9f3ac1d5e7+pods*104729_729, pods), pid: int64(2000 + 37*pods),
		}
	}
	onGPU := func(w *simulatedWorkload, weight float64) *simulatedWorkload {
		w.gpuWeight = weight
		return w
	}
	process := func(executable string, pid int64, weight float64) *simulatedWorkload {
		return &simulatedWorkload{executable: executable, pid: pid, weight: steady(weight)}
	}
	vm := func(name string, pid int64, weight func(float64) float64) *simulatedWorkload {
		return &simulatedWorkload{
			executable: "qemu-system-x86_64", vm: name, vmID: fmt.Sprintf("%08x-0f5c-47a9-9d1e-6a4c8b2f7035", pid), pid: pid, weight: weight,
		}
	}
	node := func(name string, load func(float64) float64, workloads ...*simulatedWorkload) *simulatedNode {
		n := &simulatedNode{
			name: name, source: "measured", to: feedHours, unattributed: 0.004, utilization: load, workloads: workloads,
			counters: map[string]float64{}, noise: newNoise(len(c.nodes)),
		}
		for i, w := range workloads {
			w.noise = newNoise(100*len(c.nodes) + i)
		}
		c.nodes = append(c.nodes, n)
		return n
	}

	node("node-1", daily(0.46, 0.45, 16),
		pod("shop", "web-7c9d5f6b8-4xk2p", "nginx", daily(3, 0.6, 16)),
		pod("shop", "cart-5f9c7d6b44-l8s7n", "java", daily(7, 0.5, 17)),
		pod("payments", "api-6d8f9b5c7-zq4vt", "api", daily(4, 0.4, 15)),
		pod("search", "index-0", "java", nightly(9, 50, 1)),
		onGPU(pod("search", "embed-0", "python3", steady(0.6)), 3), onGPU(pod("batch", "train-28911240-p2m4c", "python3", steady(0.9)), 1),
		pod("kube-system", "coredns-76f75df574-9xwlm", "coredns", steady(0.5)),
		process("ksoftirqd/0", 15, 0.1), process("containerd", 811, 0.5), process("kubelet", 902, 0.8), process("otelcol-energy", 1204, 0.02), process("", 0, 0.4))
	node("node-2", daily(0.38, 0.4, 15),
		pod("shop", "web-7c9d5f6b8-tt6jd", "nginx", daily(2.5, 0.6, 16)),
		pod("payments", "ledger-0", "postgres", daily(5, 0.4, 14)),
		pod("monitoring", "metrics-0", "prometheus", steady(2.4)),
		pod("batch", "report-28911240-x7kq9", "python3", nightly(8, 35, 0.5)),
		&simulatedWorkload{executable: "lmp", pid: 5200, job: "81723", weight: nightly(4, 100, 1)},
		vm("build-agent", 4801, nightly(10, 95, 2)), vm("legacy-erp", 4802, daily(3, 0.3, 13)),
		process("mariadbd", 640, 6), // a unit of systemd among the largest programs
		process("containerd", 798, 0.4), process("kubelet", 871, 0.7), process("otelcol-energy", 1177, 0.02), process("", 0, 0.4))
	// A virtual machine with a GPU and no other sensor, whose receiver does not see all processes.
	ailing := node("node-3", daily(0.3, 0.3, 12), onGPU(pod("shop", "images-6b7f4-8sdzx", "convert", steady(1)), 1), process("", 0, 1))
	ailing.source, ailing.unattributed = "modeled", 0.35
	failing := node("node-5", steady(0.1), process("kubelet", 866, 1))
	failing.failingZone, failing.wholeMachine = "intel-rapl:0:0", true
	// A node that was switched off an hour ago.
	node("node-4", steady(0.2), process("kubelet", 866, 1)).to = feedHours - 1
	return c
}

// otlpMetrics collects the points of a node at one time, as OTLP in JSON:
// https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
type otlpMetrics struct {
	ResourceMetrics []*otlpResource `json:"resourceMetrics"`

	begin, at time.Time
	host      string
}

type otlpResource struct {
	Resource     map[string][]otlpAttribute `json:"resource"`
	ScopeMetrics [1]struct {
		Metrics []map[string]any `json:"metrics"`
	} `json:"scopeMetrics"`
}

type otlpAttribute struct {
	Key   string            `json:"key"`
	Value map[string]string `json:"value"`
}

const otlpCumulative = 2

func (o *otlpMetrics) resource(attributes map[string]string) *otlpResource {
	r := &otlpResource{Resource: map[string][]otlpAttribute{"attributes": {otlpText("host.name", o.host)}}}
	for key, value := range attributes {
		if value != "" {
			r.Resource["attributes"] = append(r.Resource["attributes"], otlpText(key, value))
		}
	}
	o.ResourceMetrics = append(o.ResourceMetrics, r)
	return r
}

func otlpText(key, value string) otlpAttribute {
	return otlpAttribute{key, map[string]string{"stringValue": value}}
}

// point is a point with attributes in pairs.
func (o *otlpMetrics) point(attributes []string) map[string]any {
	var list []otlpAttribute
	for i := 0; i < len(attributes); i += 2 {
		list = append(list, otlpText(attributes[i], attributes[i+1]))
	}
	nano := func(at time.Time) string { return strconv.FormatInt(at.UnixNano(), 10) }
	return map[string]any{"attributes": list, "startTimeUnixNano": nano(o.begin), "timeUnixNano": nano(o.at)}
}

// add adds a point of a counter or a gauge.
func (o *otlpMetrics) add(to *otlpResource, name, unit string, counts bool, value float64, attributes ...string) {
	p := o.point(attributes)
	p["asDouble"] = value
	points := map[string]any{"dataPoints": []any{p}}
	kind := "gauge"
	if counts {
		kind = "sum"
		points["isMonotonic"], points["aggregationTemporality"] = true, otlpCumulative
	}
	metrics := &to.ScopeMetrics[0].Metrics
	*metrics = append(*metrics, map[string]any{"name": name, "unit": unit, kind: points})
}

// step returns what all nodes send at the next time.
func (c *simulatedCluster) step() *otlpMetrics {
	c.at = c.at.Add(feedStep)
	o := &otlpMetrics{begin: c.begin, at: c.at}
	since := c.at.Sub(c.begin).Hours()
	for _, n := range c.nodes {
		if since < n.from || since > n.to {
			continue
		}
		o.host = n.name
		n.energy(o, math.Mod(feedEnds-feedHours+48+since, 24))
		n.telemetry(o)
		n.work(o)
	}
	return o
}

// work returns the counters of requests and tokens of one pod, under the names of their programs, and of one container.
func (n *simulatedNode) work(o *otlpMetrics) {
	pod := slices.IndexFunc(n.workloads, func(w *simulatedWorkload) bool { return w.pod != "" })
	if pod < 0 {
		return
	}
	resources := n.workloads[pod].resources(o)
	n.counters["work"] += 100
	count := n.counters["work"]
	for _, to := range []*otlpResource{resources[2], o.resource(map[string]string{"container.id": n.workloads[pod].containerID})} {
		o.add(to, "traces.span.metrics.calls", "", true, count, "span.kind", "SPAN_KIND_SERVER")
		o.add(to, "vllm:generation_tokens", "", true, count, "model_name", "small")
		o.add(to, "vllm:prompt_tokens", "", true, count, "model_name", "small")
		o.histogram(to, "http.server.request.duration", "s", uint64(count))
		o.histogram(to, "gen_ai.client.token.usage", "{token}", uint64(count), "gen_ai.request.model", "small", "gen_ai.token.type", "output")
	}
}

// histogram adds a histogram without buckets, in which each value is 1.
func (o *otlpMetrics) histogram(to *otlpResource, name, unit string, count uint64, attributes ...string) {
	p := o.point(attributes)
	p["count"], p["sum"], p["bucketCounts"] = count, float64(count), []uint64{count}
	to.ScopeMetrics[0].Metrics = append(to.ScopeMetrics[0].Metrics, map[string]any{
		"name": name, "unit": unit, "histogram": map[string]any{"aggregationTemporality": otlpCumulative, "dataPoints": []any{p}},
	})
}

func (n *simulatedNode) energy(o *otlpMetrics, hour float64) {
	busy := n.utilization(hour) * n.noise.next()
	sum := 0.0
	weights := map[*simulatedWorkload]float64{}
	for _, w := range n.workloads {
		weights[w] = w.weight(hour) * w.noise.next()
		sum += weights[w]
	}
	hosts := o.resource(nil)
	intensity := 300 + 120*math.Cos(2*math.Pi*hour/24) // lowest at noon
	accounting := []string{"emissions.accounting", "location", "carbon_intensity.type", "average"}
	provider := []string{"carbon_intensity.provider.name", "electricity_maps", "carbon_intensity.region", "FR", "carbon_intensity.estimated", "false", "carbon_intensity.stale", "false"}
	o.add(hosts, "electricity.carbon_intensity", "g/(kW.h)", false, intensity, append(accounting, provider...)...)
	n.counters["embodied"] += 1_200_000 * feedStep.Hours() / (4 * 365 * 24)
	o.add(hosts, "host.embodied.emissions", "g", true, n.counters["embodied"])
	resources := map[*simulatedWorkload][]*otlpResource{}
	for _, w := range n.workloads {
		resources[w] = w.resources(o)
	}
	type zone struct {
		zone, id, name, kind string
		power                float64
	}
	zones := []zone{
		{"package", "intel-rapl:0", "package", "cpu", 48 + 115*busy},
		{"dram", "intel-rapl:0:0", "dram", "memory", 7 + 9*busy},
	}
	gpuWeights := 0.0
	for _, w := range n.workloads {
		gpuWeights += w.gpuWeight
	}
	if gpuWeights > 0 {
		gpu := zone{"gpu", "GPU-6f2c1d9e-7b3a-4c58-9e01-2d4f6a8b0c13", "NVIDIA L4", "gpu", 16 + 56*busy}
		zones = slices.Insert(zones, 0, gpu)
		o.add(hosts, "hw.gpu.utilization", "1", false, min(busy, 1), "hw.id", gpu.id, "hw.name", gpu.name)
	}
	for _, z := range zones {
		count := func(to *otlpResource, metric, key string, watts float64, attributes ...string) {
			key = strings.Join(append([]string{metric, key}, attributes...), " ")
			source := n.source
			if z.zone == "gpu" {
				source = "measured"
			}
			attributes = append(attributes, "energy.method", source)
			n.counters[key] += watts * feedStep.Seconds()
			o.add(to, metric+".energy", "J", true, n.counters[key], attributes...)
			if metric != "system.unattributed" {
				o.add(to, metric+".power", "W", false, watts, attributes...)
			}
			kWh := watts * feedStep.Hours() / 1000
			n.counters["g "+key] += kWh * intensity
			o.add(to, metric+".emissions", "g", true, n.counters["g "+key], append(attributes, accounting...)...)
		}
		active := z.power * busy
		hardware := []string{"hw.id", z.id, "hw.name", z.name, "hw.type", z.kind}
		if z.kind == "gpu" {
			hardware = append(hardware, "hw.vendor", "NVIDIA")
		}
		count(hosts, "hw", "", z.power, hardware...)
		count(hosts, "system", "", active, "energy.zone", z.zone, "energy.state", "active")
		count(hosts, "system", "", z.power-active, "energy.zone", z.zone, "energy.state", "idle")
		if n.wholeMachine && z.zone == "package" {
			count(hosts, "system", "", 1.6*active, "energy.zone", "platform", "energy.state", "active")
		}
		count(hosts, "system.unattributed", "", active*n.unattributed, "energy.zone", z.zone)
		for _, w := range n.workloads {
			share := active * (1 - n.unattributed) * weights[w] / sum
			if z.zone == "gpu" {
				share = active * (1 - n.unattributed) * w.gpuWeight / gpuWeights
			}
			for i, metric := range w.metrics() {
				attributes := []string{"energy.zone", z.zone}
				if w.pid == 0 {
					attributes = append(attributes, "otel.metric.overflow", "true")
				}
				count(resources[w][i], metric, fmt.Sprint(w.pid), share, attributes...)
			}
		}
	}
}

// metrics are the prefixes of the workload's metrics: its own, and those of the entities it is in.
func (w *simulatedWorkload) metrics() []string {
	switch {
	case w.vm != "":
		return []string{"process", "vm"}
	case w.job != "":
		return []string{"process", "slurm.step"}
	case w.pod != "":
		return []string{"process", "container", "k8s.pod"}
	default:
		return []string{"process"}
	}
}

func (w *simulatedWorkload) resources(o *otlpMetrics) []*otlpResource {
	merge := func(maps ...map[string]string) *otlpResource {
		all := map[string]string{}
		for _, m := range maps {
			for key, value := range m {
				all[key] = value
			}
		}
		return o.resource(all)
	}
	pod := map[string]string{
		"k8s.pod.uid": w.podUID, "k8s.pod.name": w.pod, "k8s.namespace.name": w.namespace, "k8s.node.name": o.host,
	}
	container := map[string]string{"container.id": w.containerID, "k8s.container.name": w.container, "container.runtime.name": "containerd"}
	vm := map[string]string{"vm.id": w.vmID, "vm.name": w.vm}
	process := map[string]string{}
	if w.pid != 0 {
		process["process.executable.name"] = w.executable
		process["process.pid"], process["process.owner"] = fmt.Sprint(w.pid), "root"
		if w.executable != "ksoftirqd/0" { // a thread of the kernel
			process["process.executable.path"] = "/usr/bin/" + w.executable
		}
		process["process.creation.time"] = o.begin.UTC().Format(time.RFC3339Nano)
	}
	switch {
	case w.vm != "":
		vm["vm.hypervisor"] = "qemu"
		return []*otlpResource{merge(process, map[string]string{"vm.id": w.vmID}), merge(vm)}
	case w.job != "":
		step := map[string]string{"slurm.job.id": w.job, "slurm.step.id": "0"}
		return []*otlpResource{merge(process, step), merge(step)}
	case w.pod != "":
		return []*otlpResource{merge(process, container, pod), merge(container, pod), merge(pod)}
	case w.pid != 0 && w.executable != "ksoftirqd/0":
		return []*otlpResource{merge(process, map[string]string{"systemd.unit.name": w.executable + ".service"})}
	default:
		return []*otlpResource{merge(process)}
	}
}

// telemetry returns the own metrics of the node's collector.
func (n *simulatedNode) telemetry(o *otlpMetrics) {
	to := o.resource(map[string]string{"service.name": "otelcol-energy", "service.instance.id": n.name})
	count := func(name, unit string, more float64, attributes ...string) {
		key := name + strings.Join(attributes, " ")
		n.counters[key] += more
		o.add(to, name, unit, true, n.counters[key], append(attributes, "receiver", "energy")...)
	}
	wave := 1 + 0.1*math.Sin(float64(o.at.Unix())/4001)
	count("otelcol_process_cpu_seconds", "s", 0.09*wave)
	o.add(to, "otelcol_process_memory_rss", "By", false, 92e6+4e6*wave)
	o.add(to, "otelcol_process_uptime", "s", false, o.at.Sub(o.begin).Seconds())
	unaccounted := 0.0
	if n.source == "modeled" { // whose provider does not answer
		unaccounted = 500
	}
	count("otelcol_processor_emissions_unaccounted_energy", "J", unaccounted, "processor", "emissions")
	telemetry := func(name string) string { return "otelcol_receiver_energy_" + name }
	gauge := func(name, unit string, value float64, attributes ...string) {
		o.add(to, telemetry(name), unit, false, value, append(attributes, "receiver", "energy")...)
	}
	gauge("cpu_time_source", "1", 1, "cpu_time.source", "bpf")
	gauge("static_power_state", "1", 1, "energy.zone", "package", "static_power.state", "trained")
	gauge("processes", "{process}", math.Round(290*wave))
	for entity, series := range map[string]float64{"process": 8, "container": 5, "k8s.pod": 5, "vm": 2} {
		gauge("series", "{series}", series, "series.entity", entity)
	}
	gauge("deferred_energy", "J", 0, "energy.zone", "package")
	for _, name := range []string{"failed_scans", "lost_exits", "dropped_series"} {
		count(telemetry(name), "1", 0)
	}
	for _, id := range []string{"intel-rapl:0", "intel-rapl:0:0"} {
		failed := 0.0
		if id == n.failingZone {
			failed = 1
		}
		count(telemetry("zone_read_errors"), "1", failed, "hw.id", id)
		for _, name := range []string{"zone_resets", "zone_gaps", "zone_rejected_readings"} {
			count(telemetry(name), "1", 0, "hw.id", id)
		}
		count(telemetry("zone_unmeasured_time"), "s", 0, "hw.id", id)
		wraps := 0.0
		if id == "intel-rapl:0" && o.at.Unix()/60%37 == 0 {
			wraps = 1
		}
		count(telemetry("zone_wraps"), "1", wraps, "hw.id", id)
	}
	n.scans += 60
	slow := n.scans / 60 * 2
	p := o.point([]string{"receiver", "energy"})
	p["explicitBounds"] = []float64{0.0005, 0.001, 0.002, 0.005, 0.01}
	p["bucketCounts"] = []uint64{0, n.scans / 3, n.scans - n.scans/3 - slow, slow, 0, 0}
	p["count"], p["sum"] = n.scans, 0.0012*float64(n.scans)
	to.ScopeMetrics[0].Metrics = append(to.ScopeMetrics[0].Metrics, map[string]any{
		"name": telemetry("scan_duration"), "unit": "s",
		"histogram": map[string]any{"aggregationTemporality": otlpCumulative, "dataPoints": []any{p}},
	})
}

// feed sends a day of a simulated cluster.
func (p *prometheusServer) feed(t *testing.T) {
	t.Helper()
	documented := ""
	for _, of := range []string{"receiver", "processor/emissions"} {
		text, err := os.ReadFile("../../../" + of + "/documentation.md")
		require.NoError(t, err)
		documented += string(text)
	}
	now := time.Now()
	c := newSimulatedCluster(now)
	for n := 0; !c.at.Add(feedStep).After(now); n++ {
		metrics := c.step()
		if n == 0 {
			requireDocumented(t, metrics, documented)
		}
		body, err := json.Marshal(metrics)
		require.NoError(t, err)
		answer, err := http.Post(p.url+"/api/v1/otlp/v1/metrics", "application/json", bytes.NewReader(body))
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode, "at %v", c.at)
	}
}

// ofPrograms matches the counters of requests and tokens.
var ofPrograms = regexp.MustCompile(`^(http|traces|gen_ai)\.|^vllm:`)

// requireDocumented checks that the receiver, or the processor, documents a metric of each name.
// Metrics of other components are covered by the real collector.
func requireDocumented(t *testing.T, metrics *otlpMetrics, documentation string) {
	t.Helper()
	for _, rm := range metrics.ResourceMetrics {
		for _, m := range rm.ScopeMetrics[0].Metrics {
			name := fmt.Sprint(m["name"])
			if energy, ok := strings.CutSuffix(name, ".emissions"); ok && energy != "host.embodied" {
				name = energy + ".energy" // to which the processor adds emissions
			}
			if !strings.HasPrefix(name, "otelcol_process_") && !ofPrograms.MatchString(name) {
				require.Contains(t, documentation, "\n### "+name+"\n")
			}
		}
	}
}
