// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const scaphandreSettings = `
receivers:
  energy: {root_path: ROOT, meters: {use: [powercap]}, collection_interval: 1s, initial_delay: 0s}
`

const scaphandreScrape = `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [RULES]
scrape_configs:
  - job_name: scaphandre
    static_configs: [{targets: [ENDPOINT]}]
`

// scaphandrePanels are the energy and CPU queries of Scaphandre's dashboards,
// docker-compose/dashboards/sample-dashboard.json and
// docs_src/tutorials/grafana-kubernetes-dashboard.json in github.com/hubblo-org/scaphandre at
// 04cc6ec9. The test's program replaces the programs that the second dashboard names.
var scaphandrePanels = []string{
	`scaph_host_power_microwatts / 1000000`,
	`sum(scaph_process_power_consumption_microwatts) / 1000000`,
	`sum(scaph_domain_power_microwatts) / 1000000`,
	`sum(avg_over_time(scaph_host_power_microwatts[1h]))/1000000`,
	`scaph_socket_power_microwatts / 1000000`,
	`scaph_domain_power_microwatts / 1000000`,
	`scaph_process_power_consumption_microwatts{cmdline=~".*burn.*"}/1000000`,
	`scaph_process_cpu_usage_percentage{cmdline=~".*burn.*"}`,
	`scaph_process_power_consumption_microwatts / 1000000 > 0.01`,
	`scaph_process_power_consumption_microwatts{exe="load"} / 1000000`,
	`scaph_process_power_consumption_microwatts{exe=~"load|kubelet"} / 1000000`,
	`scaph_self_cpu_usage_percent`,
}

// scaphandreLabels are the labels of Scaphandre's metrics for the test's workloads.
var scaphandreLabels = map[string][]string{
	`scaph_host_energy_microjoules`:                                        {"value_source"},
	`scaph_host_power_microwatts`:                                          {"value_source"},
	`scaph_socket_energy_microjoules`:                                      {"socket_id"},
	`scaph_socket_power_microwatts{socket_id="0"}`:                         {"socket_id"},
	`scaph_domain_energy_microjoules`:                                      {"socket_id", "domain_id", "domain_name"},
	`scaph_domain_power_microwatts{domain_id="0",domain_name="dram"}`:      {"socket_id", "domain_id", "domain_name"},
	`scaph_process_power_consumption_microwatts{container_id="CONTAINER"}`: {"pid", "exe", "cmdline", "container_id", "container_scheduler"},
}

// A Prometheus scrapes the configuration that emits Scaphandre's metrics in the same way as
// Scaphandre.
func TestScaphandresQueries(t *testing.T) {
	need(t)
	program := kubernetesBinary(t)
	sensor := startSensor(t)
	endpoint := freeEndpoint(t)
	scrape := filepath.Join(t.TempDir(), "prometheus.yaml")
	text := strings.NewReplacer("ENDPOINT", endpoint, "RULES", shipped(t, "scaphandre", "rules.yaml")).Replace(scaphandreScrape)
	require.NoError(t, os.WriteFile(scrape, []byte(text), 0o600))
	p := startPrometheusWith(t, scrape)
	load := startKeplerLoads(t)

	overlay := filepath.Join(t.TempDir(), "settings.yaml")
	require.NoError(t, os.WriteFile(overlay, []byte(strings.ReplaceAll(scaphandreSettings, "ROOT", sensor.root)), 0o600))
	c := &collector{log: filepath.Join(p.dir, "testscaphandresqueries.log")}
	c.cmd = exec.Command(program, "--config", shipped(t, "scaphandre", "config.yaml"), "--config", overlay)
	c.cmd.Env = append(os.Environ(), "SCAPHANDRE_ENDPOINT="+endpoint, "ENERGY_TELEMETRY_PORT="+freePort(t))
	c.ended = startDaemon(t, c.cmd, c.log)
	sensor.draw(t, pipelinePower)

	query := func(promQL string) []promSeries {
		require.Falsef(t, c.hasEnded(), "the collector ended: %s", lastLine(c.log))
		return p.query(t, time.Now(), strings.ReplaceAll(promQL, "CONTAINER", keplerContainer))
	}
	await := func(promQL string) (found []promSeries) {
		eventually(t, "Prometheus has "+promQL, func() bool { found = query(promQL); return len(found) > 0 })
		return found
	}
	await(`count_over_time(scaph_host_power_microwatts[1m]) >= 10`)
	for _, q := range scaphandrePanels {
		await(q)
	}
	for selector, labels := range scaphandreLabels {
		for _, s := range await(selector) {
			assert.ElementsMatch(t, append(slices.Clone(labels), "__name__", "instance", "job"), slices.Collect(maps.Keys(s.labels)), selector)
		}
	}
	emitted := keplerNames(query(`{__name__=~"scaph_.+"}`))
	assert.ElementsMatch(t, emittedForScaphandre(t), emitted, "as docs/scaphandre.md says")
	t.Attr("scaphandre-metrics", fmt.Sprintf("%d metrics, %d queries", len(emitted), len(scaphandrePanels)))

	watts := pipelinePower["intel-rapl:0"] + pipelinePower["intel-rapl:0:0"]
	for of, want := range map[string]float64{
		`scaph_host_power_microwatts{value_source="powercap_rapl_pkg"}`:   watts,
		`scaph_socket_power_microwatts{socket_id="0"}`:                    pipelinePower["intel-rapl:0"],
		`scaph_domain_power_microwatts{socket_id="0",domain_name="dram"}`: pipelinePower["intel-rapl:0:0"],
	} {
		// The median, because a scan that is late by 0.1 s has an error of that size.
		got := p.value(t, time.Now(), fmt.Sprintf(`quantile_over_time(0.5, %s[1m])`, of))
		t.Logf("%s: %.0f, truly %.0f W", of, got, want)
		assert.InEpsilon(t, 1e6*want, got, 0.05, of)
	}
	// Processes have the host's power * utilization. The interval of a process's exit lacks its
	// power.
	eventually(t, "the processes' share of the host's power is the CPU utilization of ten seconds", func() bool {
		before := cpuSeconds(t)
		time.Sleep(10 * time.Second)
		after, now := cpuSeconds(t), time.Now()
		utilization := (after.busy - before.busy) / (after.total - before.total)
		power := p.value(t, now, `sum(sum_over_time(scaph_process_power_consumption_microwatts[10s])) / sum(sum_over_time(scaph_host_power_microwatts[10s]))`)
		percentage := p.value(t, now, `sum(sum_over_time(scaph_process_cpu_usage_percentage[10s])) / max(count_over_time(scaph_host_power_microwatts[10s])) / 100`)
		t.Logf("utilization %.3f, share of the power %.3f, sum of the processes' percentages %.3f", utilization, power, percentage)
		return min(power, percentage) > 0.8*utilization && max(power, percentage) < 1.05*utilization
	})

	short := exec.Command(load, "burn", "30", "0")
	startDaemonKeeping(t, short)
	process := fmt.Sprintf(`scaph_process_power_consumption_microwatts{pid="%d"}`, short.Process.Pid)
	eventually(t, "a process has power", func() bool { return len(query(process+" > 0")) > 0 })
	require.NoError(t, short.Process.Kill())
	_ = short.Wait()
	eventually(t, "an exited process has no power", func() bool { return len(query(process)) == 0 })
}

// nodeSeconds is the CPU time of this machine in seconds, with and without idle time.
type nodeSeconds struct{ busy, total float64 }

// cpuSeconds returns the CPU time of this machine since it booted.
func cpuSeconds(t *testing.T) (s nodeSeconds) {
	t.Helper()
	// proc_stat(5): user to softirq.
	for i, field := range strings.Fields(fileText(t, "/proc/stat"))[1:8] {
		ticks, err := strconv.ParseFloat(field, 64)
		require.NoError(t, err)
		s.total += ticks / 100
		if isIdle := i == 3 || i == 4; !isIdle {
			s.busy += ticks / 100
		}
	}
	return s
}

// emittedForScaphandre are the metrics that docs/scaphandre.md lists for a machine without psys,
// and the metrics of the rules.
func emittedForScaphandre(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/scaphandre.md")
	require.NoError(t, err)
	var emitted []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`scaph_[a-z_`, ]+`) \\| (?:yes|rule) ").FindAllStringSubmatch(string(page), -1) {
		emitted = append(emitted, strings.Split(strings.Trim(row[1], "`"), "`, `")...)
	}
	require.NotEmpty(t, emitted)
	return emitted
}
