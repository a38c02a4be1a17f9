// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/receiver/internal/metadatatest"
)

// beats is a metronome that tells these numbers of windows, and stops.
type beats []int64

func (b *beats) next() int64 {
	if len(*b) == 0 {
		return 0
	}
	windows := (*b)[0]
	*b = (*b)[1:]
	return windows
}

func (b *beats) stop() {}

func TestSkippedWindowsAreCounted(t *testing.T) {
	s, samples := &sampler{window: time.Second, logger: zap.NewNop()}, 0
	s.run(&beats{1, 3, 1, 2}, func() { samples++ })
	windows, skipped := s.counts()
	assert.EqualValues(t, 7, windows)
	assert.EqualValues(t, 3, skipped)
	assert.Equal(t, 4, samples)
}

func TestASamplerWhoseWindowsAreSkippedRaisesItsPriorityAndGoesOn(t *testing.T) {
	s := &sampler{logger: zap.NewNop()}
	raised := make(chan struct{})
	seen := 0
	s.start(minWindow, func() {
		if s.raised() {
			if seen++; seen == 3 {
				close(raised)
			}
			return
		}
		for began := time.Now(); time.Since(began) < 3*minWindow; {
		}
	})
	<-raised
	s.stop()
	assert.NotEmpty(t, s.priority)
	s.stop() // a second one does nothing
}

func TestASamplerThatIsStoppedMeanwhileTakesNoOtherMetronome(t *testing.T) {
	s := &sampler{}
	assert.Nil(t, s.replace(&beats{}))
}

func TestWindowsThatCannotBeKeptAreLonger(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Window, c.CollectionInterval = 2*time.Second, 10*time.Second })
	n.start()
	require.Equal(t, 2*time.Second, n.s.sampler.window)
	for _, c := range []struct {
		step int
		want time.Duration
	}{{1, 2 * time.Second}, {2, 4 * time.Second}, {3, 8 * time.Second}, {4, 0}, {11, 0}, {0, 2 * time.Second}} {
		n.s.sampler.stop()
		n.s.sampler.pace = pace{step: c.step, wait: time.Hour, longer: c.step > 1}
		n.s.adjustWindow()
		assert.Equal(t, c.want, n.s.sampler.window, c)
	}
	last := n.logs.FilterMessage("Attribution window changed").All()
	assert.Equal(t, "shorter windows cannot be kept", last[2].ContextMap()["reason"])
}

func TestLongerWindowsAreNeverSoLongThatACounterWrapsUnnoticed(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Window, c.CollectionInterval = 40*time.Second, time.Hour })
	n.host.Zones["intel-rapl:0"].Max = 150_000 * joule // 100 s at the 1.5 kW that a socket can draw
	n.start()
	n.s.sampler.mu.Lock()
	n.s.sampler.pace = pace{step: 3, wait: time.Hour}
	n.s.sampler.mu.Unlock()
	n.s.adjustWindow()
	assert.Equal(t, 50*time.Second, n.s.sampler.window)
}

func TestACollectionWithoutWindowsIsCalmTime(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.Window, c.CollectionInterval = 5*time.Second, 10*time.Second })
	n.start()
	n.s.sampler.mu.Lock()
	n.s.sampler.pace = pace{step: 2, wait: minCalm}
	n.s.sampler.mu.Unlock()
	n.s.adjustWindow()
	require.Zero(t, n.s.sampler.window)
	for range 5 {
		n.run(0, nil)
	}
	assert.Zero(t, n.s.sampler.window)
	n.run(0, nil)
	assert.Equal(t, 5*time.Second, n.s.sampler.window)
}

func TestSkippedWindowsAreAConditionUntilTheyAreKept(t *testing.T) {
	n := newTestNode(t)
	n.start()
	n.run(0, nil)
	n.s.sampler.pace.skips = true
	for range 3 {
		n.run(0, nil)
	}
	degraded := n.logs.FilterMessage("Collection degraded").All()
	require.Len(t, degraded, 1, "once")
	assert.Equal(t, "windows", degraded[0].ContextMap()["condition"])
	assert.Equal(t, errSkips.Error(), degraded[0].ContextMap()["error"])
	n.s.sampler.pace.skips = false
	n.run(0, nil)
	assert.Equal(t, 1, n.logs.FilterMessage("Collection recovered").Len())
}

func TestTheReceiverReportsItsWindows(t *testing.T) {
	n, tel := observedNode(t)
	n.start()
	n.s.sampler.run(&beats{1, 3, 1}, n.s.sample)
	metadatatest.AssertEqualReceiverEnergyWindows(t, tel, counts(observed[int64](5)), whenever)
	metadatatest.AssertEqualReceiverEnergySkippedWindows(t, tel, counts(observed[int64](2)), whenever)
}
