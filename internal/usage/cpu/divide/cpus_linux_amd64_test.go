// SPDX-License-Identifier: Apache-2.0

package divide

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadCPUs(t *testing.T) {
	root := t.TempDir()
	_, err := ReadCPUs(root)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.Mkdir(filepath.Join(root, "proc"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "proc/cpuinfo"), []byte(`processor	: 0
vendor_id	: GenuineIntel
model name	: A CPU @ 2.10GHz
physical id	: 0
core id		: 3

processor	: 64
vendor_id	: GenuineIntel
model name	: A CPU @ 2.10GHz
physical id	: 1
core id		: 0

`), 0o600))
	cpus, err := ReadCPUs(root)
	require.NoError(t, err)
	assert.Equal(t, []CPU{
		{0, "GenuineIntel", "A CPU @ 2.10GHz", "0", "3"}, {64, "GenuineIntel", "A CPU @ 2.10GHz", "1", "0"},
	}, cpus)
}
