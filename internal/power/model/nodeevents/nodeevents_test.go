// SPDX-License-Identifier: Apache-2.0

package nodeevents

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
)

func TestSoftirqsAreCountedPerSecond(t *testing.T) {
	root := t.TempDir()
	stat := filepath.Join(root, "proc/stat")
	write := func(text string) { require.NoError(t, os.WriteFile(stat, []byte(text), 0o600)) }
	require.NoError(t, os.Mkdir(filepath.Dir(stat), 0o700))
	e := New(root)
	require.Error(t, e.Readable(model.Block), "there is no /proc/stat")
	e = New(root)
	write("cpu  1 2 3\nintr 5 6\nsoftirq 9 1 2 100 200 300 7\n")
	for _, f := range []model.Feature{model.CPUTime, model.NetworkReceive, model.NetworkTransmit, model.Block} {
		require.NoError(t, e.Readable(f))
	}
	e.Keep([]model.Feature{model.NetworkReceive, model.Block})
	write("cpu  1 2 3\nintr 5 6\nsoftirq 9 1 2 900 260 299 7\n")
	rates, err := e.Rates(e.since.Add(2 * time.Second))
	require.NoError(t, err)
	assert.Equal(t, model.Rates{model.NetworkReceive: 30}, rates, "transmissions are not used, and a counter that steps back adds nothing")
	_, err = e.Rates(e.since)
	require.ErrorIs(t, err, model.ErrRestarted, "no time has passed")
	write("cpu  1 2 3\n")
	_, err = e.Rates(e.since.Add(time.Second))
	require.ErrorContains(t, err, "does not count softirqs")
	write("cpu  1\nsoftirq 9 1 2 900 660 299 7\n")
	now := e.since.Add(time.Second)
	_, err = e.Rates(now)
	require.ErrorIs(t, err, model.ErrRestarted, "some events belong to the previous interval")
	write("cpu  1\nsoftirq 9 1 2 900 665 299 7\n")
	rates, err = e.Rates(now.Add(time.Second))
	require.NoError(t, err)
	assert.Equal(t, model.Rates{model.NetworkReceive: 5}, rates)
}

func TestACounterIsOpenedOnceAndTheErrorIsKept(t *testing.T) {
	e, opened := New(t.TempDir()), []proc.Event(nil)
	e.open = func(_ string, event proc.Event) (*weigh.NodeCounter, error) {
		opened = append(opened, event)
		return nil, errors.New("no PMU")
	}
	for range 2 {
		require.ErrorContains(t, e.Readable(model.Cycles), "no PMU")
	}
	assert.Equal(t, []proc.Event{proc.Cycles}, opened)
	require.NoError(t, e.Close())
}
