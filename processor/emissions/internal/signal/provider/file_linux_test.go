// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/regular"
)

func TestAPipeIsNotRead(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	_, err := ask(t, NewFile(intensities(pipe)), time.Second)
	assert.ErrorIs(t, err, regular.ErrNotRegular)
}
