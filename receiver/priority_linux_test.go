// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// realTimeThread gives the calling goroutine's thread real-time priority, or skips the test.
func realTimeThread(t *testing.T) *thread {
	t.Helper()
	own := new(thread)
	err := own.raise()
	if own.priority != realTimePriority {
		own.release()
		t.Skip("real-time priority is not granted: ", err)
	}
	return own
}

func scheduling(t *testing.T) unix.SchedAttr {
	t.Helper()
	attr, err := unix.SchedGetAttr(0, 0)
	require.NoError(t, err)
	return *attr
}

func TestAThreadHasTheLowestRealTimePriorityUntilItIsReleased(t *testing.T) {
	before := scheduling(t)
	own := realTimeThread(t)
	now := scheduling(t)
	assert.EqualValues(t, unix.SCHED_FIFO, now.Policy)
	assert.EqualValues(t, 1, now.Priority)
	assert.EqualValues(t, unix.SCHED_FLAG_RESET_ON_FORK, now.Flags&unix.SCHED_FLAG_RESET_ON_FORK)
	own.release()
	now = scheduling(t)
	assert.Equal(t, before.Policy, now.Policy)
	assert.Equal(t, before.Nice, now.Nice)
	assert.False(t, own.raised())
}

func TestWhatARealTimeThreadStartsHasNormalPriority(t *testing.T) {
	own := realTimeThread(t)
	defer own.release()
	stat, err := exec.Command("cat", "/proc/self/stat").Output()
	require.NoError(t, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	assert.Equal(t, strconv.Itoa(unix.SCHED_NORMAL), fields[41-3], "policy, proc_pid_stat(5)")
}

func TestOnlyARealTimeThreadCountsItsCPUTime(t *testing.T) {
	own := realTimeThread(t)
	defer own.release()
	for began := time.Now(); time.Since(began) < 5*time.Millisecond; {
	}
	used := own.used()
	assert.Positive(t, used)
	assert.Less(t, used, time.Second)
	assert.Less(t, own.used(), used)
	assert.Zero(t, (&thread{priority: highPriority}).used())
}

func TestACollectionHasThePriorityOfWindowsUpToATenthOfACPU(t *testing.T) {
	probe := realTimeThread(t)
	probe.release()
	s := &sampler{metronome: &beats{}, pace: pace{raised: true}, priority: realTimePriority}
	policy := func(interval time.Duration) uint32 {
		own := s.borrow(interval)
		defer s.giveBack(&own)
		for began := threadTime(); threadTime()-began < time.Millisecond; {
		}
		return scheduling(t).Policy
	}
	assert.EqualValues(t, unix.SCHED_FIFO, policy(time.Second))
	assert.EqualValues(t, unix.SCHED_NORMAL, scheduling(t).Policy, "given back")
	assert.Positive(t, s.debt)
	assert.EqualValues(t, unix.SCHED_NORMAL, policy(time.Millisecond), "a millisecond was used of a tenth of one")
	assert.EqualValues(t, unix.SCHED_FIFO, policy(time.Minute))
	s.pace.raised = false
	assert.EqualValues(t, unix.SCHED_NORMAL, policy(time.Minute), "windows are not raised")
	s.pace.raised, s.metronome = true, nil
	assert.EqualValues(t, unix.SCHED_NORMAL, policy(time.Minute), "there are no windows")
}

// spin runs processes that use all CPUs, until the test ends, and 20 s at most.
func spin(t *testing.T, processes int) {
	t.Helper()
	// They wait until all have been started and their standard input ends.
	const script = `exec 3<&0; for i in $(seq $0); do (read x; while :; do :; done) <&3 & done; echo started; wait`
	cmd := exec.Command("timeout", "-s", "KILL", "20", "sh", "-c", script, strconv.Itoa(processes))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	start, err := cmd.StdinPipe()
	require.NoError(t, err)
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // they may have ended
		_ = cmd.Wait()                                      // reports the kill
	})
	_, err = bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, start.Close())
}

func TestWindowsWithRealTimePriorityAreKeptUnderFullLoad(t *testing.T) {
	if testing.Short() || os.Getuid() != 0 {
		t.Skip("uses all CPUs for some seconds, and needs real-time priority")
	}
	own := realTimeThread(t)
	own.release()
	const window, beats = 20 * time.Millisecond, 150
	s := &sampler{logger: zap.NewNop(), pace: pace{raised: true, wait: time.Hour}}
	done, seen := make(chan struct{}), 0
	spin(t, 100)
	s.start(window, func() {
		if seen++; seen == beats {
			close(done)
		}
	})
	<-done
	s.stop()
	require.Equal(t, realTimePriority, s.priority)
	windows, skipped := s.counts()
	assert.Less(t, float64(skipped), 0.2*float64(windows), "%d of %d windows", skipped, windows)
}
