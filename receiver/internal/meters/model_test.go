// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.uber.org/zap"
	"golang.org/x/tools/txtar"

	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model/catalog"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// The machines are the fixtures of the package machine. docs/virtual-machines.md has the table.
func TestAutoHasAModelOfEachCloudsMachines(t *testing.T) {
	names, err := filepath.Glob("../../../internal/machine/testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, instance := range []string{"", "n2-standard-2"} {
		t.Setenv(machine.InstanceVariable, instance)
		for _, name := range names {
			if instance != "" && !strings.Contains(name, instance) {
				continue
			}
			archive, err := txtar.ParseFile(name)
			require.NoError(t, err)
			root := t.TempDir()
			for _, f := range archive.Files[1:] {
				write(t, filepath.Join(root, f.Name), string(f.Data))
			}
			what, err := machine.Read(root, os.Getenv)
			require.NoError(t, err, name)
			curves, err := modelCurves(&config.ModelConfig{}, what, []power.Kind{power.Package}, nil)
			require.NoError(t, err, name)
			require.Len(t, curves, 1, name)
			c := curves[0]
			t.Logf("| %s | %v | %s | %s | %s | %s |", strings.TrimSuffix(filepath.Base(name), ".txtar"), what, c.Basis,
				watts(c.Curve.Watts(0)), watts(c.Curve.Watts(1)), inPercent(c.ExpectedError))
			assert.Positive(t, c.ExpectedError, name)
			assert.Less(t, c.Curve.Watts(0), c.Curve.Watts(1), name)
		}
	}
}

func TestErrorsAreToldInPercent(t *testing.T) {
	for share, want := range map[float64]string{0.0577: "5.8 %", 0.2: "20 %", 0.0999: "10 %", 1.062: "106 %", 0.031: "3.1 %"} {
		assert.Equal(t, want, inPercent(share))
	}
}

func TestTwoPowersHaveTheCurveOfServersAndItsError(t *testing.T) {
	what := machine.Machine{CPU: cloudCPU, Threads: 96}
	for name, c := range map[string]struct {
		m    config.ModelConfig
		half float64 // power at half load
		want float64
	}{
		"the package":       {config.ModelConfig{IdlePower: 40, MaxPower: 120}, 90, catalog.BetweenError(what, "")},
		"the whole machine": {config.ModelConfig{IdlePower: 40, MaxPower: 120, Zone: power.Platform}, 90, 0},
		"points":            {config.ModelConfig{Points: []config.ModelPoint{{Power: 40}, {Utilization: 1, Power: 120}}}, 80, 0},
	} {
		curves, err := modelCurves(&c.m, what, []power.Kind{c.m.ZoneKind()}, nil)
		require.NoError(t, err, name)
		require.Len(t, curves, 1, name)
		assert.InDelta(t, c.want, curves[0].ExpectedError, 0, name)
		assert.InDelta(t, 40, curves[0].Curve.Watts(0), 1e-9)
		assert.InDelta(t, c.half, curves[0].Curve.Watts(0.5), 5, name)
		assert.InDelta(t, 120, curves[0].Curve.Watts(1), 1e-9)
	}
}

// A guest that modeled its first second would have a modeled zone without energy ever after.
func TestNoEnergyIsModeledUntilTheMeterOfTheHypervisorsReportAnswers(t *testing.T) {
	vsock := config.Default()
	vsock.Meters.Vsock = configoptional.Some(drivers.VsockConfig{})
	powercap := config.Default()
	powercap.Meters.Powercap.Path = "/mnt/energy"
	for name, cfg := range map[string]*config.Config{"vsock": vsock, "powercap": powercap} {
		report, model := &fakeMeter{}, &countedMeter{fakeMeter: fakeMeter{readings: modeled()}}
		set := power.NewSet(power.Member{Name: name, Meter: report},
			power.Member{Name: "model", Meter: &modelMeter{Meter: model}, StandsIn: true})
		New(cfg, zap.NewNop(), set, nil)
		start := time.Unix(1000, 0)
		read := func(after time.Duration) []power.Reading {
			return set.Read(t.Context(), power.Sample{At: start.Add(after)})
		}
		assert.Empty(t, read(0))
		assert.Empty(t, read(reportPatience-1))
		assert.Equal(t, 2, model.reads, "the model counts from the first Read, or from before a restart")
		if name == "vsock" {
			assert.Len(t, read(reportPatience), 1, "the meter does not answer")
			continue
		}
		report.err = fs.ErrNotExist
		assert.Len(t, read(reportPatience-1), 1, "there is no report")
	}
}

// countedMeter counts its reads.
type countedMeter struct {
	fakeMeter
	reads int
}

func (m *countedMeter) Read(ctx context.Context, s power.Sample) ([]power.Reading, error) {
	m.reads++
	return m.fakeMeter.Read(ctx, s)
}
