// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// deploy/chart/test.sh renders the chart. Both ways to install must grant and mount the same.
func TestChartMatchesTheManifest(t *testing.T) {
	path := os.Getenv("CHART")
	if path == "" {
		t.Skip("lacks CHART, the rendered chart: deploy/chart/test.sh")
	}
	rendered := map[string]map[string]any{}
	for _, object := range documents(t, path) {
		if kind, ok := object["kind"].(string); ok {
			rendered[kind] = object
		}
	}
	got := at(t, rendered["DaemonSet"], "spec", "template", "spec")
	want := at(t, documents(t, "kubernetes/daemonset.yaml")[0], "spec", "template", "spec")
	for _, key := range []string{"hostPID", "priorityClassName", "tolerations", "nodeSelector", "volumes"} {
		assert.Equal(t, at(t, want, key), at(t, got, key), key)
	}
	for _, key := range []string{"securityContext", "resources", "volumeMounts", "startupProbe", "livenessProbe", "args"} {
		assert.Equal(t, at(t, want, "containers", key), at(t, got, "containers", key), key)
	}
	for _, object := range documents(t, "kubernetes/rbac.yaml") {
		if object["kind"] == "ClusterRole" {
			assert.Equal(t, object["rules"], rendered["ClusterRole"]["rules"])
		}
	}

	var config map[string]any
	text := at(t, rendered["ConfigMap"], "data", "config.yaml").(string)
	require.NoError(t, yaml.Unmarshal([]byte(text), &config))
	shipped := documents(t, "kubernetes/config.yaml")[0]
	shipped["receivers"].(map[string]any)["energy"].(map[string]any)["model"] = "auto" // the default
	assert.Equal(t, shipped, config)
	assert.NotContains(t, text, "e+", "an integer became a float")
}
