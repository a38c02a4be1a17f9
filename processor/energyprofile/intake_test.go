// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"

	"github.com/energyreceiver/energyreceiver/feed"
)

// The receiver waits for take at the end of each window, so a division must not delay it.
func TestAWindowIsTakenWhileEnergyIsDivided(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	publish(f, windowOf(0, 1000, 1))
	p.intake.lock() // as in divide
	w := windowOf(1000, 2000, 10)
	w.Packages, w.Processes[0].Packages = []int32{0}, []feed.Part{{CPU: time.Second, Energy: []uint64{10}}}
	publish(f, w)
	w.Processes[0].Energy[0], w.Active[0], w.Processes[0].Packages[0].Energy[0] = 1e6, 1e6, 1e6 // the receiver uses it again
	publish(f, windowOf(2000, 3000, 100))
	p.intake.unlock()
	publish(f, windowOf(3000, 4000, 1000))
	var ends []time.Time
	for _, w := range p.intake.windows.pending {
		ends = append(ends, w.end)
	}
	assert.Equal(t, []time.Time{at(1000), at(2000), at(3000), at(4000)}, ends)
	require.NoError(t, p.Shutdown(context.Background()))
	assert.EqualValues(t, 1111, sumsOf(t, sink).all)
}

func TestABatchHasTheWindowsThatEndedDuringADivision(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, &Config{}, sink)
	publish(f, windowOf(0, 1000, 1))
	p.intake.lock()
	publish(f, windowOf(1000, 2000, 10))
	p.intake.unlock()
	b := newSamples()
	b.add(1, ns(1500))
	require.NoError(t, p.ConsumeProfiles(context.Background(), b.Profiles))
	assert.EqualValues(t, 2, p.held[0].mark)
	require.NoError(t, p.Shutdown(context.Background()))
}
