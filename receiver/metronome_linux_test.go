// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var metronomes = map[string]func(time.Duration) (metronome, error){
	"polled":   newKernelTimer,
	"blocking": newBlockingTimer,
	"of Go":    func(window time.Duration) (metronome, error) { return newTicking(window), nil },
}

func TestAMetronomeBeatsUntilItIsStopped(t *testing.T) {
	const window, beats = time.Millisecond, 20
	before := descriptors(t)
	for name, open := range metronomes {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			m, err := open(window)
			require.NoError(t, err)
			var windows int64
			for range beats {
				n := m.next()
				require.Positive(t, n)
				windows += n
			}
			assert.GreaterOrEqual(t, time.Since(began), time.Duration(windows)*window, "no beat comes early")
			m.stop()
			assert.Zero(t, m.next())
		})
	}
	assert.LessOrEqual(t, descriptors(t), before)
}

func TestAMetronomeCountsTheWindowsThatWereSkipped(t *testing.T) {
	const window = 2 * time.Millisecond
	for name, open := range metronomes {
		t.Run(name, func(t *testing.T) {
			m, err := open(window)
			require.NoError(t, err)
			defer m.stop()
			require.Positive(t, m.next())
			began := time.Now()
			for time.Since(began) < 10*window { // the windows' work takes as long
			}
			late := m.next() + m.next()
			assert.GreaterOrEqual(t, late, int64(10))
			assert.LessOrEqual(t, late, int64(time.Since(began)/window)+1)
		})
	}
}

func TestStopWakesAWaiterOfTheMetronome(t *testing.T) {
	for name, open := range metronomes {
		t.Run(name, func(t *testing.T) {
			m, err := open(24 * time.Hour)
			require.NoError(t, err)
			waiting := make(chan int64)
			go func() { waiting <- m.next() }()
			m.stop()
			assert.Zero(t, <-waiting)
		})
	}
}

func TestStopWakesAThreadThatIsBlockedInItsRead(t *testing.T) {
	m, err := newBlockingTimer(24 * time.Hour)
	require.NoError(t, err)
	waiting, id := make(chan int64, 1), make(chan int, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		id <- unix.Gettid()
		waiting <- m.next()
	}()
	path := fmt.Sprintf("/proc/self/task/%d/syscall", <-id)
	blocked := fmt.Sprintf("%d %#x ", unix.SYS_READ, m.(*blockingTimer).fd)
	require.Eventually(t, func() bool {
		call, err := os.ReadFile(path)
		return err == nil && strings.HasPrefix(string(call), blocked)
	}, time.Minute, time.Millisecond)
	m.stop()
	assert.Zero(t, <-waiting)
}

func TestShortWindowsUseAKernelTimer(t *testing.T) {
	for window, want := range map[time.Duration]metronome{10 * time.Millisecond: &kernelTimer{}, time.Second: &ticking{}} {
		m := newMetronome(window)
		assert.IsType(t, want, m, "%v", window)
		m.stop()
	}
}
