// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestANodeCounterCountsSinceTheLastRead(t *testing.T) {
	k := &kernel{counted: map[string]uint64{"": 100}, refused: map[string]error{}}
	c := &NodeCounter{kernel: k}
	require.NoError(t, c.open())
	read := func(total, want uint64) {
		t.Helper()
		k.counted[""] = total
		n, err := c.Read()
		require.NoError(t, err)
		assert.Equal(t, want, n)
	}
	read(150, 50)
	k.others = true
	_, err := c.Read()
	require.ErrorIs(t, err, ErrRestarted, "another CPU is online")
	read(170, 20)

	k.refused[""] = errors.New("EIO")
	_, err = c.Read()
	require.ErrorIs(t, err, k.refused[""])
	_, err = c.Read()
	require.ErrorIs(t, err, k.refused[""], "it is opened again")
	delete(k.refused, "")
	_, err = c.Read()
	require.ErrorIs(t, err, ErrRestarted)
	read(180, 10)
	require.NoError(t, c.Close())
}
