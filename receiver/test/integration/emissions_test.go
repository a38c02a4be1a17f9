// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const gridToken = "made-up-token-4c1"

// grid is a provider with Electricity Maps' API, over TLS on the loopback interface. Each answer
// has a different intensity, and a period that ends soon, so that the next request is soon.
type grid struct {
	address string

	mu     sync.Mutex
	server *httptest.Server
	sent   map[int]bool // all intensities that were sent
	asked  int          // requests that had the token
}

// gridPeriod is the time until the end of an answer's period.
const gridPeriod = 3 * time.Second

func startGrid(t *testing.T) *grid {
	t.Helper()
	g := &grid{address: "127.0.0.1:0", sent: map[int]bool{}}
	g.start(t)
	t.Cleanup(func() { g.stop() })
	return g
}

func (g *grid) start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", g.address)
	require.NoError(t, err)
	g.address = listener.Addr().String()
	g.server = httptest.NewUnstartedServer(g)
	_ = g.server.Listener.Close()
	g.server.Listener = listener
	g.server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that do not trust it cause errors
	g.server.StartTLS()
}

// stop ends the server and all connections.
func (g *grid) stop() {
	g.server.CloseClientConnections()
	g.server.Close()
}

// authority writes the certificate that clients should trust.
func (g *grid) authority(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw})
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

// ServeHTTP answers https://app.electricitymaps.com/developer-hub/api/reference,
// carbon-intensity/latest.
func (g *grid) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/v3/carbon-intensity/latest" || r.Header.Get("auth-token") != gridToken {
		http.Error(w, `{"error":"Unauthorized"}`, http.StatusUnauthorized)
		return
	}
	zone := r.FormValue("zone")
	g.mu.Lock()
	g.asked++
	intensity := []int{61, 412, 88, 305, 23}[g.asked%5] + g.asked
	g.sent[intensity] = true
	g.mu.Unlock()
	now := time.Now().UTC()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"zone": zone, "carbonIntensity": intensity, "temporalGranularity": "5_minutes",
		"datetime":  now.Add(gridPeriod - 5*time.Minute).Format("2006-01-02T15:04:05.000Z"),
		"updatedAt": now.Format("2006-01-02T15:04:05.000Z"), "emissionFactorType": "lifecycle",
		"isEstimated": false, "estimationMethod": nil,
	})
}

// emitters are the pipelines of one collector, by the zone that each requests. The first two trust
// the provider's certificate, and the second discards intensities soon.
var emitters = []string{"stale", "unknown", "untrusted"}

func emissionsConfig(t *testing.T, provider *grid, dir string) string {
	t.Helper()
	tls := "tls: {ca_file: " + provider.authority(t) + "}, "
	settings := map[string]string{"stale": tls, "unknown": tls, "untrusted": ""}
	maxAge := map[string]string{"stale": "10m", "unknown": "2s", "untrusted": "10m"}
	processors, exporters, pipelines := "processors:\n", "exporters:\n", "  pipelines:\n"
	for _, name := range emitters {
		processors += fmt.Sprintf("  emissions/%s:\n    pue: 1.3\n    intensity:\n      max_age: %s\n      electricity_maps: {zone: %s, token: %q, timeout: 2s, %sendpoint: \"https://%s\"}\n",
			name, maxAge[name], strings.ToUpper(name), gridToken, settings[name], provider.address)
		exporters += fmt.Sprintf("  file/%s: {path: %s, flush_interval: 100ms}\n", name, filepath.Join(dir, name+".json"))
		pipelines += fmt.Sprintf("    metrics/%s: {receivers: [energy], processors: [emissions/%[1]s], exporters: [file/%[1]s]}\n", name)
	}
	exporters += "  file: {path: OUT, flush_interval: 100ms}\n"
	pipelines += "    metrics: {receivers: [energy], exporters: [file]}\n"
	return strings.ReplaceAll(receiverConfig, "SOURCE", "procfs") + processors + exporters +
		"service:\n  telemetry: {metrics: {level: none}, logs: {encoding: json}}\n" + pipelines
}

// The emissions of a collector's processes add up to the node's while the intensity changes every
// few seconds, and while its provider is restarted or impersonated. The tests of
// processor/emissions/internal/signal cover other failures of providers.
func TestEmissionsInTheCollector(t *testing.T) {
	need(t)
	t.Parallel() // in parallel with the guests, because it mostly waits
	load := build(t, "load")
	provider, dir := startGrid(t), t.TempDir()
	startDaemon(t, exec.Command(load, "burn", "40", "0"), filepath.Join(cache(t), "emissions-load.log"))
	startDaemon(t, exec.Command(load, "fork", "30"), filepath.Join(cache(t), "emissions-forks.log"))

	c := runCollector(t, "emissions", emissionsConfig(t, provider, dir))
	c.emits(t, 10)
	for _, name := range emitters[:2] {
		c.waitUntil(t, name, "recovered") // a provider may not have answered before the first collection
	}
	eventually(t, "an untrusted certificate is logged", func() bool {
		return strings.Contains(c.lastError(t, "untrusted", "Emissions degraded"), "certificate")
	})
	stop := time.Now()
	provider.stop()
	for _, name := range emitters {
		c.waitUntil(t, name, "degraded")
	}
	eventually(t, "a missing intensity is logged", func() bool {
		return strings.Contains(c.lastError(t, "unknown", "Emissions degraded"), "no value is known")
	})
	c.emits(t, 8)
	back := time.Now()
	provider.start(t)
	for _, name := range emitters[:2] {
		c.waitUntil(t, name, "recovered")
	}
	c.emits(t, 4)
	c.stop(t)
	t.Logf("the provider was down for %.1f s, and its intensity is used again %.1f s later", back.Sub(stop).Seconds(), time.Since(back).Seconds())

	sent := map[string][]emission{}
	for _, name := range emitters {
		sent[name] = readEmissions(t, filepath.Join(dir, name+".json"))
	}
	requireShares(t, sent["stale"])
	requireIntervals(t, sent["stale"])
	provider.testIntensities(t, sent["stale"])
	testStale(t, sent["stale"], stop, back)
	testUnknown(t, sent["unknown"])
	assert.Zero(t, total(sent["untrusted"], "system.emissions"))
	assert.Positive(t, total(sent["untrusted"], "system.energy"))
	c.testEmissionLog(t)
}

// lastError returns the last error that the processor of a pipeline logged with a message, or the
// message if there is no error.
func (c *collector) lastError(t *testing.T, name, message string) (last string) {
	t.Helper()
	for _, l := range c.emissionLog(t, name) {
		if l.Msg == message {
			last = l.Msg + ": " + l.Error
		}
	}
	return last
}

// waitUntil waits until the processor of a pipeline is in a state by its log. Its initial state is
// recovered.
func (c *collector) waitUntil(t *testing.T, name, state string) {
	t.Helper()
	eventually(t, name+" is "+state+", the log is in "+c.log, func() bool {
		said := c.emissionLog(t, name)
		if len(said) == 0 {
			return state == "recovered"
		}
		return said[len(said)-1].Msg == "Emissions "+state
	})
}

// emissionLog returns the conditions that the processor of a pipeline logged.
func (c *collector) emissionLog(t *testing.T, name string) (said []logLine) {
	t.Helper()
	text, err := os.ReadFile(c.log)
	require.NoError(t, err)
	for line := range bytes.Lines(text) {
		if !bytes.Contains(line, []byte(`"emissions/`+name+`"`)) || !bytes.HasSuffix(line, []byte("\n")) {
			continue
		}
		var l logLine
		require.NoError(t, json.Unmarshal(line, &l), "%s", line)
		if strings.HasPrefix(l.Msg, "Emissions ") {
			said = append(said, l)
		}
	}
	return said
}

func (c *collector) testEmissionLog(t *testing.T) {
	t.Helper()
	said := c.emissionLog(t, "stale")
	for i, l := range said {
		t.Logf("%s: %s", l.Msg, l.Error)
		assert.True(t, i == 0 || said[i-1] != l, "a state is logged once")
	}
	assert.Equal(t, "Emissions recovered", said[len(said)-1].Msg)
	assert.Contains(t, fmt.Sprint(said), "connection refused")
	text, err := os.ReadFile(c.log)
	require.NoError(t, err)
	assert.NotContains(t, string(text), gridToken)
}

// requireShares checks after each emission that the emissions of processes and of unattributed
// energy add up to the node's, to a millionth for each series.
func requireShares(t *testing.T, emissions []emission) {
	t.Helper()
	const zone, millionth = "energy.zone=package", 1e-6
	processes := totals(emissions, "process.emissions", zone)
	unattributed := totals(emissions, "system.unattributed.emissions", zone)
	active := totals(emissions, "system.emissions", zone, "energy.state=active")
	series := map[string]bool{}
	most := 0.0
	for i, e := range emissions {
		for _, p := range e.filter("process.emissions", zone) {
			series[p.series] = true
		}
		off := math.Abs(active[i] - processes[i] - unattributed[i])
		most = max(most, off)
		require.LessOrEqualf(t, off, millionth*float64(len(series)+2), "processes %.6f + unattributed %.6f == active %.6f, emission %d of %d series",
			processes[i], unattributed[i], active[i], i, len(series))
	}
	last := len(active) - 1
	require.NotZero(t, active[last])
	require.Greater(t, len(series), 5)
	t.Logf("%.6f g of the node's active energy, at most %.6f g more than %d series and unattributed", active[last], most, len(series))
}

// requireIntervals checks that the node's emissions grow in each interval by its energy times the
// gauge's rate times the PUE.
func requireIntervals(t *testing.T, emissions []emission) {
	t.Helper()
	const perKWh, pue, two = 3.6e6, 1.3, 2e-6
	active := []string{"energy.zone=package", "energy.state=active"}
	energy, had := totals(emissions, "system.energy", active...), totals(emissions, "system.emissions", active...)
	rates := map[float64]bool{}
	wanted, grown := 0.0, 0.0
	for i := 1; i < len(emissions); i++ {
		grew := had[i] - had[i-1]
		points := emissions[i].filter("electricity.carbon_intensity")
		if len(points) == 0 || i == 1 {
			continue // no intensity, or energy from before the processor's start
		}
		rates[points[0].value] = true
		want := (energy[i] - energy[i-1]) / perKWh * points[0].value * pue
		wanted, grown = wanted+want, grown+grew
		require.InDeltaf(t, wanted, grown, two, "in all, emission %d", i)
		require.InDeltaf(t, want, grew, two, "emission %d, %.6f J at %v", i, energy[i]-energy[i-1], points[0].value)
	}
	require.Greater(t, len(rates), 1, "rates")
	t.Logf("%d intervals with %d rates, %.9f by the gauge, %.6f added", len(emissions)-1, len(rates), wanted, grown)
}

// testIntensities checks that each intensity is one of the provider's, or between two of them if it
// changes within an interval.
func (g *grid) testIntensities(t *testing.T, emissions []emission) {
	g.mu.Lock()
	defer g.mu.Unlock()
	whole, least, most := 0, math.Inf(1), 0.0
	for intensity := range g.sent {
		least, most = min(least, float64(intensity)), max(most, float64(intensity))
	}
	for _, e := range emissions {
		for _, p := range e.filter("electricity.carbon_intensity", "carbon_intensity.provider.name=electricity_maps", "carbon_intensity.region=STALE") {
			assert.GreaterOrEqual(t, p.value, least)
			assert.LessOrEqual(t, p.value, most)
			if g.sent[int(p.value)] && p.value == math.Trunc(p.value) {
				whole++
			}
		}
	}
	assert.Greater(t, whole, 5, "intervals of one intensity alone")
}

// testStale checks that the intensity is reported as stale while the provider is down, and not
// after it is back.
func testStale(t *testing.T, emissions []emission, stop, back time.Time) {
	t.Helper()
	fresh, stale, again := 0, 0, 0
	for _, e := range emissions {
		for _, p := range e.filter("electricity.carbon_intensity") {
			isStale := p.attributes["carbon_intensity.stale"] == "true"
			switch {
			case p.at.Before(stop) && !isStale:
				fresh++
			case p.at.After(stop.Add(2*gridPeriod)) && p.at.Before(back):
				assert.True(t, isStale, "%v after the provider went down", p.at.Sub(stop))
				stale++
			case p.at.After(back) && !isStale:
				again++
			}
		}
	}
	t.Logf("%d intervals before, %d stale, %d after", fresh, stale, again)
	assert.Positive(t, fresh)
	assert.Positive(t, stale)
	assert.Positive(t, again)
}

// testUnknown checks that emissions stop growing while there is no intensity, though energy is
// used, and grow again afterwards.
func testUnknown(t *testing.T, emissions []emission) {
	active := []string{"energy.zone=package", "energy.state=active"}
	energy, had := totals(emissions, "system.energy", active...), totals(emissions, "system.emissions", active...)
	without, last := 0, 0
	for i := 1; i < len(emissions); i++ {
		if len(emissions[i].filter("electricity.carbon_intensity")) == 0 && had[i] > 0 {
			assert.InDelta(t, had[i-1], had[i], 0, "emission %d", i)
			assert.Greater(t, energy[i], energy[i-1])
			without, last = without+1, i
		}
	}
	t.Logf("%d intervals without an intensity", without)
	assert.Greater(t, without, 2)
	assert.Greater(t, had[len(had)-1], had[last], "emissions grow again")
}
