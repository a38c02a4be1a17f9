// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
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

// node is a machine as the collector's Prometheus exporter reports it. Its figures are a function
// of its time, which passes only at readings and stops at the last reading.
type node struct {
	power map[string]float64 // by series
	base  time.Time
	wave  float64 // share of the power that changes over time
	last  int     // number of readings
	step  time.Duration
	beat  []time.Duration // how many steps pass at a reading, in turn

	mu       sync.Mutex
	time     time.Duration // since base
	reset    float64       // seconds missing in the energies, because the collector was restarted
	readings int
	address  string
	stop     func() error
}

// endless is the number of readings of a node whose figures always change.
const endless = math.MaxInt

// newNode starts an exporter. A step of time passes at each reading.
func newNode(t *testing.T, programs []program, last int, step time.Duration) *node {
	t.Helper()
	n := &node{power: powerOf(programs), last: last, step: step, address: "127.0.0.1:0", beat: []time.Duration{1}}
	for gpu, share := range []float64{.73, .27} {
		name := fmt.Sprintf(`hw{hw_id="GPU-%d",hw_name="NVIDIA L40S",hw_type="gpu"}`, gpu)
		n.power[name] = share * n.watts("system{", `"gpu"`)
	}
	n.base = time.Now().Add(-step * time.Duration(min(last, 1000))).Truncate(time.Second)
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

// powerOf returns the power in watts of each series, such as process{energy_zone="gpu",...}.
func powerOf(programs []program) map[string]float64 {
	power, escape := map[string]float64{}, strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	for i, zone := range []string{"package", "dram", "gpu"} {
		add := func(watts float64, name string, labels ...string) {
			name += `{energy_method="measured",energy_zone="` + zone
			for i := 0; i < len(labels); i += 2 {
				name += `",` + labels[i] + `="` + escape.Replace(labels[i+1])
			}
			power[name+`"}`] += watts
		}
		use := func(watts float64, name string, labels ...string) {
			add(watts, name, labels...)
			add(watts, "system", "energy_state", "active")
		}
		add([]float64{38, 9, 72}[i], "system", "energy_state", "idle")
		use([]float64{3.2, .6, 0}[i], "system_unattributed")
		for pid, p := range programs {
			watts, id := []float64{.8 * p.watts, .2 * p.watts, p.gpu}[i], fmt.Sprintf("%x", p.pod)
			use(watts, "process", "process_pid", fmt.Sprint(2000+pid), "process_owner", "app",
				"process_executable_name", p.name, "process_command_line", p.name+" "+p.arguments,
				"systemd_unit_name", p.unit, "k8s_pod_uid", id, "container_id", id)
			if container, _, _ := strings.Cut(p.pod, "-"); p.pod != "" {
				add(watts, "k8s_pod", "k8s_pod_uid", id, "k8s_pod_name", p.pod, "k8s_namespace_name", p.namespace)
				add(watts, "container", "k8s_pod_uid", id, "container_id", id, "k8s_container_name", container)
			}
		}
	}
	return power
}

// watts returns the sum of series whose names have these texts, without the wave.
func (n *node) watts(texts ...string) (watts float64) {
	for name, w := range n.power {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(name, text) }) {
			watts += w
		}
	}
	return watts
}

// elapsed returns the time since the first reading, and the energy since then divided by the mean
// power, in seconds.
func (n *node) elapsed() (elapsed time.Duration, seconds float64) {
	s := n.time.Seconds()
	return n.time, math.Round(1000*(s+n.wave*math.Sin(s/20)*20)) / 1000 // µJ are whole
}

// slope returns the power at this time in units of the mean power.
func (n *node) slope() float64 { return 1 + n.wave*math.Cos(n.time.Seconds()/20) }

// ServeHTTP implements http.Handler.
func (n *node) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.readings > 0 && n.readings < n.last {
		n.time += n.step * n.beat[n.readings%len(n.beat)]
	}
	n.readings++
	elapsed, seconds := n.elapsed()
	at := n.base.Add(elapsed).UnixMilli()
	for name, watts := range n.power {
		name, labels, _ := strings.Cut(name, "{")
		_, _ = fmt.Fprintf(w, "%s_energy_joules_total{%s %.6f %d\n", name, labels, watts*(3600+seconds-n.reset), at)
		_, _ = fmt.Fprintf(w, "%s_power_watts{%s %.6f %d\n", name, labels, watts*n.slope(), at)
	}
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
