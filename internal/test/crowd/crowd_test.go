// SPDX-License-Identifier: Apache-2.0

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

func TestACrowdStartsAndStops(t *testing.T) {
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

// running counts the processes of a program. Other processes of the machine do not matter.
func running(t *testing.T, program string) int { return len(processes(t, program)) }

// processes returns the directories of a program's processes below /proc.
func processes(t *testing.T, program string) (dirs []string) {
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	require.NoError(t, err)
	if len(links) == 0 {
		t.Skipf("no processes below /proc: %v", os.ErrNotExist)
	}
	for _, link := range links {
		if exe, err := os.Readlink(link); err == nil && strings.TrimSuffix(exe, " (deleted)") == program {
			dirs = append(dirs, filepath.Dir(link))
		}
	}
	return dirs
}

func TestStartReportsAMissingCompiler(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Start(t.TempDir(), 1, 0)
	require.ErrorIs(t, err, ErrNoCompiler)
}
