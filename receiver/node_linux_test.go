// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// treeDir returns a directory for a host's trees. It is in memory if there is enough, because the thousands of small
// files of some hosts are slow on a disk.
func treeDir(t testing.TB) string {
	const memory, room = "/dev/shm", 256 << 20
	var fs unix.Statfs_t
	if err := unix.Statfs(memory, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC || fs.Bavail*uint64(fs.Bsize) < room {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "host-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}
