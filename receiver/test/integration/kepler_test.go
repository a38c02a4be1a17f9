// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// keplerSettings are the settings that differ from the shipped configuration. The names of a
// container and its pod, which k8s_attributes adds on a cluster, are set on all resources: only
// containers and pods may use them.
const keplerSettings = `
receivers:
  energy: {root_path: ROOT, meters: {use: [powercap]}, collection_interval: 1s, initial_delay: 0s}
processors:
  resource:
    attributes:
      - {key: k8s.container.name, value: nginx, action: upsert}
      - {key: k8s.pod.name, value: web-0, action: upsert}
      - {key: k8s.namespace.name, value: shop, action: upsert}
service:
  pipelines:
    metrics:
      processors: [memory_limiter, resource, transform/names, filter/states, transform/labels]
`

const keplerScrape = `
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: kepler
    static_configs: [{targets: [ENDPOINT]}]
`

// keplerQueries are the queries in Kepler's documentation (Prometheus Queries in its metrics page).
var keplerQueries = []string{
	`kepler_container_cpu_watts{container_name="nginx"}`,
	`kepler_node_cpu_watts{zone="package"}`,
	`rate(kepler_container_cpu_joules_total[1m])`,
	`rate(kepler_node_cpu_joules_total{zone="package"}[1m])`,
	`sum by (pod_name, pod_namespace) (rate(kepler_pod_cpu_joules_total[1m]))`,
	`sum by (zone) (rate(kepler_node_cpu_joules_total[1m]))`,
}

// The variables and the panels' expressions of Kepler's default dashboard, "Kepler Dashboard":
// compose/default/grafana/dashboards/latest/dashboard.json in
// github.com/sustainable-computing-io/kepler at 905238ac.

// keplerVariables are the variables of the dashboard: the values of a label in a query's result. A
// variable follows the variables that it depends on.
var keplerVariables = []struct {
	name, query, label string
	all                bool // the value All is allowed
}{
	{"job", `kepler_node_cpu_watts`, "job", false},
	{"zone", `kepler_node_cpu_watts{job="$job"}`, "zone", true},
	{"node", `kepler_node_cpu_info{job="$job"}`, "instance", false},
	{"namespace", `kepler_pod_cpu_watts{job="$job"}`, "pod_namespace", true},
	{"pod", `kepler_pod_cpu_watts{job="$job", pod_namespace=~"$namespace"}`, "pod_name", true},
	{"process", `label_join(count by (pid, comm) (kepler_process_cpu_watts{job="$job"}), "process", " | ", "comm", "pid")`, "pid", false},
	{"container", `kepler_container_cpu_watts`, "container_name", true},
	{"vm", `kepler_vm_cpu_watts{job="$job"}`, "vm_name", true},
}

// keplerPanels are the panels' expressions, each with the labels that the panel shows.
var keplerPanels = []struct{ expression, shows string }{
	{`sum by (zone) (kepler_node_cpu_watts{job="$job", zone=~"$zone"})`, "zone"},
	{`sum by (zone) (kepler_node_cpu_active_watts{job="$job", zone=~"$zone"})`, "zone"},
	{`sum by (zone) (kepler_node_cpu_idle_watts{job="$job", zone=~"$zone"})`, "zone"},
	{`count by (instance, model_name)(kepler_node_cpu_info{job="$job"})`, "instance model_name"},
	{`group by (node_name,zone)(kepler_node_cpu_watts{job="$job"})`, "node_name zone"},
	{`kepler_node_cpu_watts{job="$job", instance=~"$node", zone=~"$zone"}`, "zone instance"},
	{`kepler_node_cpu_active_watts{job="$job", instance=~"$node", zone=~"$zone"}`, "zone instance"},
	{`kepler_node_cpu_idle_watts{job="$job", instance=~"$node", zone=~"$zone"}`, "zone instance"},
	{`topk(10,sum by (comm,zone)(kepler_process_cpu_watts{job="$job", zone=~"$zone"}))`, "comm zone"},
	{`sum by (zone) (kepler_process_cpu_watts{job="$job", zone=~"$zone"})`, "zone"},
	{`kepler_process_cpu_watts{job="$job", zone=~"$zone",pid="$process"}`, "zone comm"},
	{`topk(10,sum by (container_name,zone)(kepler_container_cpu_watts{job="$job", zone=~"$zone"}))`, "container_name zone"},
	{`sum by (zone) (kepler_container_cpu_watts{job="$job", zone=~"$zone"})`, "zone"},
	{`kepler_container_cpu_watts{job="$job", zone=~"$zone",container_name=~"$container"}`, "zone container_name"},
	{`topk(10,sum by (pod_namespace,zone)(kepler_pod_cpu_watts{job="$job", zone=~"$zone"}))`, "pod_namespace zone"},
	{`sum by (zone) (kepler_pod_cpu_watts{job="$job", zone=~"$zone", pod_namespace=~"$namespace"})`, "zone"},
	{`kepler_pod_cpu_watts{job="$job",pod_namespace=~"$namespace", zone=~"$zone",pod_name=~"$pod"}`, "zone pod_name"},
	{`topk(10,sum by (vm_name,zone)(kepler_vm_cpu_watts{job="$job", zone=~"$zone"}))`, "vm_name zone"},
	{`sum by (zone) (kepler_vm_cpu_watts{job="$job", zone=~"$zone"})`, "zone"},
	{`kepler_vm_cpu_watts{job="$job", zone=~"$zone",vm_name=~"$vm"}`, "zone vm_name"},
}

// keplerLabels are the labels of Kepler's metrics for the test's workloads, if they have a value.
var keplerLabels = map[string][]string{
	`kepler_node_cpu_joules_total`:                                 {"zone"},
	`kepler_node_cpu_watts`:                                        {"zone"},
	`kepler_node_cpu_active_joules_total`:                          {"zone"},
	`kepler_node_cpu_active_watts`:                                 {"zone"},
	`kepler_node_cpu_idle_joules_total`:                            {"zone"},
	`kepler_node_cpu_idle_watts`:                                   {"zone"},
	`kepler_node_cpu_usage_ratio`:                                  {},
	`kepler_node_cpu_info{processor="0"}`:                          cpuLabels(),
	`kepler_build_info`:                                            {"version"},
	`kepler_process_cpu_joules_total{container_id="CONTAINER"}`:    {"pid", "comm", "exe", "type", "state", "container_id", "zone"},
	`kepler_process_cpu_watts{vm_id="VM"}`:                         {"pid", "comm", "exe", "type", "state", "vm_id", "zone"},
	`kepler_process_cpu_seconds_total{vm_id="VM"}`:                 {"pid", "comm", "exe", "type", "vm_id"},
	`kepler_container_cpu_joules_total{container_id="CONTAINER"}`:  {"container_id", "container_name", "runtime", "state", "zone", "pod_id"},
	`kepler_container_cpu_watts{container_id="CONTAINER"}`:         {"container_id", "container_name", "runtime", "state", "zone", "pod_id"},
	`kepler_container_cpu_seconds_total{container_id="CONTAINER"}`: {"container_id", "container_name", "runtime", "state", "pod_id"},
	`kepler_pod_cpu_joules_total{pod_id="POD"}`:                    {"pod_id", "pod_name", "pod_namespace", "state", "zone"},
	`kepler_pod_cpu_watts{pod_id="POD"}`:                           {"pod_id", "pod_name", "pod_namespace", "state", "zone"},
	`kepler_vm_cpu_joules_total{vm_id="VM"}`:                       {"vm_id", "vm_name", "hypervisor", "state", "zone"},
	`kepler_vm_cpu_watts{vm_id="VM"}`:                              {"vm_id", "vm_name", "hypervisor", "state", "zone"},
}

const (
	keplerContainer = "5e1a9c0b7d3f42688c1b0e9d7a6f5c4b3a2918f7e6d5c4b3a29180f7e6d5c4b3"
	keplerPod       = "7d3f4268-8c1b-4e9d-8a6f-5c4b3a2918f7"
	keplerVM        = "0e9d7a6f-5c4b-4a29-98f7-e6d5c4b3a291"
)

// A Prometheus scrapes the configuration that emits Kepler's metrics in the same way as Kepler.
func TestKeplersQueries(t *testing.T) {
	need(t)
	program := kubernetesBinary(t)
	sensor := startSensor(t)
	endpoint := freeEndpoint(t)
	scrape := filepath.Join(t.TempDir(), "prometheus.yaml")
	require.NoError(t, os.WriteFile(scrape, []byte(strings.ReplaceAll(keplerScrape, "ENDPOINT", endpoint)), 0o600))
	p := startPrometheusWith(t, scrape)
	load := startKeplerLoads(t)

	overlay := filepath.Join(t.TempDir(), "settings.yaml")
	require.NoError(t, os.WriteFile(overlay, []byte(strings.ReplaceAll(keplerSettings, "ROOT", sensor.root)), 0o600))
	c := &collector{log: filepath.Join(p.dir, "testkeplersqueries.log")}
	c.cmd = exec.Command(program, "--config", shipped(t, "kepler", "config.yaml"), "--config", overlay)
	c.cmd.Env = append(os.Environ(), "KEPLER_ENDPOINT="+endpoint, "NODE_NAME=node-1")
	c.ended = startDaemon(t, c.cmd, c.log)
	sensor.draw(t, pipelinePower)

	query := func(promQL string) []promSeries {
		require.Falsef(t, c.hasEnded(), "the collector ended: %s", lastLine(c.log))
		promQL = strings.NewReplacer("CONTAINER", keplerContainer, "POD", keplerPod, "VM", keplerVM).Replace(promQL)
		return p.query(t, time.Now(), promQL)
	}
	await := func(promQL string) (found []promSeries) {
		eventually(t, "Prometheus has "+promQL, func() bool { found = query(promQL); return len(found) > 0 })
		return found
	}
	eventually(t, "the machine, the container, the pod and the virtual machine have energy, the collector's log is in "+c.log, func() bool {
		for _, of := range []string{`node_cpu_active_joules_total{zone="package"}`, `container_cpu_joules_total{zone="package",container_id="CONTAINER"}`,
			`pod_cpu_joules_total{zone="package",pod_id="POD"}`, `vm_cpu_joules_total{zone="package",vm_id="VM"}`} {
			if len(query(fmt.Sprintf("kepler_%s > 0", of))) == 0 {
				return false
			}
		}
		return len(query(`count_over_time(kepler_node_cpu_joules_total{zone="package"}[1m]) >= 10`)) > 0
	})

	for _, q := range keplerQueries {
		await(q)
	}
	testKeplersDashboard(t, query)
	scraped := []string{"__name__", "instance", "job", "node_name"}
	for selector, labels := range keplerLabels {
		found := await(selector)
		for _, s := range found {
			assert.ElementsMatch(t, append(slices.Clone(labels), scraped...), slices.Collect(maps.Keys(s.labels)), selector)
			assert.Equal(t, "node-1", s.labels["node_name"])
		}
	}
	kept := keplerNames(query(`{__name__=~"kepler_.+"}`))
	assert.ElementsMatch(t, keptMetrics(t), kept, "as docs/kepler.md says")
	t.Attr("kepler-metrics", fmt.Sprintf("%d metrics, %d queries", len(kept), len(keplerQueries)))
	for kind, selector := range map[string]string{"container": `container_id="CONTAINER"`, "vm": `vm_id="VM"`, "regular": `comm="load"`} {
		await(fmt.Sprintf("kepler_process_cpu_watts{type=%q,%s}", kind, selector))
	}

	await(`kepler_process_cpu_joules_total{exe="",type="regular",comm=~"(kworker|ksoftirqd|rcu_).*"}`)

	eventually(t, "active and idle add up to the node, except in a scrape during an update of the exporter", func() bool {
		both := query(`kepler_node_cpu_active_joules_total + ignoring() kepler_node_cpu_idle_joules_total - ignoring() kepler_node_cpu_joules_total`)
		require.Len(t, both, len(simulatedZones))
		return !slices.ContainsFunc(both, func(s promSeries) bool { return math.Abs(s.samples[0].value) > 1e-6 })
	})
	for zone, watts := range map[string]float64{"package": pipelinePower["intel-rapl:0"], "dram": pipelinePower["intel-rapl:0:0"]} {
		// The median, because a scan that is late by 0.1 s has an error of that size.
		got := p.value(t, time.Now(), fmt.Sprintf(`quantile_over_time(0.5, kepler_node_cpu_watts{zone=%q}[1m])`, zone))
		t.Logf("%s: %.2f W, truly %.0f W", zone, got, watts)
		assert.InEpsilon(t, watts, got, 0.05, zone)
	}

	short := exec.Command(load, "burn", "30", "0")
	startDaemonKeeping(t, short)
	watts := fmt.Sprintf(`kepler_process_cpu_watts{pid="%d",zone="package"}`, short.Process.Pid)
	eventually(t, "a process has power", func() bool { return len(query(watts+" > 0")) > 0 })
	require.NoError(t, short.Process.Kill())
	_ = short.Wait()
	ended := time.Now()
	eventually(t, "two collections are made and scraped after it ended", func() bool {
		return len(p.samples(t, `up{job="kepler"}`, ended.Add(3*time.Second), time.Now())) > 0
	})
	assert.Empty(t, query(watts), "no power of the exited process, with the scrape configuration of Kepler")
	joules := func(state string) []promSeries {
		return query(fmt.Sprintf(`kepler_process_cpu_joules_total{pid="%d",zone="package",state=%q}`, short.Process.Pid, state))
	}
	final, terminated := joules("running"), joules("terminated")
	require.Len(t, final, 1)
	require.Len(t, terminated, 1)
	assert.InDelta(t, final[0].samples[0].value, terminated[0].samples[0].value, 0, "the final energy")
	assert.Empty(t, query(`kepler_vm_cpu_joules_total{state="terminated"}`), "the virtual machine is running")
}

// testKeplersDashboard opens Kepler's dashboard with the first value of each variable, and with All
// if allowed. Every variable must have a value, every panel must show data, and every label shown
// must be present.
func testKeplersDashboard(t *testing.T, query func(string) []promSeries) {
	var one, all []string // arguments of strings.NewReplacer
	for _, v := range keplerVariables {
		var values []string
		for _, s := range query(strings.NewReplacer(one...).Replace(v.query)) {
			if value := s.labels[v.label]; value != "" {
				values = append(values, value)
			}
		}
		require.NotEmptyf(t, values, "the variable %s", v.name)
		slices.Sort(values)
		one = append(one, "$"+v.name, values[0])
		if v.all {
			values[0] = strings.Join(slices.Compact(values), "|")
		}
		all = append(all, "$"+v.name, values[0])
	}
	for _, panel := range keplerPanels {
		for _, selected := range [][]string{one, all} {
			q := strings.NewReplacer(selected...).Replace(panel.expression)
			require.NotContains(t, q, "$")
			found := query(q)
			assert.NotEmpty(t, found, q)
			for _, label := range strings.Fields(panel.shows) {
				assert.True(t, slices.ContainsFunc(found, func(s promSeries) bool { return s.labels[label] != "" }), "%s in %s", label, q)
			}
		}
	}
	t.Logf("%d variables and %d expressions, with %v", len(keplerVariables), len(keplerPanels), one)
}

// cpuLabels are the labels of kepler_node_cpu_info that have a value in this machine's
// /proc/cpuinfo.
func cpuLabels() []string {
	labels := []string{"processor"}
	text, _ := os.ReadFile("/proc/cpuinfo")
	for key, label := range map[string]string{
		"vendor_id": "vendor_id", "model name": "model_name", "physical id": "physical_id", "core id": "core_id",
	} {
		if regexp.MustCompile(`(?m)^` + key + `\s*: \S`).Match(text) {
			labels = append(labels, label)
		}
	}
	return labels
}

// startKeplerLoads starts a plain process, a process in a pod's container and a virtual machine. It
// returns their executables.
func startKeplerLoads(t *testing.T) (load string) {
	t.Helper()
	load = build(t, "load")
	startDaemon(t, exec.Command(load, "burn", "20", "0"), os.DevNull)

	inContainer := exec.Command(load, "burn", "30", "0")
	group := podCgroup(t)
	inContainer.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd()), Pdeathsig: syscall.SIGTERM}
	startDaemonKeeping(t, inContainer)

	// A virtual machine is recognized by its program's name. This process has QEMU's arguments and
	// runs a shell.
	shell, err := exec.LookPath("sh")
	require.NoError(t, err)
	text, err := os.ReadFile(shell)
	require.NoError(t, err)
	qemu := filepath.Join(t.TempDir(), "qemu-system-x86_64")
	require.NoError(t, os.WriteFile(qemu, text, 0o700))
	startDaemon(t, exec.Command(qemu, "-c", "while :; do :; done", "-name", "guest=vm1,debug-threads=on", "-uuid", keplerVM), os.DevNull)
	return load
}

// startDaemonKeeping starts a daemon like startDaemon, but keeps its SysProcAttr.
func startDaemonKeeping(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// podCgroup makes the cgroup of a container in the v2 hierarchy, like a kubelet with containerd. It
// is removed at the end of the test.
func podCgroup(t *testing.T) *os.File {
	t.Helper()
	mount := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(mount, "cgroup.procs")); err != nil {
		mount = filepath.Join(mount, "unified")
	}
	if _, err := os.Stat(filepath.Join(mount, "cgroup.procs")); err != nil {
		t.Skipf("lacks a cgroup v2 hierarchy: %v", err)
	}
	dir := mount
	for _, name := range []string{"kubepods.slice", "kubepods-besteffort.slice",
		"kubepods-besteffort-pod" + strings.ReplaceAll(keplerPod, "-", "_") + ".slice", "cri-containerd-" + keplerContainer + ".scope"} {
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err == nil {
			made := dir
			t.Cleanup(func() {
				if err := os.Remove(made); err != nil {
					t.Errorf("a cgroup is left: %v", err)
				}
			})
		} else {
			require.ErrorIs(t, err, os.ErrExist)
		}
	}
	group, err := os.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, group.Close()) })
	return group
}

// freeEndpoint returns an unused port on loopback.
func freeEndpoint(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().String()
}

// keptMetrics are the metrics that docs/kepler.md lists for a machine without psys.
func keptMetrics(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/kepler.md")
	require.NoError(t, err)
	var kept []string
	for _, names := range regexp.MustCompile("(?m)^\\| (`kepler_[a-z_`, ]+`) \\| yes ").FindAllStringSubmatch(string(page), -1) {
		kept = append(kept, strings.Split(strings.Trim(names[1], "`"), "`, `")...)
	}
	require.NotEmpty(t, kept)
	return kept
}

func keplerNames(found []promSeries) []string {
	names := map[string]bool{}
	for _, s := range found {
		names[s.labels["__name__"]] = true
	}
	return slices.Collect(maps.Keys(names))
}
