// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func metronomes(t *testing.T, window time.Duration) map[string]metronome {
	t.Helper()
	kernel, err := newKernelTimer(window)
	require.NoError(t, err)
	return map[string]metronome{"of the kernel": kernel, "of Go": &ticking{time.NewTicker(window), make(chan struct{})}}
}

func TestAMetronomeBeatsUntilItIsStopped(t *testing.T) {
	const window, beats = time.Millisecond, 20
	before := descriptors(t)
	for _, name := range []string{"of the kernel", "of Go"} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			all := metronomes(t, window)
			m := all[name]
			delete(all, name)
			for _, other := range all {
				other.stop()
			}
			for range beats {
				require.True(t, m.next())
			}
			assert.GreaterOrEqual(t, time.Since(began), beats*window, "no beat comes early")
			m.stop()
			assert.False(t, m.next())
		})
	}
	assert.LessOrEqual(t, descriptors(t), before)
}

func TestStopWakesAWaiterOfTheMetronome(t *testing.T) {
	for name, m := range metronomes(t, 24*time.Hour) { // no goroutine waits for its beat
		t.Run(name, func(t *testing.T) {
			waiting := make(chan bool)
			go func() { waiting <- m.next() }()
			m.stop()
			assert.False(t, <-waiting)
		})
	}
}

func TestShortWindowsUseAKernelTimer(t *testing.T) {
	for window, want := range map[time.Duration]metronome{10 * time.Millisecond: &kernelTimer{}, time.Second: &ticking{}} {
		m := newMetronome(window)
		assert.IsType(t, want, m, "%v", window)
		m.stop()
	}
}
