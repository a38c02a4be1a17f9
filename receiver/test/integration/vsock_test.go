// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The kernel's vsock, without a virtual machine. The tests of internal/power/guest send a machine
// its energy over the loopback of vsock. A second collector next to the hypervisor's, which has no
// context ID of a machine, reaches the port and receives no energy.
func TestVsockServesMachinesOnly(t *testing.T) {
	need(t)
	k := guestKernel(t, "6.1.", "amd64")
	files := map[string]string{"otelcol-energy": collectorBinary(t), "guest.test": buildTests(t, "internal/power/guest")}
	t.Parallel()
	g := startGuest(t, &guestOptions{name: "vsock", kernel: k, files: files, modules: []string{"vhost_vsock", "vsock_loopback"}})
	requireLoopback(t, g)
	host := g.startsCollector(t, vsockHost, "meters: {use: []}", "model: {idle_power: 100, max_power: 100}", "zones: [package]", "cpu_time: procfs")
	host.emits(t, 1)
	other := g.startsCollector(t, "other", "meters: {vsock: {port: 9480}}", "zones: [package]", "cpu_time: procfs")
	other.says(t, "Collection degraded", 0)
	other.stops(t)
	host.stops(t)
	g.powersOff(t)
	assert.Contains(t, other.degraded(), "the hypervisor has no energy of this virtual machine")
	assert.Empty(t, other.emissions, "the host is not a virtual machine")
	assert.Empty(t, host.degraded())
	requireBalance(t, host.emissions, "package")
}

// requireLoopback runs the test of internal/power/guest that requires a kernel with vsock's
// loopback.
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
