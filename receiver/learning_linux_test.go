// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"golang.org/x/sys/unix"
)

// unwritable returns files that cannot be replaced, by reason.
func unwritable(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"a directory":   filepath.Join(dir, "directory"),
		"a pipe":        filepath.Join(dir, "pipe"),
		"no directory":  filepath.Join(dir, "missing", "learned"),
		"not permitted": "/proc/self/learned",
	}
	require.NoError(t, os.MkdirAll(filepath.Join(files["a directory"], "file"), 0o700))
	require.NoError(t, unix.Mkfifo(files["a pipe"], 0o600))
	for name, options := range map[string]string{"a read-only directory": "", "a full directory": "size=4k"} {
		at := filepath.Join(dir, name)
		require.NoError(t, os.Mkdir(at, 0o700))
		if err := unix.Mount("tmpfs", at, "tmpfs", 0, options); err != nil {
			t.Logf("%s is left out: %v", name, err)
			continue
		}
		t.Cleanup(func() { require.NoError(t, unix.Unmount(at, 0)) })
		files[name] = filepath.Join(at, "learned")
		if options == "" {
			require.NoError(t, unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
			continue
		}
		require.NoError(t, os.WriteFile(filepath.Join(at, "other"), bytes.Repeat([]byte{1}, 4096), 0o600))
	}
	delete(files, "a pipe") // it is replaced when the model is stored
	return files
}

func TestAStateFileThatIsAPipeDoesNotBlock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "learned")
	require.NoError(t, unix.Mkfifo(file, 0o600))
	n := learner(t, inFile(file))
	assert.Equal(t, []string{"Degraded learned static power", "Recovered learned static power"}, n.logged())
	require.NoError(t, n.s.shutdown(t.Context()))
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.True(t, info.Mode().IsRegular(), "it is replaced like a broken file")
}

func TestAnotherUsersStateFileIsAnErrorToRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	dir := t.TempDir()
	file := stateFile(filepath.Join(dir, "learned"))
	require.NoError(t, file.Set(t.Context(), "", []byte("theirs")))
	for d := dir; d != "/"; d = filepath.Dir(d) {
		info, err := os.Stat(d)
		require.NoError(t, err)
		if info.Mode()&0o005 != 0o005 && filepath.Dir(d) != os.TempDir() && d != dir {
			t.Skip("another user cannot reach the directory for temporary files")
		}
	}
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, err := unix.SetfsuidRetUid(65534)
	require.NoError(t, err)
	_, readErr := file.Get(t.Context(), "")
	writeErr := file.Set(t.Context(), "", []byte("mine"))
	_, err = unix.SetfsuidRetUid(0)
	require.NoError(t, err)
	require.ErrorIs(t, readErr, fs.ErrPermission)
	require.ErrorIs(t, writeErr, fs.ErrPermission)
	content, err := file.Get(t.Context(), "")
	require.NoError(t, err)
	assert.Equal(t, "theirs", string(content))
}

func TestAStorageExtensionMayFaultOnAFileThatItHasMapped(t *testing.T) {
	name := filepath.Join(t.TempDir(), "database")
	require.NoError(t, os.WriteFile(name, make([]byte, 8192), 0o600))
	file, err := os.Open(name)
	require.NoError(t, err)
	mapped, err := unix.Mmap(int(file.Fd()), 0, 8192, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(mapped)); require.NoError(t, file.Close()) })
	require.NoError(t, os.Truncate(name, 0))
	s := &brokenStorage{memoryStorage: &memoryStorage{stored: map[string][]byte{}}}
	s.open, s.get = func() error { return nil }, func() error { return nil }
	s.set = func() error { assert.Zero(t, mapped[5000]); return nil }
	n := learner(t, func(n *testNode) {
		n.s.cfg.Storage = &storageID
		n.extensions = map[component.ID]component.Component{storageID: s}
	})
	assert.Equal(t, []string{"Degraded storage"}, n.logged())
	require.NoError(t, n.s.shutdown(t.Context()))
}
