// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// objects returns the objects of a rendered chart.
func objects(t *testing.T, values string) []map[string]any {
	dir := os.Getenv("CHARTS")
	if dir == "" {
		t.Skip("lacks CHARTS, the directory of rendered charts: deploy/chart/test.sh")
	}
	return documents(t, filepath.Join(dir, values+".yaml"))
}

// daemonSets returns the pods and the configurations of a rendered chart, by the name of the DaemonSet.
func daemonSets(t *testing.T, values string) (pods, configs map[string]map[string]any) {
	pods, configs = map[string]map[string]any{}, map[string]map[string]any{}
	for _, object := range objects(t, values) {
		switch object["kind"] {
		case "DaemonSet":
			pods[at(t, object, "metadata", "name").(string)] = at(t, object, "spec", "template", "spec").(map[string]any)
		case "ConfigMap":
			var config map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(at(t, object, "data", "config.yaml").(string)), &config))
			configs[at(t, object, "metadata", "name").(string)] = config
		}
	}
	return pods, configs
}

// Terms of an affinity are alternatives, so each of them must leave out the nodes of the other DaemonSet.
func TestChartKeepsAnAffinityOnBothDaemonSets(t *testing.T) {
	pods, _ := daemonSets(t, "11-profiles")
	path := []string{"affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"}
	node, gpu := at(t, pods["otelcol-energy"], path...).([]any), at(t, pods["otelcol-energy-nvidia"], path...).([]any)
	require.Len(t, node, 2)
	require.Len(t, gpu, 2)
	isOther := map[string]any{"key": "nvidia.com/gpu.present", "operator": "NotIn", "values": []any{"true"}}
	for i := range node {
		assert.Contains(t, node[i].(map[string]any)["matchExpressions"], isOther)
		assert.NotContains(t, fmt.Sprint(gpu[i]), "NotIn")
		assert.Equal(t, gpu[i].(map[string]any)["matchFields"], node[i].(map[string]any)["matchFields"])
	}
}

func TestChartPinsEachImageByItsDigest(t *testing.T) {
	pods, _ := daemonSets(t, "11-profiles")
	for name, want := range map[string]string{
		"otelcol-energy":        "otelcol-energy-profiles@sha256:" + strings.Repeat("1", 64),
		"otelcol-energy-nvidia": "otelcol-energy-gpu@sha256:" + strings.Repeat("2", 64),
	} {
		assert.Equal(t, "ghcr.io/energyreceiver/"+want, at(t, pods[name], "containers", "image"))
	}
	pods, _ = daemonSets(t, "09-overrides")
	assert.Contains(t, at(t, pods["otelcol-energy"], "containers", "image"), "registry.example.com/otelcol-energy@sha256:")
}

// The NetworkPolicy opens the metrics ports if the metrics are served.
func TestChartLetsPrometheusScrape(t *testing.T) {
	for values, want := range map[string]any{
		"01-gateway":    []any{},
		"03-prometheus": []any{map[string]any{"ports": []any{map[string]any{"port": "metrics"}, map[string]any{"port": "own-metrics"}}}},
	} {
		var got any
		for _, object := range objects(t, values) {
			if object["kind"] == "NetworkPolicy" {
				got = at(t, object, "spec", "ingress")
			}
		}
		assert.Equal(t, want, got, values)
	}
}

func TestChartGrantsTheProfilerWhatItNeedsAndOthersNoMore(t *testing.T) {
	pods, configs := daemonSets(t, "11-profiles")
	for name, want := range map[string]bool{"otelcol-energy": true, "otelcol-energy-nvidia": false} {
		has := func(list any, part string) bool {
			text, err := yaml.Marshal(list)
			require.NoError(t, err)
			return strings.Contains(string(text), part)
		}
		pod := pods[name]
		assert.Equal(t, want, has(at(t, pod, "containers", "args"), "service.profilesSupport"))
		assert.Equal(t, want, has(at(t, pod, "containers", "image"), "otelcol-energy-profiles"))
		assert.Equal(t, want, has(at(t, pod, "containers", "securityContext", "capabilities", "add"), "SYS_ADMIN"))
		assert.Equal(t, want, has(at(t, pod, "containers", "volumeMounts"), "/sys/kernel/tracing"))
		assert.Equal(t, want, has(at(t, pod, "volumes"), "/sys/kernel/tracing"))
		assert.Equal(t, want, has(at(t, configs[name], "service", "pipelines"), "profiling"))
	}
}

// Without an offset, rules miss late samples. The default equals the offset of prometheus.yaml; older versions of the
// Operator accept none.
func TestChartDelaysTheRules(t *testing.T) {
	for values, want := range map[string]any{
		"10-everything": at(t, documents(t, "prometheus/prometheus.yaml")[0], "global", "rule_query_offset"),
		"04-operator":   nil,
	} {
		var groups []any
		for _, object := range objects(t, values) {
			if object["kind"] == "PrometheusRule" {
				groups = at(t, object, "spec", "groups").([]any)
			}
		}
		require.NotEmpty(t, groups)
		for _, group := range groups {
			assert.Equal(t, want, group.(map[string]any)["query_offset"], values)
			assert.NotEmpty(t, group.(map[string]any)["rules"])
		}
	}
}
