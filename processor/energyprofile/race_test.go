// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
)

func TestNoEnergyIsLostWhileWindowsBatchesAndShutdownRace(t *testing.T) {
	sink := new(consumertest.ProfilesSink)
	p, f := start(t, createDefaultConfig().(*Config), sink)
	const windows, senders = 200, 4
	var all sync.WaitGroup
	all.Go(func() {
		for i := range windows {
			publish(f, windowOf(10*i, 10*i+10, 1000))
		}
	})
	for range senders {
		all.Go(func() {
			for i := range windows {
				b := newSamples()
				b.add(1, ns(10*i+5))
				assert.NoError(t, p.ConsumeProfiles(context.Background(), b.Profiles))
			}
		})
	}
	all.Wait()
	var end sync.WaitGroup
	for range senders {
		end.Go(func() {
			b := newSamples()
			b.add(1, ns(10*windows))
			assert.NoError(t, p.ConsumeProfiles(context.Background(), b.Profiles))
		})
	}
	end.Go(func() { assert.NoError(t, p.Shutdown(context.Background())) })
	end.Wait()
	require.EqualValues(t, windows*1000, sumsOf(t, sink).all)
}
