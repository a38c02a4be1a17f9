// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/receiver/internal/metadatatest"
	"github.com/energyreceiver/energyreceiver/receiver/internal/windows"
)

func TestSkippedWindowsAreAConditionUntilTheyAreKept(t *testing.T) {
	n := newTestNode(t)
	n.start()
	n.run(0, nil)
	n.s.windows.Sampler.Pace.Late = true
	for range 3 {
		n.run(0, nil)
	}
	degraded := n.logs.FilterMessage("Collection degraded").All()
	require.Len(t, degraded, 1, "once")
	assert.Equal(t, "windows", degraded[0].ContextMap()["condition"])
	assert.Equal(t, windows.ErrMissed.Error(), degraded[0].ContextMap()["error"])
	n.s.windows.Sampler.Pace.Late = false
	n.run(0, nil)
	assert.Equal(t, 1, n.logs.FilterMessage("Collection recovered").Len())
}

func TestTheReceiverReportsItsWindows(t *testing.T) {
	n, tel := observedNode(t)
	n.start()
	n.s.windows.Sampler.Run(&beats{1, 3, 1}, n.s.sample)
	metadatatest.AssertEqualReceiverEnergyWindows(t, tel, counts(observed[int64](5)), whenever)
	metadatatest.AssertEqualReceiverEnergySkippedWindows(t, tel, counts(observed[int64](2)), whenever)
}

// beats is a metronome that beats once for each element, with that number of windows, and stops.
type beats []int64

func (b *beats) Next() int64 {
	if len(*b) == 0 {
		return 0
	}
	windows := (*b)[0]
	*b = (*b)[1:]
	return windows
}

func (b *beats) Stop() {}
