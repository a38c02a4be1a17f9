// SPDX-License-Identifier: Apache-2.0

package units

import (
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPartsAddUpExactly(t *testing.T) {
	require.NoError(t, quick.Check(func(amount CPUTime, a, b, c uint64) bool {
		var parts [3]CPUTime
		Divide(parts[:], amount, []uint64{a, b, c})
		return parts[0]+parts[1]+parts[2] == amount
	}, &quick.Config{MaxCount: 10_000}))
	var parts [3]CPUTime
	Divide(parts[:], 100, []uint64{0, 3, 1})
	assert.Equal(t, [3]CPUTime{0, 75, 25}, parts)
	Divide(parts[:], 100, []uint64{0, 0, 0})
	assert.Equal(t, [3]CPUTime{100, 0, 0}, parts)
}
