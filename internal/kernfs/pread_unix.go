// SPDX-License-Identifier: Apache-2.0

//go:build unix

package kernfs

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// pread reads the beginning of f into b with one system call. os.File.ReadAt would make a second one to
// see the end of the file, and each call to a sysfs attribute reads the hardware again.
func pread(f *os.File, b []byte) (int, error) {
	for {
		n, err := syscall.Pread(int(f.Fd()), b, 0)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return 0, &fs.PathError{Op: "read", Path: f.Name(), Err: err}
		}
		return n, nil
	}
}
