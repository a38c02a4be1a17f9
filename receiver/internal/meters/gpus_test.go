// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// toldUsage is a source that reports some GPUs, and counts its reads.
type toldUsage struct {
	usage []gpu.Usage
	err   error
	asked int
}

func (u *toldUsage) Read(time.Time, *proc.Table) ([]gpu.Usage, error) {
	u.asked++
	return u.usage, u.err
}

func (u *toldUsage) Close() error { return nil }

// Without the rule, a receiver without privileges would be degraded on each machine with a graphics
// chip in its CPU, and look at descriptors of which nothing comes.
func TestDRMIsAskedOfGPUsWithAMeterOnly(t *testing.T) {
	told, chip := units.GPU("0000:65:00.0"), units.GPU("0000:03:00.0")
	library := &toldUsage{usage: []gpu.Usage{{Domain: told}}}
	drm := &toldUsage{err: errors.New("denied")}
	g := gpus{sources: []gpu.Source{library}, drm: drm}
	read := func(domains ...units.Domain) error {
		readings := []power.Reading{{Zone: &power.Zone{Kind: power.Package}}}
		for _, domain := range domains {
			readings = append(readings, power.Reading{Zone: &power.Zone{Kind: power.GPU, Domain: domain}})
		}
		used, err := g.read(time.Time{}, nil, readings)
		assert.Len(t, used, 1)
		return err
	}
	require.NoError(t, read(), "no GPU has a meter")
	require.NoError(t, read(told), "the library tells of the only one")
	assert.Zero(t, drm.asked)
	require.Error(t, read(told, chip))
	require.Error(t, read(told), "it goes on while a card is gone")
	assert.Equal(t, 2, drm.asked)
	assert.Equal(t, 4, library.asked)
}

// A meter of meters::http/NAME may read the GPU, and has not answered yet.
func TestAGPUThatHTTPMayReadIsNotLoggedAtOnce(t *testing.T) {
	const gpu = "0000:65:00.0"
	root := t.TempDir()
	write(t, filepath.Join(root, "sys/bus/pci/devices", gpu, "class"), "0x030200\n")
	write(t, filepath.Join(root, "sys/bus/pci/devices", gpu, "vendor"), "0x10de\n")
	write(t, filepath.Join(root, "sys/bus/pci/drivers/nvidia/bind"), "")
	require.NoError(t, os.Symlink("../../../../bus/pci/devices/"+gpu, filepath.Join(root, "sys/bus/pci/drivers/nvidia", gpu)))
	cfg := &config.Config{RootPath: root, Meters: drivers.Config{HTTP: map[component.ID]drivers.HTTPConfig{{}: {}}}}
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
