// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestAllOwnersOfAProcessShareItsDescriptors(t *testing.T) {
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 100 * keptShare, Max: limit.Max}))
	owners := make([]Allowance, 17)
	for i := range owners {
		owners[i] = NewAllowance(30)
	}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))

	takeAll := func() (held []int, sum int) {
		for i := range owners {
			for owners[i].Take() {
			}
			held = append(held, owners[i].Held)
			sum += owners[i].Held
		}
		return held, sum
	}
	held, sum := takeAll()
	assert.Equal(t, 100, sum)
	assert.Equal(t, []int{30, 30, 30, 10, 0}, held[:5])

	owners[0].Most = 0 // it is closed
	owners[0].GiveBack(30)
	held, sum = takeAll()
	assert.Equal(t, 100, sum)
	assert.Equal(t, []int{0, 30, 30, 30, 10, 0}, held[:6])

	for i := range owners {
		owners[i].GiveBack(owners[i].Held)
	}
	assert.Zero(t, heldByAll.Load())
}

func TestTheZeroAllowanceAllowsNothing(t *testing.T) {
	var zero Allowance
	assert.False(t, zero.Take())
}
