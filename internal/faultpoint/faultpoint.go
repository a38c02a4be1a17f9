// SPDX-License-Identifier: Apache-2.0

package faultpoint

import "sync/atomic"

// Reader stands in for the result of a read of the file or directory at path: what was got, or the error.
// It may return the same, less, something else, or an error.
type Reader func(path string, got []byte, err error) ([]byte, error)

var reader atomic.Pointer[Reader]

// Install makes all reads go through r until restore is called. There is one at a time.
func Install(r Reader) (restore func()) {
	if !reader.CompareAndSwap(nil, &r) {
		panic("faultpoint: a reader is installed already")
	}
	return func() { reader.Store(nil) }
}

// Active says whether a simulation is on, for callers to whom the path costs something.
func Active() bool { return reader.Load() != nil }

// Read passes on the result of a read of path.
func Read(path string, got []byte, err error) ([]byte, error) {
	if r := reader.Load(); r != nil {
		return (*r)(path, got, err)
	}
	return got, err
}
