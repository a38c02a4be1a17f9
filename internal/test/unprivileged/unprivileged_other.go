// SPDX-License-Identifier: Apache-2.0

//go:build !linux

// Package unprivileged lets tests that run as root read files as another user.
package unprivileged

import "testing"

// Reads skips the test: only Linux has a separate user for file accesses.
func Reads(t testing.TB) (restore func()) {
	t.Skip("only Linux has a separate user for file accesses")
	return func() {}
}
