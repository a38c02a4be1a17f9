// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The kernel's own vsock, without a machine of the hypervisor. Over its loopback the tests of
// internal/power/guest send a machine its energy. A collector beside the hypervisor's, which has no
// context ID of a machine, reaches its port and receives nothing.
func TestVsockTellsMachinesOnly(t *testing.T) {
	need(t)
	k := guestKernel(t, "6.1.", "amd64")
	files := map[string]string{"otelcol-energy": collectorBinary(t), "guest.test": buildTests(t, "internal/power/guest")}
	t.Parallel()
	g := startGuest(t, &guestOptions{name: "vsock", kernel: k, files: files, modules: []string{"vhost_vsock", "vsock_loopback"}})
	requireLoopback(t, g)
	host := g.startsCollector(t, vsockHost, "meters: {use: []}", "model: {idle_power: 100, max_power: 100}", "zones: [package]", "cpu_time: procfs")
	host.emits(t, 1)
	beside := g.startsCollector(t, "beside", "meters: {vsock: {port: 9480}}", "zones: [package]", "cpu_time: procfs")
	beside.says(t, "Collection degraded", 0)
	beside.stops(t)
	host.stops(t)
	g.powersOff(t)
	assert.Contains(t, beside.degraded(), "the hypervisor has no energy of this virtual machine")
	assert.Empty(t, beside.emissions, "energy beside the hypervisor")
	assert.Empty(t, host.degraded())
	requireBalance(t, host.emissions, "package")
}

// requireLoopback runs the test of internal/power/guest that takes a kernel with the loopback of vsock.
func requireLoopback(t *testing.T, g *guest) {
	t.Helper()
	const name, test = "loopback", "TestOverTheKernelsLoopback"
	g.starts(t, name, "", "/guest.test", "-test.v", "-test.timeout=2m", "-test.run=^"+test+"$")
	failed := g.try(t, "Wait", name, &struct{}{})
	log := g.keeps(t, name+".log")
	require.NoError(t, failed, "see %s", log)
	said, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Contains(t, string(said), "--- PASS: "+test, "see %s", log)
}
