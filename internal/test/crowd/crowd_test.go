// SPDX-License-Identifier: Apache-2.0

//go:build linux

package crowd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

func TestADisguisedCrowdRenamesItselfAndFillsItsCommandLine(t *testing.T) {
	for fill, want := range map[string]string{"nul": "\x00\x00\x00\x00", "short": "a\x00a\x00", "long": "xxxx"} {
		t.Run(fill, func(t *testing.T) {
			dir := t.TempDir()
			stop, err := StartDisguised(dir, 2, Disguise{Program: "disguised", Fill: fill})
			if errors.Is(err, ErrNoCompiler) {
				t.Skip(err)
			}
			require.NoError(t, err)
			defer func() { assert.NoError(t, stop()) }()
			require.Eventually(t, func() bool {
				renamed := 0
				for _, p := range processes(t, filepath.Join(dir, "disguised")) {
					comm, err := os.ReadFile(filepath.Join(p, "comm"))
					require.NoError(t, err)
					line, err := os.ReadFile(filepath.Join(p, "cmdline"))
					require.NoError(t, err)
					assert.Greater(t, len(line), 900_000)
					assert.Contains(t, string(line[500_000:500_005]), want)
					if strings.HasPrefix(string(comm), "renamed ") {
						renamed++
					}
				}
				return renamed == 2
			}, time.Minute, 10*time.Millisecond)
		})
	}
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
