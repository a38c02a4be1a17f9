// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == LoadCommand {
		_ = RunLoad(os.Args[2:])
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// startLoad starts a load on the last CPU, and waits until it runs.
func startLoad(t *testing.T, load Load) (loader *processes, pid int) {
	t.Helper()
	loader = &processes{}
	cpus := loader.CPUs()
	require.NotEmpty(t, cpus)
	pids, err := loader.Start(load, cpus[len(cpus)-1:])
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = loader.End() })
	require.Eventually(t, func() bool { return used(t, pids[0]) > 0.05 }, time.Minute, 10*time.Millisecond)
	return loader, pids[0]
}

// used returns the CPU time of a process in seconds.
func used(t *testing.T, pid int) float64 {
	p, err := procfs.NewProc(pid)
	require.NoError(t, err)
	stat, err := p.Stat()
	require.NoError(t, err)
	return stat.CPUTime()
}

func TestALoadRunsUntilItIsEnded(t *testing.T) {
	for _, load := range []Load{Spin, Memory} {
		loader, pid := startLoad(t, load)
		loader.Pause()
		paused := used(t, pid)
		times, err := loader.End()
		require.NoError(t, err)
		assert.InDelta(t, paused, times[0].Seconds(), 0.05, "it did not run any more")
		_, err = procfs.NewProc(pid)
		assert.Error(t, err)
	}
}

func TestALoadEndsWithItsStarter(t *testing.T) {
	loader, _ := startLoad(t, Spin)
	require.NoError(t, loader.inputs[0].Close(), "as the kernel does")
	assert.NoError(t, loader.commands[0].Wait())
}

func TestALoadWithWrongArgumentsFails(t *testing.T) {
	for _, args := range [][]string{{}, {"spinning", "x", "0"}, {"spinning", "1000", "0"}} {
		cmd := exec.Command(os.Args[0], append([]string{LoadCommand}, args...)...)
		input, err := cmd.StdinPipe()
		require.NoError(t, err)
		_ = cmd.Run()
		_ = input.Close()
		assert.Equal(t, 2, cmd.ProcessState.ExitCode(), args)
	}
}
