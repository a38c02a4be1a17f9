// SPDX-License-Identifier: Apache-2.0

//go:build unix

package kernfs

import (
	"errors"
	"io/fs"
	"syscall"
)

// pread reads the beginning of the file into b with one system call. os.File.ReadAt would make a second
// one to see the end of the file, and each call to a sysfs attribute reads the hardware again.
func (f *File) pread(b []byte) (int, error) {
	read := preadDescriptor
	if f.raw {
		read = preadRaw
	}
	n, err := read(int(f.fd), b)
	if err != nil {
		return 0, &fs.PathError{Op: "read", Path: f.file.Name(), Err: err}
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
