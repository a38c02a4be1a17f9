// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

func TestAModelFileOverSoftirqsIsAMeter(t *testing.T) {
	cfg, file := simpleConfig(), filepath.Join(t.TempDir(), "m.json")
	cfg.RootPath, cfg.Model = t.TempDir(), configoptional.Some(config.ModelConfig{File: file})
	write(t, file, `{"package": {"All_Weights": {"Bias_Weight": 20, "Numerical_Variables": {"bpf_block_irq": {"scale": 10, "weight": 5}}}}}`)
	write(t, filepath.Join(cfg.RootPath, "proc/cpuinfo"), "processor\t: 0\n")
	write(t, filepath.Join(cfg.RootPath, "sys/devices/system/cpu/online"), "0\n")
	write(t, filepath.Join(cfg.RootPath, "proc/stat"), "cpu  1\nsoftirq 9 1 2 0 0 100\n")
	meter, err := openModel(cfg)
	require.NoError(t, err)
	require.IsType(t, &modelMeter{}, meter)
	now := time.Now()
	_, err = meter.Read(t.Context(), power.Sample{At: now})
	require.NoError(t, err)
	write(t, filepath.Join(cfg.RootPath, "proc/stat"), "cpu  1\nsoftirq 9 1 2 0 0 1100\n")
	read, err := meter.Read(t.Context(), power.Sample{At: now.Add(100 * time.Second), Busy: 1, Total: 100 * units.Second})
	require.NoError(t, err)
	assert.InDelta(t, 100*25e6, float64(read[0].Total), 1e5, "20 W and 10 softirqs per second")
	require.NoError(t, meter.Close())
}
