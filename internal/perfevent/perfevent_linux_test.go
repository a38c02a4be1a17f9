// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestARecordedTreeIsOfAnotherKernel(t *testing.T) {
	err := CheckKernel(t.TempDir())
	require.ErrorIs(t, err, ErrOtherKernel)
	require.ErrorContains(t, err, "boot_id")
	require.NotErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, CheckKernel("/"))
}

func FuzzParseNumber(f *testing.F) {
	f.Add([]byte("event=0x01\n"))
	f.Add([]byte("9\n"))
	f.Add([]byte("event=0x3c,umask=0x01\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if n, ok := parseNumber(text, "event="); ok {
			again, ok := parseNumber(fmt.Appendf(nil, "event=%d\n", n), "event=")
			assert.True(t, ok)
			assert.Equal(t, n, again)
		}
	})
}
