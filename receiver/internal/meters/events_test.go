// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

func TestSoftirqsAreCountedPerSecond(t *testing.T) {
	root := t.TempDir()
	stat := filepath.Join(root, "proc/stat")
	e := newEvents(root)
	require.Error(t, e.readable(model.Block), "there is no /proc/stat")
	e = newEvents(root)
	write(t, stat, "cpu  1 2 3\nintr 5 6\nsoftirq 9 1 2 100 200 300 7\n")
	for _, f := range []model.Feature{model.CPUTime, model.NetworkReceive, model.NetworkTransmit, model.Block} {
		require.NoError(t, e.readable(f))
	}
	e.keep([]model.Feature{model.NetworkReceive, model.Block})
	write(t, stat, "cpu  1 2 3\nintr 5 6\nsoftirq 9 1 2 900 260 299 7\n")
	rates, err := e.Rates(e.since.Add(2 * time.Second))
	require.NoError(t, err)
	assert.Equal(t, model.Rates{model.NetworkReceive: 30}, rates, "transmissions are not used, and a counter that steps back adds nothing")
	_, err = e.Rates(e.since)
	require.ErrorIs(t, err, model.ErrRestarted, "no time has passed")
	write(t, stat, "cpu  1 2 3\n")
	_, err = e.Rates(e.since.Add(time.Second))
	require.ErrorContains(t, err, "does not count softirqs")
	write(t, stat, "cpu  1\nsoftirq 9 1 2 900 660 299 7\n")
	now := e.since.Add(time.Second)
	_, err = e.Rates(now)
	require.ErrorIs(t, err, model.ErrRestarted, "some are of the time before")
	write(t, stat, "cpu  1\nsoftirq 9 1 2 900 665 299 7\n")
	rates, err = e.Rates(now.Add(time.Second))
	require.NoError(t, err)
	assert.Equal(t, model.Rates{model.NetworkReceive: 5}, rates)
}

func TestACounterIsOpenedOnceAndTheErrorIsKept(t *testing.T) {
	e, opened := newEvents(t.TempDir()), []proc.Event(nil)
	e.open = func(_ string, event proc.Event) (*weigh.NodeCounter, error) {
		opened = append(opened, event)
		return nil, errors.New("no PMU")
	}
	for range 2 {
		require.ErrorContains(t, e.readable(model.Cycles), "no PMU")
	}
	assert.Equal(t, []proc.Event{proc.Cycles}, opened)
	require.NoError(t, e.Close())
}

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
