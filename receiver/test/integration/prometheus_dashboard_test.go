// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

type dashboard struct {
	Panels     []dashboardPanel
	Templating struct {
		List []struct {
			Name, Type string
			Query      json.RawMessage
		}
	}
}

type dashboardPanel struct {
	Title, Type string
	GridPos     struct{ X, Y, W, H int }
	Targets     []dashboardTarget
	Panels      []dashboardPanel // of a collapsed row
	// columns, if the panel is a table
	Transformations []struct {
		Options struct{ IndexByName map[string]int }
	}
}

type dashboardTarget struct{ Expr, LegendFormat string }

type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Record, Alert, Expr string
			Labels              map[string]string
		}
	}
}

// Every query of the dashboard and the rules is run against Prometheus, with 90 minutes of a
// simulated cluster and a real collector of this machine.
func TestPrometheusDashboardAndRules(t *testing.T) {
	need(t)
	p := startPrometheus(t)
	p.feed(t)
	startRealAndSensorless(t, p)

	t.Run("EveryRuleReturnsSomething", p.testRules)
	t.Run("EveryPanelReturnsSomething", func(t *testing.T) { p.testPanels(t, ".*", nil) })
	t.Run("EveryPanelReturnsSomethingOfTwoNodes", func(t *testing.T) { p.testPanels(t, "(node-1|node-2)", nil) })
	t.Run("PanelsReturnSomethingOfTheRealCollector", func(t *testing.T) {
		// This machine has no pods and virtual machines of the test, and its energy has no
		// host.name.
		p.testPanels(t, "", []string{"Node", "Programs"})
		p.testPanels(t, "real", []string{"Cost and health of the receiver"})
	})
	t.Run("AlertsFireForTheirCauses", p.testAlerts)
	t.Run("EveryVariableHasValues", p.testVariables)
	t.Run("PromtoolTestsTheRules", func(t *testing.T) {
		tool := filepath.Join(p.dir, "promtool")
		for _, name := range []string{"rules", "price-fixed", "price-time-of-use"} {
			t.Log(run(t, exec.Command(tool, "check", "rules", "--lint=all", "--lint-fatal", shipped(t, "prometheus", name+".yaml"))))
			t.Log(run(t, exec.Command(tool, "test", "rules", shipped(t, "prometheus", name+"_test.yaml"))))
		}
		t.Log(run(t, exec.Command(tool, "test", "rules", shipped(t, "prometheus", "work_test.yaml"))))
	})
}

// startRealAndSensorless starts one collector as shipped, with a model, and one without a sensor.
// It waits until Prometheus has their rates.
func startRealAndSensorless(t *testing.T, p *prometheusServer) {
	t.Helper()
	const settings = `
receivers:
  energy: {collection_interval: 1s, initial_delay: 0s, METER, zones: [package, dram]}
service:
  telemetry:
    resource: {host.name: NAME}
    metrics:
      readers:
        - periodic:
            interval: 1000
            exporter: {otlp: {protocol: http/protobuf, endpoint: "${env:PROMETHEUS}/api/v1/otlp/v1/metrics"}}
`
	sensor := startSensor(t)
	sensor.draw(t, pipelinePower)
	empty := t.TempDir()
	require.NoError(t, os.Symlink("/proc", filepath.Join(empty, "proc")))
	var all []*collector
	for name, meter := range map[string]string{
		"real": "meters: {use: [powercap]}, model: none, root_path: " + sensor.root, "sensorless": "meters: {use: [powercap]}, model: none, root_path: " + empty,
	} {
		all = append(all, p.startShipped(t, name, strings.NewReplacer("NAME", name, "METER", meter).Replace(settings)))
	}
	for _, query := range []string{
		`rate(process_energy_joules_total{host_name=""}[5m])`, `rate(otelcol_process_cpu_seconds_total{host_name="real"}[5m])`,
		`otelcol_receiver_energy_processes{host_name="sensorless"}`,
	} {
		eventually(t, query, func() bool {
			for _, c := range all {
				require.Falsef(t, c.hasEnded(), "the collector ended: %s", lastLine(c.log))
			}
			return len(p.query(t, time.Now(), query)) > 0
		})
	}
}

// onlyUnitTested are alerts that no collector of this test causes. The unit tests of the rules
// cause them.
var onlyUnitTested = []string{"EnergyExportFails", "EnergySeriesAreDropped", "EnergyStorageFails", "EnergyTotalsRestarted"}

func (p *prometheusServer) testRules(t *testing.T) {
	text, err := os.ReadFile(shipped(t, "prometheus", "rules.yaml"))
	require.NoError(t, err)
	var file ruleFile
	require.NoError(t, yaml.Unmarshal(text, &file))
	count := 0
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			count++
			// Pods of this cluster have no idle energy.
			if slices.Contains(onlyUnitTested, rule.Alert) || rule.Labels["energy_state"] == "idle" {
				continue
			}
			if rule.Record != "" {
				p.await(t, rule.Record)
			}
			found := p.await(t, subqueryStep.ReplaceAllString(rule.Expr, "${1}1s]"))
			t.Logf("%s%s: %d series", rule.Record, rule.Alert, len(found))
		}
	}
	assert.Greater(t, count, 10)
}

// testPanels runs the queries of all panels, or of the panels in some rows, for the nodes that
// match.
func (p *prometheusServer) testPanels(t *testing.T, node string, rows []string) {
	count, row := 0, ""
	interpolate := strings.NewReplacer("$node", node, "$namespace", ".*", "$pod", ".*", "$zones", "package|dram|gpu", "$__rate_interval", "5m", "$__range", "6h")
	for _, panel := range readDashboard(t).all() {
		if panel.Type == "row" {
			row = panel.Title
		}
		wanted := rows == nil
		for _, r := range rows {
			wanted = wanted || r == row
		}
		// The real collector's telemetry has a host.name, but its energy does not.
		if !wanted || node == "" && strings.Contains(panel.Title, "VMs") || node == "real" && panel.onEnergy() {
			continue
		}
		for _, target := range panel.Targets {
			count++
			promQL := interpolate.Replace(target.Expr)
			require.NotContains(t, promQL, "$", "no undefined variable")
			found := p.await(t, promQL)
			if rows == nil {
				for _, label := range panel.labels(target.LegendFormat) {
					has := slices.ContainsFunc(found, func(s promSeries) bool { return s.labels[label] != "" })
					assert.Truef(t, has, "%s, %s: some series have the label %s", row, panel.Title, label)
				}
			}
			for _, s := range found {
				assert.Falsef(t, math.IsNaN(s.samples[0].value), "%s, %s: no number: %s", row, panel.Title, promQL)
			}
		}
	}
	t.Logf("%d queries", count)
	assert.Greater(t, count, 10)
}

// onEnergy reports whether the panel shows anything but the collector's own telemetry.
func (d dashboardPanel) onEnergy() bool {
	return slices.ContainsFunc(d.Targets, func(t dashboardTarget) bool {
		return !strings.Contains(t.Expr, "otelcol_")
	})
}

var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// labels returns the labels of a target's series that the panel shows.
func (d dashboardPanel) labels(legend string) []string {
	var names []string
	for _, found := range legendLabel.FindAllStringSubmatch(legend, -1) {
		names = append(names, found[1])
	}
	for _, transformation := range d.Transformations {
		for column := range transformation.Options.IndexByName {
			if !strings.HasPrefix(column, "Value") {
				names = append(names, column)
			}
		}
	}
	return names
}

// all returns all panels, including the panels of collapsed rows.
func (d dashboard) all() (panels []dashboardPanel) {
	for _, panel := range d.Panels {
		panels = append(append(panels, panel), panel.Panels...)
	}
	return panels
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile(shipped(t, "dashboards", "energy.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

// testAlerts checks which nodes each alert fires for.
func (p *prometheusServer) testAlerts(t *testing.T) {
	want := map[string][]string{
		"EnergyIsNotReported":     {"node-4"},
		"EnergyHasNoSensor":       {"sensorless"},
		"EnergySensorFails":       {"node-5"},
		"EnergyIsUnattributed":    {"node-3"},
		"GPUEnergyIsUnattributed": {"node-3"},
		"EnergyHasNoEmissions":    {"node-3"},
		"EnergyModelIsNotTrained": {"node-1", "node-2", "node-5"}, // after 90 minutes
	}
	got := map[string][]string{}
	eventually(t, "alerts are pending", func() bool {
		got = map[string][]string{}
		for _, s := range p.query(t, time.Now(), `ALERTS`) {
			// The real collector's own metrics have a host.name, but its energy does not.
			if host := s.labels["host_name"]; host != "" && host != "real" {
				got[s.labels["alertname"]] = append(got[s.labels["alertname"]], host)
			}
		}
		for alert, hosts := range got { // for several zones
			slices.Sort(hosts)
			got[alert] = slices.Compact(hosts)
		}
		return len(got) == len(want)
	})
	assert.Equal(t, want, got)
}

var labelValues = regexp.MustCompile(`label_values\((\w+)(?:\{[^}]*\})?, (\w+)\)`)

func (p *prometheusServer) testVariables(t *testing.T) {
	count := 0
	for _, variable := range readDashboard(t).Templating.List {
		if variable.Type != "query" {
			continue
		}
		var query struct{ Query string }
		require.NoError(t, json.Unmarshal(variable.Query, &query))
		parts := labelValues.FindStringSubmatch(query.Query)
		require.Len(t, parts, 3, query.Query)
		found := p.query(t, time.Now(), fmt.Sprintf(`count by (%s) (%s{%s!=""})`, parts[2], parts[1], parts[2]))
		assert.Greater(t, len(found), 1, query.Query)
		count++
	}
	assert.Equal(t, 3, count)
}
