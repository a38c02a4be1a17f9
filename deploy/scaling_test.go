// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// promtool tests the queries of autoscalers, as KEDA and prometheus-adapter send them, and those of docs/code.md.
func TestScalersAndThePageAskTestedQueries(t *testing.T) {
	flat := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	tested := flat(read(t, "prometheus/work_test.yaml"))

	trigger := at(t, documents(t, "scaling/keda.yaml")[0], "spec", "triggers", "metadata")
	assert.Contains(t, tested, flat(at(t, trigger, "query").(string)))
	assert.Equal(t, "false", at(t, trigger, "ignoreNullValues"), "no data is not 0 W")

	objects := documents(t, "scaling/hpa.yaml")
	var adapter map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(at(t, objects[0], "data", "config.yaml").(string)), &adapter))
	rule, metric := at(t, adapter, "externalRules"), at(t, objects[1], "spec", "metrics", "external", "metric")
	assert.Equal(t, at(t, rule, "name", "as"), at(t, metric, "name"))
	selected := `k8s_workload_name="` + at(t, metric, "selector", "matchLabels", "k8s_workload_name").(string) + `", ` +
		`k8s_namespace_name="` + at(t, objects[1], "metadata", "namespace").(string) + `"`
	assert.Contains(t, tested, flat(strings.ReplaceAll(at(t, rule, "metricsQuery").(string), "<<.LabelMatchers>>", selected)))

	blocks := strings.Split(read(t, "../docs/code.md"), "```promql\n")[1:]
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		query, _, _ := strings.Cut(block, "```")
		assert.Contains(t, tested, flat(query))
	}
}

// The power and the energy are means of five minutes: a change within them would be repeated before it shows.
func TestScalersAreDamped(t *testing.T) {
	for _, behavior := range []any{
		at(t, documents(t, "scaling/keda.yaml")[0], "spec", "advanced", "horizontalPodAutoscalerConfig", "behavior"),
		at(t, documents(t, "scaling/hpa.yaml")[1], "spec", "behavior"),
	} {
		for _, direction := range []string{"scaleUp", "scaleDown"} {
			assert.GreaterOrEqual(t, at(t, behavior, direction, "stabilizationWindowSeconds"), 300)
			assert.GreaterOrEqual(t, at(t, behavior, direction, "policies", "periodSeconds"), 300)
		}
	}
}
