// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stores

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// ruleQueries are the shipped recording rules of five minutes, at the times of their evaluation.
func ruleQueries(t *testing.T) (queries []Query) {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/prometheus/rules.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct{ Record, Expr string }
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	exprs := map[string]string{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			exprs[rule.Record] = rule.Expr
		}
	}
	for _, r := range []struct {
		record, metric, attribute string
		within                    float64
	}{
		{"node:energy_joules:increase5m", series.System, "host.name", 0.02},
		{"namespace:energy_joules:increase5m", series.Pod, namespace, 0.03},
		// Short pods may be extrapolated across a restart.
		{"pod:energy_joules:increase5m", series.Pod, podUID, 0},
	} {
		require.Contains(t, exprs, r.record)
		queries = append(queries, Query{
			Name: r.record, Text: map[Language]string{PromQL: exprs[r.record]}, By: r.attribute,
			Truth: during(r.metric, r.attribute, "", 5*time.Minute), Every: 5 * time.Minute, Within: r.within, Least: 1,
		})
	}
	return queries
}

// VictoriaMetrics computes the figures of promtool's tests. Rules of a group do not use each
// other's results.
func TestStoresOfVictoriaMetricsComputeCostAndEnergyOfWork(t *testing.T) {
	tool, err := program(t, "victoriametrics", "vmalert-tool")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"rules.yaml", "price-fixed.yaml", "price-fixed_test.yaml", "work_test.yaml"} {
		text, err := os.ReadFile("../../../deploy/prometheus/" + name)
		require.NoError(t, err)
		text = bytes.ReplaceAll(text, []byte("promql_expr_test"), []byte("metricsql_expr_test"))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	out, err := exec.Command(tool, "unittest", "--files="+filepath.Join(dir, "*_test.yaml")).CombinedOutput()
	require.NoError(t, err, string(out))
}

func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

func TestThePageOfBackendsHasTheTestedQueries(t *testing.T) {
	page, err := os.ReadFile("../../../dev/backends.md")
	require.NoError(t, err)
	require.Contains(t, flat(string(page)), flat(increased(series.Container, "container.id", "1 HOUR")))
	require.Contains(t, flat(string(page)), added(series.Container, "container.id"))
}

// Every query on the page is in a test: of the stores, or of promtool.
func TestQueriesOfThePageAreTested(t *testing.T) {
	page, err := os.ReadFile("../../../docs/prometheus.md")
	require.NoError(t, err)
	promtool, err := os.ReadFile("../../../deploy/prometheus/rules_test.yaml")
	require.NoError(t, err)
	tested := map[string]bool{}
	for _, q := range Recipes {
		for _, text := range q.Text {
			tested[flat(text)] = true
			require.Contains(t, flat(string(page)), flat(text), "%s is on the page", q.Name)
		}
	}
	for _, block := range strings.Split(string(page), "```")[1:] {
		language, text, _ := strings.Cut(block, "\n")
		if language != "promql" {
			continue
		}
		require.Truef(t, tested[flat(text)] || strings.Contains(flat(string(promtool)), flat(text)), "no test asks:\n%s", text)
	}
}
