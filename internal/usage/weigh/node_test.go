// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// kernel simulates the counters of a kernel.
type kernel struct {
	counted, opened uint64 // events so far, and when the counters were opened
	others          bool   // other CPUs are online than before
	refused, stuck  error  // errors of open and of read
}

func (k *kernel) open() error {
	k.opened = k.counted
	return k.refused
}

func (k *kernel) read() (uint64, error) { return k.counted - k.opened, k.stuck }

func (k *kernel) cpusChanged() (changed bool) {
	changed, k.others = k.others, false
	return changed
}

func (*kernel) close() error { return nil }

func TestANodeCounterCountsSinceTheLastRead(t *testing.T) {
	k, now := &kernel{}, began
	c := &NodeCounter{kernel: k}
	read := func(total, want uint64, reason error) {
		t.Helper()
		k.counted = total
		now = now.Add(retryAfter)
		n, err := c.Read(now)
		require.ErrorIs(t, err, reason)
		assert.Equal(t, want, n)
	}
	read(50, 50, nil)
	k.others = true // another CPU is online
	read(60, 0, ErrRestarted)
	read(70, 10, nil)
	k.stuck = errStopped // a CPU is offline
	read(80, 0, ErrRestarted)
	k.stuck = nil
	read(90, 10, nil)

	k.stuck, k.refused = errors.New("EIO"), errors.New("EMFILE")
	read(100, 0, k.stuck)
	read(110, 0, ErrRestarted) // it cannot be opened again
	k.stuck, k.refused = nil, nil
	read(120, 0, ErrRestarted)
	read(130, 10, nil)
	require.NoError(t, c.Close())
}
