// SPDX-License-Identifier: Apache-2.0

//go:build unix

package kernfs

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// pread reads the beginning of f into b with one system call. os.File.ReadAt would make a second
// one to see the end of the file, and each call to a sysfs attribute reads the hardware again.
func pread(f *os.File, b []byte) (int, error) {
	n, err := preadDescriptor(int(f.Fd()), b)
	if err != nil {
		return 0, &fs.PathError{Op: "read", Path: f.Name(), Err: err}
	}
	return n, nil
}

// preadDescriptor is pread with a bare errno as error.
func preadDescriptor(fd int, b []byte) (n int, err error) {
	for {
		if n, err = syscall.Pread(fd, b, 0); !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}
