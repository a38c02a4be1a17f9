// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConvertPrintsTheConfigurationAndReportsWhatIsLeftOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "old.yaml")
	require.NoError(t, os.WriteFile(file, []byte("receivers:\n  energy: {sampling_interval: 1s}\n  energy/b:\n    containers: {min_energy: 5, max: 3}\n"), 0o600))
	var out, notes bytes.Buffer
	require.NoError(t, convertFile(file, &out, &notes))
	assert.Equal(t, "receivers:\n  energy: {window: 1s}\n  energy/b:\n    series:\n      containers: {max: 3}\n", out.String())
	assert.Equal(t, "energy/b: containers::min_energy: left out: only processes have it\n"+changedDefaults+"\n", notes.String())
	assert.ErrorIs(t, convertFile(file+"x", &out, &notes), os.ErrNotExist)
	assert.ErrorIs(t, convertConfig(nil), errUsage)
}
