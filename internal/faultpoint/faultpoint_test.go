// SPDX-License-Identifier: Apache-2.0

package faultpoint

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadsAreWhatTheyAreUnlessAReaderIsInstalled(t *testing.T) {
	failed := errors.New("failed")
	got, err := Read("/a", []byte("x"), nil)
	require.NoError(t, err)
	assert.Equal(t, "x", string(got))
	assert.False(t, Active())

	restore := Install(func(path string, got []byte, err error) ([]byte, error) {
		if path == "/a" {
			return nil, failed
		}
		return got, err
	})
	assert.True(t, Active())
	_, err = Read("/a", []byte("x"), nil)
	require.ErrorIs(t, err, failed)
	got, err = Read("/b", []byte("y"), nil)
	require.NoError(t, err)
	assert.Equal(t, "y", string(got))
	assert.Panics(t, func() { Install(nil) }, "one at a time")

	restore()
	_, err = Read("/a", nil, nil)
	require.NoError(t, err)
	assert.False(t, Active())
}

func TestReadsCostNoAllocation(t *testing.T) {
	b := []byte("x")
	assert.Zero(t, testing.AllocsPerRun(100, func() { _, _ = Read("/a", b, nil) }))
}
