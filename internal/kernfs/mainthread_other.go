// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package kernfs

// IsMainThread reports false: threads matter for signals to the process on Linux only.
func IsMainThread() bool { return false }

// OffMainThread calls f.
func OffMainThread(f func()) { f() }
