// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const page = 4096

func TestMemoryIsWeighedByHoldingTimeOrCPUTime(t *testing.T) {
	shares := []*Share{
		{CPU: 10 * ms, Resident: 3 * page, Held: 10 * time.Second},
		{CPU: 20 * ms, Resident: 5 * page, Held: 4 * time.Second},
		{CPU: 0, Resident: 2 * page, Held: 10 * time.Second}, // sleeps
		{CPU: 30 * ms, ShortLived: true, Work: 9},
	}
	for byCPUTime, want := range map[bool][]uint64{
		false: {3 * 10_000, 5 * 4_000, 2 * 10_000, 0},
		// The short-lived claim has the 130 page-ms per 30 ms of the others.
		true: {3 * 10_000, 5 * 20_000, 0, 130_000},
	} {
		measured, err := NewMemory(byCPUTime).Weigh(began, shares)
		require.NoError(t, err)
		assert.True(t, measured)
		var got []uint64
		for _, s := range shares {
			got = append(got, s.Work)
		}
		assert.Equal(t, want, got, byCPUTime)
	}
}
