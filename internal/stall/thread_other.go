// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package stall

// thread is the thread that runs a read. Its state is unknown on systems other than Linux.
type thread struct{}

func (*thread) begin()           {}
func (*thread) slept() bool      { return true }
func (*thread) isRunnable() bool { return false }
func (*thread) close()           {}
