// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package stall

// thread stands for the thread that runs a read. Nothing is known about threads of other systems than Linux.
type thread struct{}

func (*thread) begin()           {}
func (*thread) slept() bool      { return true }
func (*thread) isRunnable() bool { return false }
func (*thread) close()           {}
