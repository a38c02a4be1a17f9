// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestDirectoriesOfKilledProcessesAreRemoved(t *testing.T) {
	parent := t.TempDir()
	socket := func(dir string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, socketName), nil, 0o600))
	}
	running, err := makeOwnDir(parent)
	require.NoError(t, err)
	socket(running.path)
	killed, err := makeOwnDir(parent)
	require.NoError(t, err)
	socket(killed.path)
	require.NoError(t, killed.held.Close())
	foreign := filepath.Join(parent, dirPrefix+"1")
	require.NoError(t, os.Mkdir(foreign, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "other"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(parent, dirPrefix+"file"), nil, 0o600))
	require.NoError(t, os.Symlink(t.TempDir(), filepath.Join(parent, dirPrefix+"link")))

	next, err := makeOwnDir(parent)
	require.NoError(t, err)
	assert.NoDirExists(t, killed.path)
	assert.FileExists(t, filepath.Join(running.path, socketName))
	assert.FileExists(t, filepath.Join(foreign, "other"))
	running.remove()
	next.remove()
	assert.Equal(t, []string{dirPrefix + "1", dirPrefix + "file", dirPrefix + "link"}, namesIn(t, parent))
}
