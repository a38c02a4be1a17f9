// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var metronomes = map[string]func(time.Duration) (Metronome, error){
	"polled": newKernelTimer,
	"of Go":  func(window time.Duration) (Metronome, error) { return NewTicking(window), nil },
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
				n := m.Next()
				require.Positive(t, n)
				windows += n
			}
			assert.GreaterOrEqual(t, time.Since(began), time.Duration(windows)*window, "no beat comes early")
			m.Stop()
			assert.Zero(t, m.Next())
		})
	}
	assert.LessOrEqual(t, descriptors(t), before)
}

func TestAMetronomeCountsTheWindowsThatWereSkipped(t *testing.T) {
	const window = 2 * time.Millisecond
	for name, open := range metronomes {
		t.Run(name, func(t *testing.T) {
			opened := time.Now()
			m, err := open(window)
			require.NoError(t, err)
			defer m.Stop()
			first := m.Next()
			require.Positive(t, first)
			began := time.Now()
			for time.Since(began) < 10*window { // the windows' work takes as long
			}
			late := m.Next() + m.Next()
			assert.GreaterOrEqual(t, late, int64(10))
			assert.LessOrEqual(t, first+late, int64(time.Since(opened)/window))
		})
	}
}

func TestStopWakesAWaiterOfTheMetronome(t *testing.T) {
	for name, open := range metronomes {
		t.Run(name, func(t *testing.T) {
			m, err := open(24 * time.Hour)
			require.NoError(t, err)
			waiting := make(chan int64)
			go func() { waiting <- m.Next() }()
			m.Stop()
			assert.Zero(t, <-waiting)
		})
	}
}

func TestWindowsEndByAKernelTimer(t *testing.T) {
	m := NewMetronome(time.Second)
	defer m.Stop()
	assert.IsType(t, &kernelTimer{}, m)
}

// descriptors returns the number of open file descriptors.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}
