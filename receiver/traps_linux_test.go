// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componentstatus"
	"golang.org/x/sys/unix"
)

func TestTrap13CountersThatOnlyRootMayReadAreReportedAndFoundLater(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to own a file that others may not read")
	}
	n := newTestNode(t)
	require.NoError(t, n.host.Render())
	counter := filepath.Join(n.host.Root(), "sys/class/powercap/intel-rapl:0/energy_uj")
	readableForAll(t, n.host.Root())
	require.NoError(t, os.Chmod(counter, 0o400))
	// Another user for the file accesses of this thread alone: the kernel then ignores the thread's
	// capabilities to override permissions (capabilities(7)).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, unix.Setfsuid(65534))
	defer func() { require.NoError(t, unix.Setfsuid(0)) }()
	require.NoError(t, n.s.start(t.Context(), n))
	defer func() { require.NoError(t, n.s.shutdown(t.Context())) }()
	scrape := func() {
		md, err := n.s.scrape(t.Context())
		require.NoError(t, err)
		n.md = md
	}
	for range 3 {
		n.host.Uptime += 10 * time.Second
		scrape()
	}
	assert.Empty(t, n.points("system.energy", nil))
	degraded := n.logs.FilterMessage("Collection degraded").All()
	require.Len(t, degraded, 1, "one line, not one per scrape")
	assert.Contains(t, degraded[0].ContextMap()["error"], "CAP_DAC_READ_SEARCH")
	require.Len(t, n.status, 1)
	assert.Equal(t, componentstatus.StatusRecoverableError, n.status[0].Status())
	assert.ErrorContains(t, n.status[0].Err(), "CAP_DAC_READ_SEARCH")

	require.NoError(t, unix.Setfsuid(0))
	require.NoError(t, os.Chmod(counter, 0o444))
	require.NoError(t, unix.Setfsuid(65534))
	n.host.Uptime += 10 * time.Second
	scrape()
	assert.Len(t, n.points("system.energy", nil), 2)
	require.Len(t, n.status, 2)
	assert.Equal(t, componentstatus.StatusOK, n.status[1].Status())
	assert.Equal(t, "measured", n.points("system.energy", nil)[0].attributes["energy.method"])
}

// readableForAll makes a tree, and the directories that lead to it, readable for every user.
func readableForAll(t *testing.T, root string) {
	open := func(path string) {
		info, err := os.Lstat(path)
		require.NoError(t, err)
		if info.Mode()&os.ModeSymlink == 0 {
			require.NoError(t, os.Chmod(path, info.Mode()|0o555))
		}
	}
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		open(path)
		return err
	}))
	for dir := filepath.Dir(root); strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		open(dir)
	}
}
