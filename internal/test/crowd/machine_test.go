// SPDX-License-Identifier: Apache-2.0

//go:build linux

package crowd

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAMachineHasProcessesInContainers(t *testing.T) {
	dir := t.TempDir()
	stop, err := Run(dir, Machine{Processes: 20, Active: 2, Containers: 4})
	if errors.Is(err, ErrNoCompiler) || errors.Is(err, ErrNoCgroups) {
		t.Skip(err)
	}
	require.NoError(t, err)
	members := membersOfContainers(t, filepath.Join(dir, "crowd"))
	assert.Len(t, members, 4)
	for cgroup, n := range members {
		assert.Equal(t, 5, n, cgroup)
	}
	require.NoError(t, stop())
	assert.Zero(t, running(t, filepath.Join(dir, "crowd")))
	root, err := cgroupRoot()
	require.NoError(t, err)
	left, err := filepath.Glob(filepath.Join(root, "docker-*.scope"))
	require.NoError(t, err)
	for _, cgroup := range left {
		assert.NotContains(t, members, strings.TrimPrefix(filepath.Base(cgroup), "docker-")+"\n")
	}
}

// membersOfContainers counts the processes of a program in each container.
func membersOfContainers(t *testing.T, program string) map[string]int {
	members := map[string]int{}
	for _, p := range processes(t, program) {
		b, err := os.ReadFile(filepath.Join(p, "cgroup"))
		require.NoError(t, err)
		if _, cgroup, ok := strings.Cut(string(b), "0::/docker-"); ok {
			members[cgroup]++
		}
	}
	return members
}

func TestActiveProcessesAreInAsManyContainersAsWanted(t *testing.T) {
	dir := t.TempDir()
	stop, err := Run(dir, Machine{Processes: 20, Active: 10, Containers: 5, ActiveIn: 2})
	if errors.Is(err, ErrNoCompiler) || errors.Is(err, ErrNoCgroups) {
		t.Skip(err)
	}
	require.NoError(t, err)
	members := membersOfContainers(t, filepath.Join(dir, "crowd"))
	require.NoError(t, stop())
	sizes := slices.Sorted(maps.Values(members))
	assert.Equal(t, []int{2, 2, 2, 7, 7}, sizes, "five active and two others in two of them")
}

func TestExitedProcessesAreReaped(t *testing.T) {
	dir := t.TempDir()
	before := forks(t)
	stop, err := Run(dir, Machine{Exits: 1000})
	if errors.Is(err, ErrNoCompiler) {
		t.Skip(err)
	}
	require.NoError(t, err)
	require.Eventually(t, func() bool { return forks(t) > before+500 }, time.Minute, 10*time.Millisecond)
	assert.LessOrEqual(t, running(t, filepath.Join(dir, "load")), 1+1000/50+100, "exited children are reaped, even on a busy machine")
	require.NoError(t, stop())
}

// forks counts the processes and threads started since boot.
func forks(t *testing.T) int {
	b, err := os.ReadFile("/proc/stat")
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(line, "processes "); ok {
			count, err := strconv.Atoi(strings.TrimSpace(n))
			require.NoError(t, err)
			return count
		}
	}
	t.Skip("/proc/stat does not count processes")
	return 0
}
