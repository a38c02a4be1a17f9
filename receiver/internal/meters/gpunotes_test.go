// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// A meter of meters::http/NAME may read the GPU, and has not answered yet.
func TestAGPUThatHTTPMayReadIsNotLoggedAtOnce(t *testing.T) {
	const gpu = "0000:65:00.0"
	root := t.TempDir()
	write(t, filepath.Join(root, "sys/bus/pci/devices", gpu, "class"), "0x030200\n")
	write(t, filepath.Join(root, "sys/bus/pci/devices", gpu, "vendor"), "0x10de\n")
	write(t, filepath.Join(root, "sys/bus/pci/drivers/nvidia/bind"), "")
	require.NoError(t, os.Symlink("../../../../bus/pci/devices/"+gpu, filepath.Join(root, "sys/bus/pci/drivers/nvidia", gpu)))
	cfg := &config.Config{RootPath: root, Meters: config.MetersConfig{HTTP: map[component.ID]config.HTTPConfig{{}: {}}}}
	core, logs := observer.New(zap.InfoLevel)
	g := gpuNotes{cfg: cfg, logger: zap.New(core)}
	check := func(after time.Duration) int {
		require.NoError(t, g.check(time.Unix(1, 0).Add(after), nil, nil, power.NewSet()))
		return logs.FilterMessageSnippet("NVIDIA GPUs not read").Len()
	}
	assert.Zero(t, check(0))
	assert.Zero(t, check(59*time.Second))
	assert.Equal(t, 1, check(time.Minute))
}

func TestAMachineWithoutAGPUIsLookedAtRarely(t *testing.T) {
	at := time.Unix(1, 0)
	g := gpuNotes{cfg: &config.Config{RootPath: t.TempDir()}, logger: zap.NewNop(), looked: at, began: at.Add(-time.Hour)}
	readings, meters := []power.Reading{{Zone: &power.Zone{Kind: power.Package}}}, power.NewSet()
	assert.Zero(t, testing.AllocsPerRun(50, func() {
		at = at.Add(time.Second)
		if g.check(at, readings, nil, meters) != nil {
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
