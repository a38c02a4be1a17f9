// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package kernfs

import "time"

// thread is the thread that runs a read. Its state is only available on Linux.
type thread struct{ looked time.Duration }

func (*thread) isAnother() bool                       { return false }
func (*thread) open()                                 {}
func (*thread) begin()                                {}
func (*thread) end() (slept bool, used time.Duration) { return true, 0 }
func (*thread) state() state                          { return unclear }
func (*thread) close()                                {}
