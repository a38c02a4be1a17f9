// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// The kernel's software clocks count like the events of a PMU.
func TestARealKernelReadsAGroupAtOnce(t *testing.T) {
	held := kernfs.Descriptors()
	c, err := OpenGroup(unix.PERF_TYPE_SOFTWARE, []uint64{unix.PERF_COUNT_SW_CPU_CLOCK, unix.PERF_COUNT_SW_CONTEXT_SWITCHES}, 0)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOENT) {
		t.Skip("the kernel does not allow counting:", err)
	}
	require.NoError(t, err)
	var counts [2]uint64
	first, err := c.Read(counts[:])
	require.NoError(t, err)
	clock := counts[0]
	second, err := c.Read(counts[:])
	require.NoError(t, err)
	assert.Greater(t, second, first, "it counts")
	assert.Greater(t, counts[0], clock)
	_, err = c.Read(counts[:1])
	require.ErrorIs(t, err, ErrShort, "a group of another size")
	require.NoError(t, c.Close())
	assert.Equal(t, held, kernfs.Descriptors())

	_, err = OpenGroup(unix.PERF_TYPE_SOFTWARE, []uint64{unix.PERF_COUNT_SW_CPU_CLOCK, 1 << 30}, 0)
	require.Error(t, err)
	assert.Equal(t, held, kernfs.Descriptors(), "what was open is closed")
}
