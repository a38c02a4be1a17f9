// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package kernfs

import (
	"errors"
	"io"
)

// pread reads the beginning of the file into b. There is no sysfs here; this keeps the package building.
func (f *File) pread(b []byte) (int, error) {
	n, err := f.file.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}
