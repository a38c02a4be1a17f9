// SPDX-License-Identifier: Apache-2.0

package oneline

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestErrorsAreInOneLine(t *testing.T) {
	require.NoError(t, Join())
	require.NoError(t, Join(nil, nil))
	assert.Equal(t, io.EOF, Join(nil, io.EOF))
	all := Join(io.EOF, nil, io.ErrNoProgress, io.ErrShortWrite)
	require.EqualError(t, all, "EOF; multiple Read calls return no data or error; short write")
	require.ErrorIs(t, all, io.ErrNoProgress)
	assert.Equal(t, "EOF; short write", Text(errors.Join(io.EOF, io.ErrShortWrite)))
}
