// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const endedSettings = sensorSettings + "    series: {processes: {min_energy: 0, max: 500}}\n"

// When a process ends, its power disappears from Prometheus with the final value of its energy.
// Otherwise the power of all processes that ended within five minutes would be added to the running
// processes' power.
func TestPrometheusDropsThePowerOfEndedProcessesOverOTLP(t *testing.T) {
	need(t)
	p := startPrometheus(t)
	from := time.Now()
	testPowerOfEndedProcesses(t, p, func(settings string) *collector { return p.startShipped(t, "collector", settings) })

	// At every time, the processes have at most the node's power.
	now := time.Now()
	for _, zone := range []string{"package", "dram"} {
		moments := p.samples(t, fmt.Sprintf(`system_power_watts{energy_zone=%q,energy_state="active"}`, zone), from, now)
		require.Greater(t, len(moments), 5)
		for _, m := range moments {
			got := p.value(t, m.at, fmt.Sprintf(`sum(process_power_watts{energy_zone=%q})`, zone))
			require.LessOrEqual(t, got, m.value+1e-6, "%s at %v", zone, m.at)
		}
		t.Logf("%s: processes have at most the node's power at %d times", zone, len(moments))
	}
}

// The same through the collector's Prometheus exporter, with the shipped scrape configuration.
func TestPrometheusDropsThePowerOfEndedProcessesAfterScrapes(t *testing.T) {
	need(t)
	endpoint := freeEndpoint(t)
	p := startPrometheusWith(t, scrapeConfig(t, endpoint, "energy"))
	from := time.Now()
	testPowerOfEndedProcesses(t, p, func(settings string) *collector {
		overlay := filepath.Join(t.TempDir(), "settings.yaml")
		require.NoError(t, os.WriteFile(overlay, []byte(settings), 0o600))
		c := &collector{log: filepath.Join(p.dir, strings.ToLower(t.Name())+"-collector.log")}
		c.cmd = exec.Command(collectorBinary(t), "--config", shipped(t, "systemd", "config.yaml"), "--config", overlay)
		c.cmd.Env = append(os.Environ(), "ENERGY_PROMETHEUS_ENDPOINT="+endpoint, "STATE_DIRECTORY="+t.TempDir())
		c.ended = startDaemon(t, c.cmd, c.log)
		return c
	})

	// A scrape may mix two successive collections, but not older ones.
	highest := 0.0
	scrapes := p.samples(t, fmt.Sprintf(`up{job="energy", instance=%q}`, endpoint), from, time.Now())
	for _, scrape := range scrapes {
		at := scrape.at.Add(time.Millisecond)
		processes, node := p.value(t, at, `sum(process_power_watts{energy_zone="package"})`), p.value(t, at, `sum(system_power_watts{energy_zone="package"})`)
		if node > 0 {
			require.Less(t, processes, 1.5*node, "at %v", at)
			highest = max(highest, processes/node)
		}
	}
	require.Positive(t, highest)
	t.Logf("processes have at most %.0f %% of the node's power at %d scrapes", 100*highest, len(scrapes))
}

// scrapeConfig writes the shipped scrape configuration for an endpoint, with a scrape every second.
func scrapeConfig(t *testing.T, endpoint, job string) string {
	t.Helper()
	text, err := os.ReadFile(shipped(t, "prometheus", "scrape.yaml"))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "scrape.yaml")
	changed := strings.NewReplacer("127.0.0.1:8889", endpoint, "15s", "1s", "job_name: energy", "job_name: "+job).Replace(string(text))
	require.Contains(t, changed, endpoint)
	require.NoError(t, os.WriteFile(path, []byte(changed), 0o600))
	return path
}

func testPowerOfEndedProcesses(t *testing.T, p *prometheusServer, start func(settings string) *collector) {
	sensor := startSensor(t)
	load := build(t, "load")
	c := start(strings.ReplaceAll(endedSettings, "ROOT", sensor.root))
	sensor.draw(t, pipelinePower)
	query := func(at time.Time, promQL string) []promSeries {
		require.Falsef(t, c.hasEnded(), "the collector ended: %s", lastLine(c.log))
		return p.query(t, at, promQL)
	}
	for range 3 {
		var running []*exec.Cmd
		for range 4 {
			cmd := exec.Command(load, "burn", "40", "0")
			startDaemonKeeping(t, cmd)
			running = append(running, cmd)
		}
		of := func(metric string, cmd *exec.Cmd) string {
			return fmt.Sprintf(`%s{process_pid="%d",energy_zone="package"}`, metric, cmd.Process.Pid)
		}
		eventually(t, "each has power", func() bool {
			for _, cmd := range running {
				if len(query(time.Now(), of("process_power_watts", cmd)+" > 0")) == 0 {
					return false
				}
			}
			return true
		})
		for _, cmd := range running {
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait()
		}
		ended := time.Now()
		eventually(t, "Prometheus has power of the node that was measured afterwards", func() bool {
			return len(p.samples(t, `system_power_watts{energy_zone="package",energy_state="active"}`, ended.Add(2*time.Second), time.Now())) > 0
		})
		for _, cmd := range running {
			assert.Empty(t, query(time.Now(), of("process_power_watts", cmd)), "its power has ended")
			assert.NotEmpty(t, query(time.Now(), of("process_energy_joules_total", cmd)), "its energy remains")
		}
	}
}
