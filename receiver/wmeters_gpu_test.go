// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// A meter of meters::http/NAME may read the GPU, and has not answered yet.
func TestAGPUThatHTTPMayReadIsNotLoggedAtOnce(t *testing.T) {
	n := newTestNode(t)
	n.addNVIDIA()
	n.start()
	n.s.meters.gpus.notes = gpuNotes{cfg: &Config{RootPath: n.host.Root(), Meters: config.MetersConfig{HTTP: map[component.ID]config.HTTPConfig{{}: {}}}}, logger: n.s.set.Logger}
	logged := n.logs.FilterMessageSnippet("NVIDIA GPUs not read").Len()
	check := func(after time.Duration) int {
		require.NoError(t, n.s.meters.gpus.notes.check(time.Unix(1, 0).Add(after), nil, nil, n.s.meters.Set))
		return n.logs.FilterMessageSnippet("NVIDIA GPUs not read").Len() - logged
	}
	assert.Zero(t, check(0))
	assert.Zero(t, check(59*time.Second))
	assert.Equal(t, 1, check(time.Minute))
}

func TestAMachineWithoutAGPUIsLookedAtRarely(t *testing.T) {
	n := newTestNode(t)
	n.start()
	n.run(0, nil)
	g, readings := n.s.meters.gpus.notes, n.s.meters.Readings
	g.looked, g.began = n.host.Now(), n.host.Now().Add(-time.Hour)
	at := n.host.Now()
	assert.Zero(t, testing.AllocsPerRun(50, func() {
		at = at.Add(time.Second)
		if g.check(at, readings, nil, n.s.meters.Set) != nil {
			t.Error("there is no GPU")
		}
	}))
}

func TestLibrariesArePolledTwiceInACollection(t *testing.T) {
	for interval, want := range map[time.Duration]time.Duration{
		10 * time.Second: time.Second, time.Second: 500 * time.Millisecond, 100 * time.Millisecond: 100 * time.Millisecond,
	} {
		c := simpleConfig()
		c.CollectionInterval = interval
		assert.Equal(t, want, c.GPUInterval(), interval)
	}
}
