// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"encoding/json"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power/redfish/redfishtest"
)

// redfishtool queries a service with DMTF's client and returns its answer.
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

// DMTF's client reads the same systems, chassis and watts from the service that the tests of the
// meter use.
func TestRedfishServiceIsReadByRedfishtool(t *testing.T) {
	need(t)
	program(t, "redfishtool", "redfishtool")
	const watts = 314.0
	for vendor, shape := range map[string]struct {
		tree                  func(redfishtest.Live) redfishtest.Tree
		system, chassis, uuid string
	}{
		"dell":   {redfishtest.Dell, "System.Embedded.1", "System.Embedded.1", redfishtest.DellUUID},
		"hpe":    {redfishtest.HPE, "1", "1", redfishtest.HPEUUID},
		"lenovo": {redfishtest.Lenovo, "1", "1", redfishtest.LenovoUUID},
	} {
		t.Run(vendor, func(t *testing.T) {
			server := redfishtest.New(shape.tree(redfishtest.Live{Watts: watts}))
			web := httptest.NewTLSServer(server)
			t.Cleanup(web.Close)
			host := strings.TrimPrefix(web.URL, "https://")
			root := redfishtool(t, host, "root")
			assert.Equal(t, "1.15.0", root["RedfishVersion"])
			system := redfishtool(t, host, "Systems", "-I", shape.system)
			assert.Equal(t, shape.uuid, system["UUID"])
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
