// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// program is a process of a node, in the container of a pod or in a unit.
type program struct {
	namespace, pod, unit, name, arguments string
	watts, gpu                            float64
}

var kubernetes = []program{
	{"shop", "checkout-6d5f", "", "java", "-Xmx2g -jar checkout.jar", 14, 0},
	{"shop", "checkout-6d5f", "", "envoy", "--config /etc/envoy.yaml", 2.2, 0},
	{"shop", "frontend-78b9", "", "node", "server.js", 8, 0},
	{"shop", "postgres-0", "", "postgres", "checkpointer", 5.5, 0},
	{"search", "opensearch-1", "", "java", "-Xms8g org.opensearch.Bootstrap", 21, 0},
	{"ml", "trainer-x2k9", "", "python3", "train.py --epochs 40", 18, 260},
	{"ml", "trainer-x2k9", "", "pt_data_worker", "", 7, 0},
	{"ml", "embed-0", "", "vllm", "serve bge-m3", 6, 95},
	{"", "", "kubelet.service", "kubelet", "", 2.1, 0},
	{"", "", "otelcol-energy.service", "otelcol-energy", "", .09, 0},
}

const image = "<img src=http://evil.example/x onerror=alert(1)>"

// hostile has names with markup, control characters, names of JavaScript's objects, and 4 kB.
var hostile = []program{
	{image, image, "", "</script><script>alert(2)</script>", image, 14, 30},
	{"constructor", "__proto__", "", "__proto__", `" onmouseover="alert(3)`, 9, 0},
	{"", "", "javascript:alert(4)", "\u202egnp.exe\u0007" + strings.Repeat("A", 4096), "", 8, 0},
	{"", "", "hasOwnProperty", "constructor", "", 5, 0},
}

// figure is the energy of a consumer in microjoules, and its power.
type figure struct {
	energy int64
	watts  float64
}

func (f figure) plus(g figure) figure { return figure{f.energy + g.energy, f.watts + g.watts} }
func (f figure) joules() float64      { return float64(f.energy) / 1e6 }

// node is a machine as the collector's Prometheus exporter reports it. Its figures are a function of
// its time, which passes only when it is read, and stops at the last reading.
type node struct {
	programs []program
	base     time.Time // its counters are 0 then
	wave     float64   // share of the power that changes over time
	last     int       // number of readings
	passes   func(reading int) time.Duration

	mu          sync.Mutex
	first, time time.Duration // since base
	readings    int
	address     string
	stop        func() error
}

// endless is the number of readings of a node whose figures always change.
const endless = math.MaxInt

// newNode starts an exporter. A step of time passes at each reading.
func newNode(t *testing.T, programs []program, last int, step time.Duration) *node {
	t.Helper()
	n := &node{programs: programs, last: last, time: time.Hour, address: "127.0.0.1:0"}
	n.base = time.Now().Add(-n.time - step*time.Duration(min(last, 1000))).Truncate(time.Second)
	n.passes = func(int) time.Duration { return step }
	n.start(t)
	t.Cleanup(func() { _ = n.stop() })
	return n
}

func (n *node) start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", n.address)
	require.NoError(t, err)
	server := &http.Server{Handler: n, ReadHeaderTimeout: time.Minute}
	n.address, n.stop = listener.Addr().String(), server.Close
	go func() { _ = server.Serve(listener) }()
}

// ServeHTTP implements http.Handler.
func (n *node) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.readings == 0 {
		n.first = n.time
	} else if n.readings < n.last {
		n.time += n.passes(n.readings)
	}
	n.readings++
	_, _ = w.Write([]byte(n.text(n.time, map[string]figure{})))
}

// used returns the energy since the first reading, its duration and its end. The names are node, idle,
// unattributed, zones, GPUs, namespace/pod, and names of programs with their pod.
func (n *node) used() (used map[string]figure, seconds float64, at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	used, before := map[string]figure{}, map[string]figure{}
	n.text(n.time, used)
	n.text(n.first, before)
	for name, f := range used {
		used[name] = figure{f.energy - before[name].energy, f.watts}
	}
	return used, (n.time - n.first).Seconds(), n.base.Add(n.time)
}

// untilRead waits until a node was read to its end.
func (n *node) untilRead(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.readings >= n.last
	}, patience, 10*time.Millisecond, "the node is not read")
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// text returns the text of the exporter at a time, and adds the figures in it to sums.
func (n *node) text(t time.Duration, sums map[string]figure) string {
	var b strings.Builder
	put := func(name string, value float64, labels ...string) {
		b.WriteString(name + "{")
		for i := 0; i < len(labels); i += 2 {
			fmt.Fprintf(&b, `%s="%s",`, labels[i], escape.Replace(labels[i+1]))
		}
		fmt.Fprintf(&b, "} %.6f %d\n", value, n.base.Add(t).UnixMilli())
	}
	both := func(prefix string, f figure, labels ...string) {
		put(prefix+"_energy_joules_total", f.joules(), labels...)
		put(prefix+"_power_watts", f.watts, labels...)
	}
	curve := func(watts, wave, phase float64) figure {
		s, w := t.Seconds(), .05+phase/1000
		swing := wave * watts * math.Sin(w*s+phase) / w
		return figure{int64(math.Round(1e6 * (watts*s + swing))), watts * (1 + wave*math.Cos(w*s+phase))}
	}
	add := func(f figure, names ...string) {
		for _, name := range names {
			sums[name] = sums[name].plus(f)
		}
	}
	for _, zone := range []struct {
		name                string
		idle, nobody, share float64
	}{{"package", 38, 3.2, .8}, {"dram", 9, .6, .2}, {"gpu", 72, 0, 0}} {
		is := []string{"energy_zone", zone.name, "energy_method", "measured"}
		idle, nobody, pods := curve(zone.idle, 0, 0), curve(zone.nobody, n.wave, 9), map[[2]string]figure{}
		active := nobody
		add(idle, "node", zone.name, "idle")
		add(nobody, "node", zone.name, "unattributed")
		for i, p := range n.programs {
			f := curve(p.watts*zone.share, n.wave, float64(i))
			if zone.name == "gpu" {
				f = curve(p.gpu, n.wave, float64(i))
			}
			add(f, "node", zone.name, p.name+" "+p.pod, p.namespace+"/"+p.pod)
			id, pod := fmt.Sprintf("%x", p.pod), [2]string{p.namespace, p.pod}
			active, pods[pod] = active.plus(f), pods[pod].plus(f)
			both("process", f, append(is, "process_pid", fmt.Sprint(2000+i), "process_owner", "app",
				"process_executable_name", p.name, "process_command_line", p.name+" "+p.arguments,
				"systemd_unit_name", p.unit, "k8s_pod_uid", id, "container_id", id)...)
		}
		delete(pods, [2]string{})
		for p, f := range pods {
			id := fmt.Sprintf("%x", p[1])
			both("k8s_pod", f, append(is, "k8s_pod_uid", id, "k8s_pod_name", p[1], "k8s_namespace_name", p[0])...)
			container, _, _ := strings.Cut(p[1], "-")
			both("container", f, append(is, "k8s_pod_uid", id, "container_id", id, "k8s_container_name", container)...)
		}
		put("system_unattributed_energy_joules_total", nobody.joules(), is...)
		both("system", active, append(is, "energy_state", "active")...)
		both("system", idle, append(is, "energy_state", "idle")...)
	}
	for i, share := range []float64{.73, .27} {
		id, whole := fmt.Sprint("GPU-", i), sums["gpu"]
		gpu := figure{int64(float64(whole.energy) * share), whole.watts * share}
		add(gpu, id)
		both("hw", gpu, "hw_id", id, "hw_name", "NVIDIA L40S", "hw_type", "gpu")
		put("hw_gpu_utilization_ratio", share, "hw_id", id, "hw_type", "gpu")
	}
	return b.String()
}
