// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// The kernel had no room for the slices of process 1, and process 10 ended in both domains.
func TestAProcessWithoutRoomForItsSlicesGetsNoOthers(t *testing.T) {
	for slice := range uint32(4) {
		k, b, table := dividedBPF(t, Options{})
		k.listed[0].Run += 90
		k.listed[0].Slice, k.slices = slice, make([]tasks.Slice, 1)
		k.ends = []tasks.Ended{{Pid: 10, Start: 2, Run: 5123, Cgroup: 7, Weights: []uint64{1, 2}}}
		require.NoError(t, scanAll(b, table))
		p := table.Find(1)
		assert.Equal(t, []proc.Slice{{CPU: 0, Used: 90}}, table.Splits.Slices(p.Split, p.Used, p.LastCPU), slice)
	}
}
