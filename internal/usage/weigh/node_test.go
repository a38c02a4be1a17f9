// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
)

func TestANodeCounterCountsSinceTheLastRead(t *testing.T) {
	k, now := newKernel(cgroup.New(cgroup.Options{}), ""), began
	k.counted[""] = 100
	c := &NodeCounter{newCounters(k, k.cgroups, Cycles)}
	read := func(total, want uint64, reason error) {
		t.Helper()
		k.counted[""] = total
		now = now.Add(retryAfter)
		n, err := c.Read(now)
		require.ErrorIs(t, err, reason)
		assert.Equal(t, want, n)
	}
	read(150, 50, nil)
	k.others = true // another CPU is online
	read(160, 0, ErrRestarted)
	read(170, 10, nil)

	k.refused[""] = errors.New("EIO")
	read(180, 0, k.refused[""])
	read(190, 0, k.refused[""]) // it cannot be opened again
	delete(k.refused, "")
	read(200, 0, ErrRestarted)
	read(210, 10, nil)
	require.NoError(t, c.Close())
}
