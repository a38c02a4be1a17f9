// SPDX-License-Identifier: Apache-2.0

package regular_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/regular"
)

// files returns paths by what is there.
func files(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(in("file"), []byte("secret\r\n\n"), 0o600))
	require.NoError(t, os.Symlink("file", in("link")))
	require.NoError(t, os.WriteFile(in("empty"), []byte("\n"), 0o600))
	require.NoError(t, os.WriteFile(in("large"), []byte(strings.Repeat("x", 1<<20+1)), 0o600))
	sparse, err := os.Create(in("huge"))
	require.NoError(t, err)
	require.NoError(t, sparse.Truncate(1<<40))
	require.NoError(t, sparse.Close())
	require.NoError(t, syscall.Mkfifo(in("pipe"), 0o600))
	require.NoError(t, os.Symlink("pipe", in("link to a pipe")))
	return map[string]string{
		"file": in("file"), "link": in("link"), "empty": in("empty"), "large": in("large"), "huge": in("huge"), "pipe": in("pipe"),
		"link to a pipe": in("link to a pipe"), "directory": dir, "zeros": "/dev/zero", "terminal": "/dev/ptmx", "missing": in("missing"),
	}
}

func TestSecretReadsRegularFilesOnlyAndNeverBlocks(t *testing.T) {
	at := files(t)
	for name, want := range map[string]string{
		"empty": "the file is empty", "missing": "no such file or directory", "large": "the file is too large: the limit is 1048576 bytes",
		"huge": "the file is too large: the limit is 1048576 bytes", "pipe": "not a regular file", "link to a pipe": "not a regular file",
		"directory": "not a regular file", "zeros": "not a regular file", "terminal": "not a regular file",
	} {
		text, err := regular.Secret(at[name])
		assert.EqualError(t, err, want, name)
		assert.NotErrorIs(t, err, fs.ErrNotExist, name)
		assert.Empty(t, text, name)
	}
	for _, name := range []string{"file", "link"} {
		text, err := regular.Secret(at[name])
		require.NoError(t, err, name)
		assert.Equal(t, "secret", text, name)
	}
}

// Files of /proc and /sys have size 0 or 4096, whatever they hold.
func TestReadBoundsWhatItReads(t *testing.T) {
	text, err := regular.Read("/proc/self/status", 100)
	assert.ErrorIs(t, err, regular.ErrTooLarge)
	assert.Len(t, text, 101, "the caller accounts for what was read")
	text, err = regular.Read("/proc/self/comm", 100)
	require.NoError(t, err)
	assert.NotEmpty(t, text)
}

func TestCheckRefusesWhatALibraryWouldHangOn(t *testing.T) {
	at := files(t)
	for name, path := range at {
		err := regular.Check(regular.Setting{}, regular.Setting{Name: "tls::ca_file", Path: path})
		switch name {
		case "file", "link", "empty", "missing":
			assert.NoError(t, err, name)
		default:
			assert.ErrorContains(t, err, "tls::ca_file: ", name)
		}
	}
}
