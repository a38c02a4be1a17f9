// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

func TestAKernelMeasuresInterruptsIfItHasCountedAny(t *testing.T) {
	host := hostsim.New(t.TempDir())
	require.NoError(t, findInterrupts(host.Root()), "a file that cannot be read is a condition")
	require.NoError(t, host.Render())
	require.ErrorIs(t, findInterrupts(host.Root()), errNoIRQ)
	host.CPU.IRQ++
	require.NoError(t, host.Render())
	require.NoError(t, findInterrupts(host.Root()))
}
