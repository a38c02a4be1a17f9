// SPDX-License-Identifier: Apache-2.0

package kernfs

import "sync/atomic"

// FaultFunc replaces the result of one read. It is called with the path of the file or directory,
// the bytes that were read and the error, and returns the result that the reader sees. Simulations
// use it to make reads fail.
type FaultFunc func(path string, got []byte, err error) ([]byte, error)

var fault atomic.Pointer[FaultFunc]

// InjectFaults passes the result of every read to f until restore is called. It panics if another
// function is installed.
func InjectFaults(f FaultFunc) (restore func()) {
	if !fault.CompareAndSwap(nil, &f) {
		panic("kernfs: a fault function is installed already")
	}
	return func() { fault.Store(nil) }
}

// FaultsInjected reports whether a fault function is installed. Callers use it to avoid building a
// path that is not used.
func FaultsInjected() bool { return fault.Load() != nil }

// Result returns the result of a read of path: got and err unless a fault function is installed. It
// does not allocate.
func Result(path string, got []byte, err error) ([]byte, error) {
	if f := fault.Load(); f != nil {
		return (*f)(path, got, err)
	}
	return got, err
}
