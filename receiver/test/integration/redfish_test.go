// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"encoding/json"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power/redfish/redfishtest"
)

// watts is the power of the machines of these tests.
const watts = 314.0

var redfishShapes = map[string]struct {
	tree    func(redfishtest.Live) redfishtest.Tree
	system  string
	chassis string
	id      string // hw.id
	zone    string // its name
}{
	"dell":   {redfishtest.Dell, "System.Embedded.1", "System.Embedded.1", "redfish:" + redfishtest.DellUUID, "Chassis/System.Embedded.1/EnvironmentMetrics PowerWatts"},
	"hpe":    {redfishtest.HPE, "1", "1", "redfish:" + redfishtest.HPEUUID, "Chassis/1/PowerSubsystem/PowerSupplies InputPowerWatts"},
	"lenovo": {redfishtest.Lenovo, "1", "1", "redfish:" + redfishtest.LenovoUUID, "Chassis/1/Power PowerConsumedWatts"},
}

// startBMC serves a BMC by TLS, and returns its address and a file with its certificate.
func startBMC(t *testing.T, server *redfishtest.Server) (host, certificate string) {
	t.Helper()
	web := httptest.NewTLSServer(server)
	t.Cleanup(web.Close)
	certificate = filepath.Join(t.TempDir(), "bmc.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
	require.NoError(t, os.WriteFile(certificate, text, 0o600))
	return strings.TrimPrefix(web.URL, "https://"), certificate
}

// redfishtool asks a service by DMTF's client and returns its answer.
func redfishtool(t *testing.T, host string, arguments ...string) map[string]any {
	t.Helper()
	cmd := exec.Command(program(t, "redfishtool", "redfishtool"), append([]string{
		"-r", host, "-u", redfishtest.Username, "-p", redfishtest.Password, "-A", "Session", "-S", "Always", "-q",
	}, arguments...)...)
	out, err := cmd.Output()
	require.NoErrorf(t, err, "%v\n%s", arguments, out)
	var answer map[string]any
	require.NoErrorf(t, json.Unmarshal(out, &answer), "%s", out)
	return answer
}

// DMTF's own client reads the same systems, chassis and watts from the service that the tests of the meter use.
func TestRedfishServiceIsReadByRedfishtool(t *testing.T) {
	need(t)
	program(t, "redfishtool", "redfishtool")
	for vendor, shape := range redfishShapes {
		t.Run(vendor, func(t *testing.T) {
			server := redfishtest.New(shape.tree(redfishtest.Live{Watts: watts}))
			host, _ := startBMC(t, server)
			root := redfishtool(t, host, "root")
			assert.Equal(t, "1.15.0", root["RedfishVersion"])
			system := redfishtool(t, host, "Systems", "-I", shape.system)
			assert.Equal(t, shape.id, "redfish:"+system["UUID"].(string))
			metrics := redfishtool(t, host, "Chassis", "-I", shape.chassis, "Power")
			var read []any
			for _, control := range metrics["PowerControl"].([]any) {
				read = append(read, control.(map[string]any)["PowerConsumedWatts"])
			}
			assert.Contains(t, read, watts)
			open, created, refused := server.Sessions()
			assert.Equal(t, [2]int{0, 0}, [2]int{open, refused}, "sessions left open and logins refused")
			assert.Positive(t, created)
		})
	}
}

const redfishConfig = `
receivers:
  energy:
    collection_interval: 1s
    initial_delay: 0s
    model: none
    attribution: {preset: kepler}
    meters:
      redfish:
        endpoint: https://HOST
        username: energy
        password: ${env:BMC_PASSWORD}
        poll_interval: 1s
        tls: {ca_file: CERTIFICATE}
exporters:
  file: {path: OUT, flush_interval: 100ms}
service:
  telemetry: {metrics: {level: none}, logs: {encoding: json}}
  pipelines:
    metrics: {receivers: [energy], exporters: [file]}
`

// startWithBMC starts a collector that reads a BMC.
func startWithBMC(t *testing.T, host, certificate, password string) *collector {
	t.Helper()
	dir := filepath.Join(cache(t), strings.ToLower(strings.NewReplacer("/", "-", "Test", "").Replace(t.Name())))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	c := &collector{out: filepath.Join(dir, "out.json"), log: filepath.Join(dir, "collector.log")}
	require.NoError(t, os.RemoveAll(c.out))
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := strings.NewReplacer("HOST", host, "CERTIFICATE", certificate, "OUT", c.out).Replace(redfishConfig)
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	c.cmd = exec.Command(collectorBinary(t), "--config", config)
	c.cmd.Env = append(os.Environ(), "BMC_PASSWORD="+password)
	c.ended = startDaemon(t, c.cmd, c.log)
	return c
}

func (c *collector) contains(file, text string) bool {
	content, _ := os.ReadFile(file) // not there yet
	return strings.Contains(string(content), text)
}

// The collector reports the watts that redfishtool reads, and ends its session.
func TestRedfishCollectorReportsTheBMCsWatts(t *testing.T) {
	need(t)
	for vendor, shape := range redfishShapes {
		t.Run(vendor, func(t *testing.T) {
			server := redfishtest.New(shape.tree(redfishtest.Live{Watts: watts}))
			host, certificate := startBMC(t, server)
			c := startWithBMC(t, host, certificate, redfishtest.Password)
			eventually(t, "the BMC's power is reported", func() bool {
				return c.hasEnded() || c.contains(c.out, `"asDouble":314`) && c.contains(c.out, "hw.host.power")
			})
			assert.True(t, c.contains(c.log, shape.zone), "what is read is logged")
			c.stop(t)
			open, created, refused := server.Sessions()
			assert.Equal(t, [3]int{0, 1, 0}, [3]int{open, created, refused}, "sessions open, opened and logins refused")
			assert.False(t, c.contains(c.log, redfishtest.Password), "the password is logged")
		})
	}
}

// A BMC that refuses the login or hangs is one line in the log, and the collector goes on and ends in time.
func TestRedfishCollectorGoesOnWithABMCThatFails(t *testing.T) {
	need(t)
	for name, test := range map[string]struct {
		password string
		fault    bool
		says     string
	}{
		"refuses": {"wrong", false, "the BMC refuses the login"},
		"hangs":   {redfishtest.Password, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := redfishtest.New(redfishtest.Dell(redfishtest.Live{Watts: watts}))
			if test.fault {
				server.Fail(redfishtest.Hang, nil)
			}
			host, certificate := startBMC(t, server)
			c := startWithBMC(t, host, certificate, test.password)
			c.emits(t, 5)
			if test.says != "" {
				eventually(t, test.says, func() bool { return c.contains(c.log, test.says) })
			}
			c.stop(t)
			text, err := os.ReadFile(c.log)
			require.NoError(t, err)
			if test.says != "" {
				assert.Equal(t, 1, strings.Count(string(text), test.says), "one line for one state")
			}
			_, _, refused := server.Sessions()
			assert.LessOrEqual(t, refused, 1)
			assert.NotContains(t, string(text), redfishtest.Password)
		})
	}
}
