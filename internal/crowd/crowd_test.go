//go:build linux

package crowd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestACrowdComesAndGoes(t *testing.T) {
	dir := t.TempDir()
	stop, err := Start(dir, 50, 5)
	if errors.Is(err, ErrNoCompiler) {
		t.Skip(err)
	}
	require.NoError(t, err)
	program := filepath.Join(dir, "crowd")
	assert.Equal(t, 1+50, running(t, program), "the program and its children")
	require.NoError(t, stop())
	assert.Zero(t, running(t, program))
}

// running counts the processes of a program; others of the machine come and go as they please.
func running(t *testing.T, program string) (n int) {
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	require.NoError(t, err)
	if len(links) == 0 {
		t.Skipf("no processes below /proc: %v", os.ErrNotExist)
	}
	for _, link := range links {
		if exe, err := os.Readlink(link); err == nil && strings.TrimSuffix(exe, " (deleted)") == program {
			n++
		}
	}
	return n
}

func TestACrowdWithoutACompilerSaysSo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Start(t.TempDir(), 1, 0)
	require.ErrorIs(t, err, ErrNoCompiler)
}
