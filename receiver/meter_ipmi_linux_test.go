// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

func TestAMachineWithoutABMCHasNothingWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNode(t)
		n.start()
		synctest.Wait() // for the first poll
		n.run(10*joule, map[int]int64{1: 1000})
		assert.Empty(t, n.logged())
	})
}

func TestABMCThatCannotBeReadIsReportedWhereItIsSelected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNode(t, withMeter(config.MeterIPMI))
		path := filepath.Join(n.host.Root(), "dev/ipmi0")
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, nil, 0o600)) // no device
		n.start()
		synctest.Wait()
		n.run(10*joule, map[int]int64{1: 1000})
		assert.Equal(t, []string{"Degraded energy sensor"}, n.logged())
		assert.ErrorContains(t, n.status[0].Err(), "BMC ipmi0: send a request: inappropriate ioctl for device")
	})
}
