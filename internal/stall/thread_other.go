// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package stall

import "time"

// thread is the thread that runs a read. Its state is unknown on systems other than Linux.
type thread struct{}

func (*thread) begin()                                {}
func (*thread) end() (slept bool, used time.Duration) { return true, 0 }
func (*thread) state() state                          { return unclear }
func (*thread) close()                                {}
