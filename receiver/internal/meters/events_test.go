// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
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
}

func TestACounterIsOpenedOnceAndTheErrorIsKept(t *testing.T) {
	e, opened := newEvents(t.TempDir()), []weigh.Event(nil)
	e.open = func(_ string, event weigh.Event) (*weigh.NodeCounter, error) {
		opened = append(opened, event)
		return nil, errors.New("no PMU")
	}
	for range 2 {
		require.ErrorContains(t, e.readable(model.Cycles), "no PMU")
	}
	assert.Equal(t, []weigh.Event{weigh.Cycles}, opened)
	require.NoError(t, e.Close())
}
