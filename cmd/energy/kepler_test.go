// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serveKepler serves metrics of Kepler and returns the endpoint.
func serveKepler(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/kepler.prom")
	require.NoError(t, err)
	return serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) })
}

func TestKeplersMetricsAreShown(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), onceOptions(serveKepler(t)), &out))
	clock := out.String()[len("NODE at "):len("NODE at 15:04:05")]
	assert.Equal(t, strings.ReplaceAll(strings.TrimPrefix(`
NODE at HH:MM:SS                          POWER       ACTIVE    IDLE
package                                  50.0 W       20.0 W  30.0 W
dram                                     3.00 W       1.00 W  2.00 W

PROGRAM                                   POWER       ENERGY   SHARE  USER, RUNS IN
postgres                                 12.5 W      262.0 J   59.5%  container 0123456789ab
sshd                                     1.00 W      31.75 J    4.8%
unattributed                                  -       0.00 J       -  no process can be named for it

PROCESS                          PID      POWER       ENERGY   SHARE  USER, RUNS IN
postgres                        4711     12.5 W      262.0 J   59.5%  container 0123456789ab
sshd                              12     1.00 W      31.75 J    4.8%

CONTAINER                                 POWER       ENERGY   SHARE
db                                       12.5 W      263.0 J   59.5%  containerd 0123456789ab pod 6f9619ff

POD                                       POWER       ENERGY   SHARE
shop/db-0                                12.0 W      251.0 J   57.1%  6f9619ff

Σ processes 293.750000 J of active 420.500000 J, by Kepler
The metrics are Kepler's: they do not say whether energy is measured, and their sums need not add up
`, "\n"), "HH:MM:SS", clock), out.String())
}

func TestAnOlderKeplerIsNamed(t *testing.T) {
	endpoint := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("kepler_node_package_joules_total{instance=\"a\",mode=\"dynamic\",package=\"0\"} 5\n" +
			"kepler_container_joules_total{container_id=\"a\",mode=\"dynamic\"} 3\n"))
	})
	var out bytes.Buffer
	err := run(t.Context(), onceOptions(endpoint), &out)
	require.ErrorContains(t, err, "older than 0.10")
	assert.ErrorContains(t, err, "energy top --local")
}

func TestOtherMetricsAreNotKeplers(t *testing.T) {
	text, err := os.ReadFile("testdata/measured.prom")
	require.NoError(t, err)
	found, err := families(bytes.NewReader(text))
	require.NoError(t, err)
	_, isKepler, err := fromKepler(found)
	require.NoError(t, err)
	assert.False(t, isKepler)
}
