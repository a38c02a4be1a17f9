// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// writeInitramfs writes an archive that the kernel unpacks as its initial file system. files are
// programs and modules by path. The format is cpio's newc
// (Documentation/driver-api/early-userspace/buffer-format.rst).
func writeInitramfs(t *testing.T, to string, files map[string]string) {
	t.Helper()
	out, err := os.Create(to)
	require.NoError(t, err)
	inode := 0
	entry := func(name string, mode int, content []byte) {
		inode++
		header := "070701"
		for _, field := range []int{inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0} {
			header += fmt.Sprintf("%08X", field)
		}
		_, err := io.WriteString(out, header+name+"\x00"+padding(len(header)+len(name)+1))
		require.NoError(t, err)
		_, err = out.Write(content)
		require.NoError(t, err)
		_, err = io.WriteString(out, padding(len(content)))
		require.NoError(t, err)
	}
	const directory, program = 0o040755, 0o100755
	for _, dir := range []string{"dev", "proc", "sys", "tmp"} {
		entry(dir, directory, nil)
	}
	for name, from := range files {
		content, err := os.ReadFile(from)
		require.NoError(t, err)
		entry(name, program, content)
	}
	entry("TRAILER!!!", 0, nil)
	require.NoError(t, out.Close())
}

// padding pads to a multiple of four bytes.
func padding(n int) string { return string(bytes.Repeat([]byte{0}, (4-n%4)%4)) }
