// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"cmp"
	"fmt"
	"maps"
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

// program is a process of a node.
type program struct {
	namespace, pod, container, unit, name, arguments string
	watts, gpu                                       float64
}

func kubernetes() []program {
	return []program{
		{"shop", "checkout-6d5f", "app", "", "java", "-Xmx2g -jar checkout.jar", 14, 0},
		{"shop", "checkout-6d5f", "app", "", "envoy", "--config /etc/envoy.yaml", 2.2, 0},
		{"shop", "frontend-78b9", "web", "", "node", "server.js", 8, 0},
		{"shop", "postgres-0", "db", "", "postgres", "checkpointer", 5.5, 0},
		{"search", "opensearch-1", "opensearch", "", "java", "-Xms8g org.opensearch.Bootstrap", 21, 0},
		{"ml", "trainer-x2k9", "train", "", "python3", "train.py --epochs 40", 18, 260},
		{"ml", "trainer-x2k9", "train", "", "pt_data_worker", "", 7, 0},
		{"ml", "embed-0", "serve", "", "vllm", "serve bge-m3", 6, 95},
		{"monitoring", "prometheus-0", "prometheus", "", "prometheus", "--config.file=/etc/p.yml", 3.5, 0},
		{"kube-system", "cilium-q7", "agent", "", "cilium-agent", "", 1.6, 0},
		{"", "", "", "kubelet.service", "kubelet", "", 2.1, 0},
		{"", "", "", "containerd.service", "containerd", "", 1.4, 0},
		{"", "", "", "otelcol-energy.service", "otelcol-energy", "", .09, 0},
	}
}

// hostile has names that attack a page: markup, control and bidi characters, names of JavaScript's objects, long ones.
func hostile() []program {
	image, long := "<img src=http://evil.example/x onerror=alert(1)>", strings.Repeat("A", 4096)
	return []program{
		{image, image, image, "", "</script><script>alert(2)</script>", image, 14, 30},
		{"constructor", "__proto__", "toString", "", "__proto__", `" onmouseover="alert(3)`, 9, 0},
		{"", "", "", "javascript:alert(4)", "\u202egnp.exe\u0007" + long, "", 8, 0},
		{"", "", "", "hasOwnProperty", "constructor", "", 5, 0},
	}
}

// figure is the energy of a series in microjoules and its power.
type figure struct {
	energy int64
	watts  float64
}

// node is a machine as the collector's Prometheus exporter reports it. Its figures are a function of its time, which
// passes only when it is read, and stops at the last reading.
type node struct {
	programs []program
	base     time.Time // at which its counters are 0
	wave     float64   // share of the power that changes over time
	last     int       // number of readings in which time passes
	passes   func(reading int) time.Duration

	mu          sync.Mutex
	first, time time.Duration // since base
	readings    int
	server      *http.Server
	address     string
}

// newNode starts an exporter. A second passes at each reading.
func newNode(t *testing.T, programs []program, last int) *node {
	n := &node{programs: programs, base: time.Now().Add(-time.Hour).Truncate(time.Second), time: time.Hour - time.Minute, last: last}
	n.passes = func(int) time.Duration { return time.Second }
	n.start(t)
	t.Cleanup(n.stop)
	return n
}

func (n *node) start(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", cmp.Or(n.address, "127.0.0.1:0"))
	require.NoError(t, err)
	n.address, n.server = listener.Addr().String(), &http.Server{Handler: n, ReadHeaderTimeout: time.Minute}
	go func(s *http.Server) { _ = s.Serve(listener) }(n.server)
}

func (n *node) stop() { _ = n.server.Close() }

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
	text, _ := n.at(n.time)
	fmt.Fprint(w, text)
}

// used returns what was used since the first reading, by name: "node", "idle", "unattributed", zones, "gpu 0",
// names of programs, "namespace/pod" and namespaces. Time is the timestamp of the newest figures.
func (n *node) used() (used map[string]figure, seconds float64, at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, before := n.at(n.first)
	_, used = n.at(n.time)
	for name, f := range used {
		used[name] = figure{f.energy - before[name].energy, f.watts}
	}
	return used, (n.time - n.first).Seconds(), n.base.Add(n.time)
}

func (n *node) joules(name string) float64 {
	used, _, _ := n.used()
	return float64(used[name].energy) / 1e6
}

// now returns the time of the node, and whether it was read to its end.
func (n *node) now() (at time.Time, last bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.base.Add(n.time), n.readings >= n.last
}

// curve returns the energy and the power of a consumer whose power changes in periods of about two minutes.
func (n *node) curve(watts float64, t time.Duration, phase int) figure {
	s, w := t.Seconds(), 1/(17+float64(phase%5))
	swing := n.wave * watts * math.Sin(w*s+float64(phase)) / w
	return figure{int64(math.Round(1e6 * (watts*s + swing))), watts * (1 + n.wave*math.Cos(w*s+float64(phase)))}
}

// at returns the text of the exporter, and the figures in it.
func (n *node) at(t time.Duration) (text string, all map[string]figure) {
	lines, all := map[string][]string{}, map[string]figure{}
	put := func(name, unit string, value float64, labels ...string) {
		var l []string
		for i := 0; i < len(labels); i += 2 {
			l = append(l, labels[i]+`="`+strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(labels[i+1])+`"`)
		}
		name += unit
		lines[name] = append(lines[name], fmt.Sprintf("%s{%s} %.6f %d\n", name, strings.Join(l, ","), value, n.base.Add(t).UnixMilli()))
	}
	both := func(prefix string, f figure, labels ...string) {
		put(prefix, "_energy_joules_total", float64(f.energy)/1e6, labels...)
		put(prefix, "_power_watts", f.watts, labels...)
	}
	add := func(f figure, names ...string) {
		for _, name := range names {
			all[name] = figure{all[name].energy + f.energy, all[name].watts + f.watts}
		}
	}
	for z, zone := range []struct {
		name                      string
		idle, unattributed, share float64
	}{{"package", 38, 3.2, .8}, {"dram", 9, .6, .2}, {"gpu", 72, 0, 0}} {
		is := []string{"energy_zone", zone.name, "energy_method", "measured"}
		active, pods := figure{}, map[string]figure{}
		for i, p := range n.programs {
			f := n.curve(p.watts*zone.share, t, i)
			if zone.name == "gpu" {
				f = n.curve(p.gpu, t, i)
			}
			if f.energy == 0 {
				continue
			}
			add(f, "node", zone.name, p.name+" "+p.pod, p.namespace, p.namespace+"/"+p.pod)
			active = figure{active.energy + f.energy, active.watts + f.watts}
			of := pods[p.pod]
			pods[p.pod] = figure{of.energy + f.energy, of.watts + f.watts}
			both("process", f, append([]string{"process_pid", fmt.Sprint(2000 + i), "process_executable_name", p.name,
				"process_command_line", p.name + " " + p.arguments, "process_owner", "app", "container_id", id(p.pod),
				"k8s_pod_uid", id(p.pod), "systemd_unit_name", p.unit}, is...)...)
		}
		for _, p := range n.programs {
			f, ok := pods[p.pod]
			if delete(pods, p.pod); !ok || p.pod == "" {
				continue
			}
			pod := append([]string{"k8s_pod_uid", id(p.pod), "k8s_pod_name", p.pod, "k8s_namespace_name", p.namespace}, is...)
			both("k8s_pod", f, pod...)
			both("container", f, append(pod, "container_id", id(p.pod), "k8s_container_name", p.container)...)
		}
		idle, none := n.curve(zone.idle, t, 0), n.curve(zone.unattributed, t, 50+z)
		idle.energy, idle.watts = int64(math.Round(zone.idle*t.Seconds()*1e6)), zone.idle
		add(idle, "node", zone.name, "idle")
		add(none, "node", zone.name, "unattributed")
		is = append(is, "host_name", "node-7")
		put("system_unattributed", "_energy_joules_total", float64(none.energy)/1e6, is...)
		both("system", figure{active.energy + none.energy, active.watts + none.watts}, append(is, "energy_state", "active")...)
		both("system", idle, append(is, "energy_state", "idle")...)
	}
	for i, share := range []float64{.73, .27} {
		gpu := figure{int64(float64(all["gpu"].energy) * share), all["gpu"].watts * share}
		add(gpu, fmt.Sprint("gpu ", i))
		is := []string{"hw_id", fmt.Sprint("GPU-", i), "hw_name", fmt.Sprint("NVIDIA L40S ", i), "hw_type", "gpu"}
		both("hw", gpu, is...)
		put("hw_gpu", "_utilization_ratio", share, is...)
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		kind := "gauge"
		if strings.HasSuffix(name, "_total") {
			kind = "counter"
		}
		fmt.Fprintf(&b, "# TYPE %s %s\n%s", name, kind, strings.Join(lines[name], ""))
	}
	return b.String(), all
}

// id returns an ID that is no name.
func id(name string) string {
	if name == "" {
		return ""
	}
	sum := uint64(14695981039346656037)
	for _, b := range []byte(name) {
		sum = (sum ^ uint64(b)) * 1099511628211
	}
	return strings.Repeat(fmt.Sprintf("%016x", sum), 4)
}
