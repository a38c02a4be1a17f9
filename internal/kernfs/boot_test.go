// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBootIDIsOfTheTreesKernel(t *testing.T) {
	root := t.TempDir()
	_, err := BootID(root)
	require.ErrorIs(t, err, os.ErrNotExist)
	name := filepath.Join(root, "proc/sys/kernel/random/boot_id")
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte("11111111-2222-3333-4444-555555555555\n"), 0o600))
	id, err := BootID(root)
	require.NoError(t, err)
	assert.Equal(t, "11111111-2222-3333-4444-555555555555", id)
}
