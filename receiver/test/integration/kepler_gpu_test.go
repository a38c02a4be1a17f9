// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"fmt"
	"io"
	"net/http"
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

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// keplerGPULabels are the labels of Kepler's metrics of GPUs, sorted by name, without gpu, the
// index of the GPU.
var keplerGPULabels = map[string]string{
	"kepler_node_gpu_info":                "gpu_name gpu_uuid node_name vendor",
	"kepler_node_gpu_joules_total":        "gpu_name gpu_uuid node_name vendor",
	"kepler_node_gpu_watts":               "gpu_name gpu_uuid node_name vendor",
	"kepler_node_gpu_active_joules_total": "node_name",
	"kepler_node_gpu_active_watts":        "node_name",
	"kepler_node_gpu_idle_joules_total":   "node_name",
	"kepler_node_gpu_idle_watts":          "node_name",
	"kepler_process_gpu_joules_total":     "comm container_id exe node_name pid state type",
	"kepler_process_gpu_watts":            "comm container_id exe node_name pid state type",
	"kepler_container_gpu_joules_total":   "container_id container_name node_name pod_id runtime state",
	"kepler_container_gpu_watts":          "container_id container_name node_name pod_id runtime state",
	"kepler_pod_gpu_joules_total":         "node_name pod_id pod_name pod_namespace state",
	"kepler_pod_gpu_watts":                "node_name pod_id pod_name pod_namespace state",
}

// The configuration that emits Kepler's metrics gets the receiver's metrics of a node with a GPU.
func TestGPUsHaveKeplersNames(t *testing.T) {
	need(t)
	program := kubernetesBinary(t)
	into, from := freeEndpoint(t), freeEndpoint(t)
	overlay := filepath.Join(t.TempDir(), "settings.yaml")
	require.NoError(t, os.WriteFile(overlay, []byte(`
receivers: {otlp: {protocols: {http: {endpoint: "`+into+`"}}}}
service: {pipelines: {metrics: {receivers: [otlp]}}}
`), 0o600))
	c := &collector{log: filepath.Join(t.TempDir(), "kepler.log")}
	c.cmd = exec.Command(program, "--config", shipped(t, "kepler", "config.yaml"), "--config", overlay)
	c.cmd.Env = append(os.Environ(), "KEPLER_ENDPOINT="+from, "NODE_NAME=node-1")
	c.ended = startDaemon(t, c.cmd, c.log)

	for _, request := range record(t, time.Now(), 3*feedInterval, simulatedCluster()[0]) {
		eventually(t, "the collector accepts metrics", func() bool {
			require.Falsef(t, c.hasEnded(), "the collector ended: %s", lastLine(c.log))
			_, err := series.Export(t.Context(), http.DefaultClient, "http://"+into+"/v1/metrics", request)
			return err == nil
		})
	}
	answer, err := http.Get("http://" + from + "/metrics")
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())

	found := map[string]string{}
	values := map[string]float64{}
	label := regexp.MustCompile(`(\w+)="`)
	for _, sample := range regexp.MustCompile(`(?m)^(kepler_\w+)\{(.*)\} (\S+)$`).FindAllStringSubmatch(string(text), -1) {
		name, labels := sample[1], sample[2]
		if strings.Contains(name, "_cpu_") {
			assert.NotContains(t, labels, `zone="gpu"`, name)
			continue
		}
		var names []string
		for _, l := range label.FindAllStringSubmatch(labels, -1) {
			names = append(names, l[1])
		}
		slices.Sort(names)
		found[name] = strings.Join(names, " ")
		value, err := strconv.ParseFloat(sample[3], 64)
		require.NoError(t, err)
		values[name] += value
	}
	assert.Equal(t, keplerGPULabels, found)
	t.Attr("kepler-gpu-metrics", fmt.Sprintf("%d metrics", len(found)))
	assert.InDelta(t, 1, values["kepler_node_gpu_info"], 0)
	for _, unit := range []string{"watts", "joules_total"} {
		active := values["kepler_node_gpu_active_"+unit]
		assert.InEpsilon(t, values["kepler_node_gpu_"+unit], active+values["kepler_node_gpu_idle_"+unit], 1e-9, unit)
		for _, of := range []string{"process", "container", "pod"} {
			assert.InEpsilon(t, active, values["kepler_"+of+"_gpu_"+unit], 1e-6, "%s %s", of, unit)
		}
	}
}
