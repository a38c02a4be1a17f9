// SPDX-License-Identifier: Apache-2.0

package kernfs

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestResultIsUnchangedUnlessFaultsAreInjected(t *testing.T) {
	failed := errors.New("failed")
	got, err := Result("/a", []byte("x"), nil)
	require.NoError(t, err)
	assert.Equal(t, "x", string(got))
	assert.False(t, FaultsInjected())

	restore := InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if path == "/a" {
			return nil, failed
		}
		return got, err
	})
	assert.True(t, FaultsInjected())
	_, err = Result("/a", []byte("x"), nil)
	require.ErrorIs(t, err, failed)
	got, err = Result("/b", []byte("y"), nil)
	require.NoError(t, err)
	assert.Equal(t, "y", string(got))
	assert.Panics(t, func() { InjectFaults(nil) }, "one at a time")

	restore()
	_, err = Result("/a", nil, nil)
	require.NoError(t, err)
	assert.False(t, FaultsInjected())
}
