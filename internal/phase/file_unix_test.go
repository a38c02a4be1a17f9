// SPDX-License-Identifier: Apache-2.0

//go:build unix

package phase

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOnlyARegularFileIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "phases")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	m, f := follow(t, path)
	assert.EqualError(t, f.Start(), path+": it is no regular file")
	require.NoError(t, os.Remove(path))
	appendTo(t, path, "")
	require.Eventually(t, func() bool { return f.Err() == nil }, time.Minute, time.Millisecond)
	appendTo(t, path, "begin a\n")
	assert.Equal(t, "a", m.next(t))
}
