// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// clockSeconds returns the value of a CPU time clock in seconds.
func clockSeconds(t *testing.T, clock int32) float64 {
	t.Helper()
	var ts unix.Timespec
	require.NoError(t, unix.ClockGettime(clock, &ts))
	return time.Duration(ts.Nano()).Seconds()
}

func TestBothCPUTimeSourcesOnThisMachineAttributeAlike(t *testing.T) {
	bpf, err := cpu.OpenBPF(cpu.Options{Root: "/"})
	if err != nil {
		t.Skipf("no BPF here: %v", err)
	}
	defer func() { require.NoError(t, bpf.Close()) }()
	procfs := cpu.NewProcfs("/")
	defer func() { require.NoError(t, procfs.Close()) }()
	own := func() float64 { return clockSeconds(t, unix.CLOCK_PROCESS_CPUTIME_ID) }
	var exact, ticks cpu.Table

	first := own()
	require.NoError(t, procfs.ReadProcesses(&ticks))
	require.NoError(t, bpf.ReadProcesses(&exact))
	before := own()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for start := clockSeconds(t, unix.CLOCK_THREAD_CPUTIME_ID); clockSeconds(t, unix.CLOCK_THREAD_CPUTIME_ID)-start < 0.4; {
	}
	after := own()
	require.NoError(t, bpf.ReadProcesses(&exact))
	require.NoError(t, procfs.ReadProcesses(&ticks))
	last := own()

	for name, table := range map[string]*cpu.Table{"bpf": &exact, "procfs": &ticks} {
		used := 0.0
		for _, p := range table.Processes {
			if p.PID == int32(os.Getpid()) {
				used = p.Used.Seconds()
			}
		}
		const rounding = 0.03 // two roundings to a tick, or the use of running threads since their last tick
		assert.GreaterOrEqual(t, used, after-before-rounding, name)
		assert.LessOrEqual(t, used, last-first+rounding, name)
	}
}
