// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package kernfs

import (
	"errors"
	"io"
	"os"
)

// pread reads the beginning of f into b. There is no sysfs here; this keeps the package building.
func pread(f *os.File, b []byte) (int, error) {
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}
