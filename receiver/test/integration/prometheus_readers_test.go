// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two readers scrape the collector between two collections, which are 5 s apart, while the sensor
// counts.
func TestReadersBetweenTwoCollectionsGetTheSameEnergy(t *testing.T) {
	need(t)
	sensor, endpoint, dir := startSensor(t), freeEndpoint(t), t.TempDir()
	sensor.draw(t, pipelinePower)
	overlay := filepath.Join(dir, "settings.yaml")
	require.NoError(t, os.WriteFile(overlay, []byte(strings.NewReplacer("ROOT", sensor.root, "1s", "5s").Replace(sensorSettings)), 0o600))
	cmd := exec.Command(collectorBinary(t), "--config", shipped(t, "systemd", "config.yaml"), "--config", overlay)
	cmd.Env = append(os.Environ(), "ENERGY_PROMETHEUS_ENDPOINT="+endpoint, "ENERGY_TELEMETRY_PORT=0", "STATE_DIRECTORY="+dir)
	startDaemon(t, cmd, filepath.Join(dir, "collector.log"))

	joules := func() float64 {
		return scrape(t, "http://"+endpoint+"/metrics", map[string]float64{})["system_energy_joules_total"]
	}
	counted := func() float64 { // in J, until it wraps
		text, err := os.ReadFile(sensor.counter("intel-rapl:0"))
		require.NoError(t, err)
		microjoules, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
		require.NoError(t, err)
		return microjoules / 1e6
	}
	eventually(t, "the collector reports energy", func() bool { return joules() > 0 })
	apart := make([]float64, 3) // J
	for i := range apart {
		before, first := counted(), joules()
		require.Positive(t, first)
		eventually(t, "the sensor counts 20 J", func() bool { return math.Abs(counted()-before) >= 20 })
		apart[i] = joules() - first
	}
	slices.Sort(apart)
	require.Zero(t, apart[1], "a collection may fall between the scrapes of one pair")
	t.Attr("staleness", fmt.Sprintf("%g J apart", apart[1]))
}
