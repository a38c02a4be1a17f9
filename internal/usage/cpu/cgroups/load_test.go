// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cgroups

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzParseCreation(f *testing.F) {
	f.Add(slices.Concat(binary.NativeEndian.AppendUint64(nil, 4711), []byte("/system.slice/a.service")))
	f.Add(slices.Concat(binary.NativeEndian.AppendUint64(nil, 1<<63), []byte("/\xff\n\x00")))
	f.Add(slices.Concat(make([]byte, idSize), bytes.Repeat([]byte("x"), 1024)))
	f.Add(make([]byte, idSize))
	f.Add([]byte("cut"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		id, path, ok := parseCreation(b)
		require.Equal(t, len(b) > idSize, ok)
		if ok {
			require.Equal(t, b, slices.Concat(binary.NativeEndian.AppendUint64(nil, id), []byte(path)))
		}
	})
}
