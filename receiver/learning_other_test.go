// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package energyreceiver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// unwritable returns files that cannot be replaced, by reason.
func unwritable(t *testing.T) map[string]string {
	directory := filepath.Join(t.TempDir(), "directory")
	require.NoError(t, os.MkdirAll(filepath.Join(directory, "file"), 0o700))
	return map[string]string{"a directory": directory}
}
